"""`Weights`: a model's tensors with their meaning, each layer read when it is asked for.

Canonical tensor names, as `Weights.from_tensors` reads and `Weights.tensors` writes them:
`W_E [d_model, d_vocab]`, `W_pos [d_model, n_ctx]`, `W_U [d_vocab, d_model]`, `b_U`, `final_norm.gain`, and per layer
`L0.W_Q`, `L0.b_Q`, …, `L0.attention_norm.gain`, `L0.mlp.W_in` … with the shapes of `Block`; `shapes` lists them all.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from pathsum.errors import CheckpointError, MissingTensor, NotApplicable
from pathsum.weights.blocks import Block, Experts, Head, Mlp, map_tensors
from pathsum.weights.norms import Norm
from pathsum.weights.positions import LearnedQK, Sinusoidal
from pathsum.weights.shapes import check_names, check_shape, expected_shape, required_shapes, shapes
from pathsum.weights.spec import NormKind, Spec

HALVES = (torch.float16, torch.bfloat16)
TAPS = ("smear", "conv_Q", "conv_K", "conv_V")
BLOCK_NORMS = ("attention_norm", "post_attention_norm", "q_norm", "k_norm", "mlp_norm", "post_mlp_norm")


@dataclass(frozen=True)
class Ends:
    """What lies before the first layer and after the last."""

    W_E: Float[Tensor, "d_model d_vocab"]
    W_U: Float[Tensor, "d_vocab d_model"]
    b_U: Float[Tensor, " d_vocab"] | None = None
    W_pos: Float[Tensor, "d_model n_ctx"] | None = None
    final_norm: Norm = Norm()

    def fold(self) -> "Ends":
        """The same with the final norm's gain and centring in `W_U [d_vocab, d_model]`, its bias in `b_U [d_vocab]`."""
        offset = self.final_norm.offset(self.W_U)
        b_U = offset if self.b_U is None else self.b_U if offset is None else self.b_U + offset
        return replace(self, W_U=self.final_norm.matrix(self.W_U), b_U=b_U, final_norm=self.final_norm.before())


@dataclass(frozen=True, repr=False)
class Weights:
    """A model as a value. `read_ends`, `read_block` and `read_attention` (a block without its MLP) fetch its parts.

    `load()` keeps them in memory.
    """

    spec: Spec
    read_ends: Callable[[], Ends]
    read_block: Callable[[int], Block]
    read_attention: Callable[[int], Block]
    stored: Mapping[str, Any] | None = None
    """What the parts are read from, by canonical name; None for weights made from others."""

    def __repr__(self) -> str:
        kind = "folded" if self.spec.folded else "raw"
        return f"Weights({kind}: {self.spec.n_layers} layers × {self.spec.n_heads} heads, d_model {self.spec.d_model})"

    # ---- parts ----

    @property
    def ends(self) -> Ends:
        """Embedding, unembedding and what goes with them, read now."""
        return self.read_ends()

    @property
    def W_E(self) -> Float[Tensor, "d_model d_vocab"]:
        """Token embedding, one column a token."""
        return self.ends.W_E

    @property
    def W_U(self) -> Float[Tensor, "d_vocab d_model"]:
        """Unembedding, one row a token."""
        return self.ends.W_U

    def block(self, layer: int) -> Block:
        """One layer."""
        return self.read_block(self._checked(layer))

    def attention(self, layer: int) -> Block:
        """One layer without its MLP, whose tensors are not read."""
        return self.read_attention(self._checked(layer))

    def _checked(self, layer: int) -> int:
        if not 0 <= layer < self.spec.n_layers:
            raise NotApplicable(f"the model has {self.spec.n_layers} layers (0-based), no layer {layer}")
        return layer

    @property
    def blocks(self) -> list[Block]:
        """All layers, read now."""
        return [self.block(layer) for layer in range(self.spec.n_layers)]

    def head(self, name: str) -> Head:
        """The head printed as `name`, such as `"L1H6"`."""
        layer, index = head_index(name, self.spec)
        return self.attention(layer).head(index)

    # ---- other weights from these ----

    def fold(self) -> "Weights":
        """The same function with every norm's gain, centring and bias in the matrices; exact.

        In float32 at least: `weights.to(torch.float64).fold()` does it in float64.
        """
        if self.spec.folded:
            return self
        wide = self.map(lambda tensor: tensor.float() if tensor.dtype in HALVES else tensor)
        folded = dataclasses.replace(self.spec, folded=True)
        return Weights(
            folded,
            lambda: wide.ends.fold(),
            lambda layer: wide.block(layer).fold(),
            lambda layer: wide.attention(layer).fold(),
        )

    def map(self, change: Callable[[Tensor], Tensor]) -> "Weights":
        """The same weights with every tensor passed through `change`, when it is read."""
        return Weights(
            self.spec,
            lambda: map_tensors(self.ends, change),
            lambda layer: map_tensors(self.block(layer), change),
            lambda layer: map_tensors(self.attention(layer), change),
        )

    def to(self, dtype: torch.dtype) -> "Weights":
        """The same weights in another dtype, each converted when it is read."""
        return self.map(lambda tensor: tensor.to(dtype))

    def load(self) -> "Weights":
        """Everything read once and kept in memory, a tied unembedding and its embedding as one."""
        ends = self.ends
        tied = ends.W_E.mT
        if tied.stride() == ends.W_U.stride() and torch.equal(tied, ends.W_U):
            ends = replace(ends, W_U=tied)
        return Weights.of_parts(self.spec, ends, self.blocks)

    def load_attention(self) -> "Weights":
        """Everything but MLPs kept in memory; a whole `block` is read when it is asked for."""
        ends, blocks = self.ends, [self.attention(layer) for layer in range(self.spec.n_layers)]
        return Weights(self.spec, lambda: ends, self.read_block, lambda layer: blocks[layer])

    @classmethod
    def of_parts(cls, spec: Spec, ends: Ends, blocks: Sequence[Block]) -> "Weights":
        """Weights whose parts are in memory."""
        return cls(spec, lambda: ends, lambda layer: blocks[layer], lambda layer: replace(blocks[layer], mlp=None))

    # ---- tensors by name ----

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor by its canonical name."""
        named = dict(_named(self.ends))
        for block in self.blocks:
            named |= _named(block, f"L{block.layer}.")
        return named

    @classmethod
    def from_tensors(cls, spec: Spec, tensors: Mapping[str, Any]) -> "Weights":
        """Weights that read `tensors` by canonical name, each when it is needed.

        Raises `CheckpointError` for a name that has no place in the model (at once), and `MissingTensor` with name and
        both shapes where the mapping and the spec disagree (on reading).
        """
        check_names(spec, tensors)
        reader = _Reader(spec, tensors)
        return cls(spec, reader.ends, reader.block, reader.attention, tensors)


def head_index(name: str, spec: Spec) -> tuple[int, int]:
    """`"L1H6"` → `(1, 6)`, checked against the model's shape."""
    match = re.fullmatch(r"L(\d+)H(\d+)", name) if isinstance(name, str) else None
    if match is None:
        raise NotApplicable(f"{name!r} is no head; heads are written like L1H6")
    layer, index = int(match[1]), int(match[2])
    if layer >= spec.n_layers or index >= spec.n_heads:
        raise NotApplicable(
            f"no head {name}: the model has layers 0 to {spec.n_layers - 1} of heads 0 to {spec.n_heads - 1}"
        )
    return layer, index


