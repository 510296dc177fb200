"""A checkpoint read by its family's table: every tensor found, none left over, under our names and in our shapes."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from pathsum.errors import CheckpointError, MissingTensor
from pathsum.weights.families.config import Config
from pathsum.weights.families.family import Family, Source, Table, Take, take
from pathsum.weights.files import outline
from pathsum.weights.shapes import expected_shape, required_shapes, shapes
from pathsum.weights.spec import Spec

EVERYWHERE = (
    r"(.*\.)?rotary_emb\.inv_freq",
    r"(.*\.)?attention\.(masked_)?bias",
    r"(.*\.)?attn\.(masked_)?bias",
    r"lm_head\.weight",
    r"embed_out\.weight",
)
"""Buffers that old checkpoints carry and that are computed anyway, and the unembedding of tied models, a copy."""

CANNOT = (RuntimeError, ValueError, IndexError, TypeError)
"""What torch raises for shapes that do not fit."""


class FamilyTensors(Mapping[str, Any]):
    """A checkpoint's tensors under our canonical names and in our shapes, each made when it is asked for."""

    def __init__(self, spec: Spec, family: Family, config: Config, stored: Mapping[str, Any]) -> None:
        self._spec, self._stored = spec, stored
        self._raw = _without_prefixes(stored, family.prefixes)
        self._sources: dict[str, Take] = {}
        missing: dict[str, tuple[str, ...]] = {}
        for name, source in _layered(family.table(config), spec):
            found = [option for option in _options(source, spec) if all(part in self._raw for part in option.names)]
            if found:
                self._sources[name] = found[0]
            else:
                missing[name] = _options(source, spec)[0].names
        self._check(missing, family)
        self._check_shapes()

    def __getitem__(self, name: str) -> Tensor:
        source = self._sources[name]
        stored = [self._stored[self._raw[part]] for part in source.names]
        try:
            return self._made(name, stored)
        except CANNOT as error:
            said = ", ".join(f"{self._raw[p]} {tuple(t.shape)}" for p, t in zip(source.names, stored, strict=True))
            wanted = shapes(self._spec)[name]
            raise MissingTensor(
                f"{said} cannot be {name} {wanted} of the model that config.json describes; "
                "config and weights are not of the same model"
            ) from error

    def _made(self, name: str, stored: Sequence[Tensor]) -> Tensor:
        return _in_our_shape(name, self._sources[name].change(self._spec, *stored), self._spec)

    def __contains__(self, name: object) -> bool:
        return name in self._sources

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)

    def origin(self, name: str) -> tuple[str, ...]:
        """The checkpoint's tensors that this one is made of."""
        return tuple(self._raw[part] for part in self._sources[name].names)

    def _check(self, missing: dict[str, tuple[str, ...]], family: Family) -> None:
        """Nothing that must be there is missing, and nothing that is there is left unread."""
        for name in required_shapes(self._spec):
            if name not in self._sources and name not in missing:
                raise MissingTensor(f"the table of family {family.name!r} says nothing of {name}")
        for name in _must_be_there(missing, self._sources):
            raise MissingTensor(
                f"tensor {self._as_stored(missing[name][0])} is missing ({name} of a {family.name} model)"
            )
        used = {part for source in self._sources.values() for part in source.names}
        ignored = re.compile("|".join(f"(?:{pattern})" for pattern in (*EVERYWHERE, *family.ignore)))
        for name in sorted(set(self._raw) - used):
            if not ignored.fullmatch(name):
                raise CheckpointError(
                    f"tensor {self._raw[name]} has no place in a {family.name} model; "
                    "reading on without it would give another model's numbers"
                )

    def _check_shapes(self) -> None:
        """Every tensor can be made in our shape, by outlines without values; where these do not do, it is made."""
        outlines = {raw: outline(self._stored, raw) for raw in self._stored}
        for name, source in self._sources.items():
            try:
                self._made(name, [outlines[self._raw[part]] for part in source.names])
            except CANNOT:
                self[name]

    def _as_stored(self, name: str) -> str:
        """With the prefix that its neighbours have in the checkpoint."""
        part = name.split(".")[0]
        near = next((known for known in self._raw if known.split(".")[0] == part), name)
        return self._raw.get(near, near).removesuffix(near) + name


# ---- from names and shapes of theirs to ours ----