def position_vectors(block: Block, ends: Ends, positions: Tensor, dtype: torch.dtype) -> Tensor | None:
    """What the layer adds to the inputs of queries and keys only, `[pos, d_model]`."""
    where = block.attention.positions
    if isinstance(where, Sinusoidal):
        return where.table(positions, ends.W_E.shape[0], dtype)
    if isinstance(where, LearnedQK) and ends.W_pos is not None:
        return ends.W_pos[:, : len(positions)].mT.to(dtype)
    return None


@dataclass(frozen=True)
class _Reader:
    """Tensors by name, checked against the spec as they are read."""

    spec: Spec
    tensors: Mapping[str, Any]

    def read(self, name: str) -> Tensor | None:
        if name not in self.tensors:
            if name in required_shapes(self.spec):
                raise MissingTensor(f"tensor {name} is missing; config.json asks for {shapes(self.spec)[name]}")
            return None
        tensor = self.tensors[name]
        check_shape(name, tuple(tensor.shape), expected_shape(self.spec, name, tensor.dim()))
        if not tensor.is_floating_point():
            raise CheckpointError(f"tensor {name} is of {tensor.dtype}; weights are floating-point numbers")
        if not tensor.isfinite().all():
            raise CheckpointError(
                f"tensor {name} holds values that are not finite; no reading of it would mean anything"
            )
        return tensor

    def norm(self, prefix: str, kind: NormKind) -> Norm:
        """A norm with its gain and bias, where it has them."""
        across = self.spec.qk_norm_across_heads and prefix.endswith(("q_norm", "k_norm"))
        gain, bias = self.read(f"{prefix}.gain"), self.read(f"{prefix}.bias")
        return Norm(kind, self.spec.norm_eps, gain, bias, across=across)

    def ends(self) -> Ends:
        fields: dict[str, Any] = {name: self.read(name) for name in ("W_E", "W_U", "b_U", "W_pos")}
        return Ends(**fields, final_norm=self.norm("final_norm", self.spec.norm))

    def block(self, layer: int) -> Block:
        return replace(self.attention(layer), mlp=self.mlp(f"L{layer}."))

    def attention(self, layer: int) -> Block:
        prefix = f"L{layer}."
        names = ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O", "sinks", *TAPS)
        fields: dict[str, Any] = {name: self.read(prefix + name) for name in names}
        norms: dict[str, Any] = {name: self.norm(prefix + name, self._kind(name, prefix)) for name in BLOCK_NORMS}
        return Block(layer, self.spec.layers[layer], **fields, **norms)

    def mlp(self, prefix: str) -> Mlp | None:
        spec = self.spec
        if spec.d_mlp is None:
            return None
        names = ("W_in", "W_out", "b_in", "b_out", "W_gate", "b_gate")
        fields: dict[str, Any] = {name: self.read(f"{prefix}mlp.{name}") for name in names}
        fields["limit"] = spec.mlp_limit
        if spec.n_experts is None:
            return Mlp(spec.activation, **fields)
        fields |= {name: self.read(f"{prefix}mlp.{name}") for name in ("W_router", "b_router")}
        fields["chosen"] = spec.experts_per_token
        return Experts(spec.activation, **fields)

    def _kind(self, norm: str, prefix: str) -> NormKind:
        """Norms before attention and MLP are always there (unless `pre_norm` is off); others with a gain or a bias."""
        before = norm == "attention_norm" or (norm == "mlp_norm" and self.spec.d_mlp is not None)
        found = any(f"{prefix}{norm}.{vector}" in self.tensors for vector in ("gain", "bias"))
        if not found and not (before and self.spec.pre_norm):
            return "none"
        return self.spec.qk_norm if norm in ("q_norm", "k_norm") else self.spec.norm


def _named(part: object, prefix: str = "") -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for field in dataclasses.fields(part):  # type: ignore[arg-type]
        value = getattr(part, field.name)
        if isinstance(value, Tensor):
            found[prefix + field.name] = value
        elif isinstance(value, Norm | Mlp):
            found |= _named(value, f"{prefix}{field.name}.")
    return found