def _without_prefixes(stored: Mapping[str, Any], prefixes: tuple[str, ...]) -> dict[str, str]:
    """Name as the table writes it → name in the checkpoint."""
    found: dict[str, str] = {}
    for raw in stored:
        name = raw.removeprefix("module.").removeprefix("_orig_mod.")
        name = next((name.removeprefix(prefix) for prefix in prefixes if name.startswith(prefix)), name)
        if name in found:
            raise CheckpointError(f"tensors {found[name]} and {raw} are two of what a model has once")
        found[name] = raw
    return found


def _layered(table: Table, spec: Spec) -> Iterator[tuple[str, Source]]:
    """Every entry, those of layers once a layer."""
    for name, source in table.items():
        if "{layer}" not in name:
            yield name, source
            continue
        for layer in range(spec.n_layers):
            yield name.replace("{layer}", str(layer)), _at_layer(source, layer)


def _must_be_there(missing: Collection[str], found: Collection[str]) -> Iterator[str]:
    """All that a table lists, but biases that no layer has."""
    part = lambda name: re.sub(r"^L\d+\.", "", name)
    bias = lambda name: name.rsplit(".", 1)[-1].startswith("b")
    somewhere = {part(name) for name in found}
    return (name for name in missing if not bias(name) or part(name) in somewhere)


def _at_layer(source: Source, layer: int) -> Source:
    if isinstance(source, str):
        return source.replace("{layer}", str(layer))
    if isinstance(source, Take):
        return Take(tuple(name.replace("{layer}", str(layer)) for name in source.names), source.change)
    return tuple(_at_layer(option, layer) for option in source)  # type: ignore[misc]


def _options(source: Source, spec: Spec) -> list[Take]:
    """The alternatives, each as a `Take` of plain names."""
    options = source if isinstance(source, tuple) else (source,)
    return [_experts(take(o, change=_as_it_is) if isinstance(o, str) else o, spec) for o in options]


def _experts(source: Take, spec: Spec) -> Take:
    """A source that is stacked over experts where its name says so."""
    if not any("{expert}" in name for name in source.names):
        return source
    n = spec.n_experts or 0
    names = tuple(name.replace("{expert}", str(expert)) for expert in range(n) for name in source.names)
    width = len(source.names)
    return Take(names, lambda spec, *parts: torch.stack(
        [source.change(spec, *parts[i : i + width]) for i in range(0, len(parts), width)]
    ))  # fmt: skip


def _as_it_is(spec: Spec, tensor: Tensor) -> Tensor:
    return tensor


def _in_our_shape(name: str, tensor: Tensor, spec: Spec) -> Tensor:
    """Heads apart, vectors as columns. Raises `ValueError` where the sizes do not fit."""
    part = name.rsplit("}.", 1)[-1] if "." not in name else name.split(".", 1)[1] if name[0] == "L" else name
    heads, keys = (spec.n_heads, spec.d_head), (spec.n_key_value_heads, spec.d_head)
    if part in ("W_E", "W_pos"):
        tensor = tensor.mT
    elif part in ("W_Q", "b_Q"):
        tensor = tensor.unflatten(0, heads)
    elif part in ("W_K", "W_V", "b_K", "b_V"):
        tensor = tensor.unflatten(0, keys)
    elif part == "W_O":
        tensor = tensor.unflatten(1, heads).transpose(0, 1)
    elif part.startswith(("q_norm", "k_norm")) and spec.qk_norm_across_heads:
        tensor = tensor.unflatten(0, heads if part.startswith("q") else keys)
    if tuple(tensor.shape) != expected_shape(spec, name, tensor.dim()):
        raise ValueError(f"shape {tuple(tensor.shape)}")
    return tensor


def read_family(family: Family, plain: dict[str, Any], stored: Mapping[str, Any]) -> tuple[Spec, FamilyTensors]:
    """Spec and tensors of a checkpoint of this family.

    Raises `CheckpointError` naming the config's field, or the tensor, that is missing, wrong or refused.
    """
    config = Config(plain, dict(family.defaults))
    quantization = config.part("quantization_config").get("quant_method", default=None)
    if quantization is not None and quantization not in family.quantized:
        raise CheckpointError(
            f"config: quantization_config says the weights are quantised by {quantization!r}, which pathsum does not "
            "undo; open the full-precision checkpoint, or a GGUF file"
        )
    spec = family.spec(config)
    return spec, FamilyTensors(spec, family, config, stored)
