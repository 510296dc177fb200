"""Opens what people have: a built-in name, a folder, a file, a model in memory; lazily, and never running its code."""

import difflib
import os
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from pathsum.errors import CheckpointError, MissingTensor, PathsumError
from pathsum.weights import hub
from pathsum.weights.families import FAMILIES, Family, family_named
from pathsum.weights.families.tensors import read_family
from pathsum.weights.files import SafetensorsFile, Shards, read_json, read_pickled
from pathsum.weights.model import Model
from pathsum.weights.shapes import check_names, check_shape, expected_shape, required_shapes, shapes
from pathsum.weights.spec import Spec
from pathsum.weights.tokenizer import GivenTokenizer, tokenizer_beside, tokenizer_from, with_bos
from pathsum.weights.weights import Weights

BUILTIN = Path(__file__).parent / "builtin"
PICKLED = (".bin", ".pt", ".pth", ".ckpt")
STORED = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
"""Where a folder keeps its tensors, in the order they are looked for."""

Source = str | os.PathLike[str] | Mapping[str, Any] | Any
GivenConfig = Mapping[str, Any] | str | os.PathLike[str] | Spec


def builtin_names() -> list[str]:
    """Names of the models that ship with the package."""
    return sorted(folder.name for folder in BUILTIN.iterdir() if (folder / "config.json").is_file())


def open_model(
    source: Source,
    *,
    family: str | Family | None = None,
    config: GivenConfig | None = None,
    tokenizer: GivenTokenizer = None,
) -> Model:
    """A model by name, path or value, raw and lazy: tensors are read when a reading needs them.

    `source` is a built-in name; a folder with `config.json` and safetensors (one or sharded) or `pytorch_model.bin`;
    a `.safetensors`, `.gguf` or torch file; a `transformers` model or a state dict in memory; or
    `hf:owner/name[@revision]`, the only one that uses the network. A path that exists wins over a name.

    `family` is the name of a known family, or a table of your own (`pathsum.Family`); `config` stands in for
    `config.json`; `tokenizer` is a `tokenizer.json` or an object of the tokenizers or transformers library.

    Raises `CheckpointError` saying what is missing, refused or damaged, where, and what to do; `UnsupportedFamily` for
    a `model_type` without a table. Not in the paper.

    >>> model = pathsum.open("two-layer")
    >>> print(model.spec.n_heads, model.weights.head("L1H3").W_V.shape)      # [d_head, d_model]
    12 torch.Size([32, 384])
    """
    given = _Given(family, _plain(config), tokenizer)
    if not isinstance(source, str | os.PathLike):
        return _in_memory(source, given)
    if str(source).startswith(hub.PREFIX):
        return replace(_folder(hub.fetch(str(source)), given), name=str(source).removeprefix(hub.PREFIX))
    path = _place(source)
    return _folder(path, given) if path.is_dir() else _file(path, given)


# ---- from places ----


class _Given:
    """What the caller said beside the source."""

    def __init__(self, family: str | Family | None, config: dict[str, Any] | Spec | None, tokenizer: GivenTokenizer):
        self.family, self.config, self.tokenizer = family, config, tokenizer


def _folder(folder: Path, given: _Given) -> Model:
    found = [folder / name for name in STORED if (folder / name).is_file()]
    other = [] if found else sorted([*folder.glob("*.safetensors"), *folder.glob("*.gguf")])
    if len(other) == 1:
        return _file(other[0], given)
    if given.config is None and not (folder / "config.json").is_file():
        raise CheckpointError(
            f"{folder} has no config.json; a model folder needs config.json and model.safetensors (or a .gguf file)"
        )
    if not found:
        raise CheckpointError(
            f"{folder}: model.safetensors is missing; a model folder needs config.json and model.safetensors "
            "(or shards with their index, or pytorch_model.bin)"
        )
    return _with_config(found[0], folder.name, given)


def _file(path: Path, given: _Given) -> Model:
    if path.suffix == ".gguf":
        return _gguf(path, given)
    if path.suffix == ".safetensors" or path.name.endswith(".index.json"):
        return _with_config(path, path.stem, given)
    if path.suffix in PICKLED:
        return _with_config(path, path.stem, given)
    raise CheckpointError(f"{path} is a file, but none of .safetensors, .gguf, {', '.join(PICKLED)}; pass its folder")


def _with_config(path: Path, name: str, given: _Given) -> Model:
    """A file of tensors (or an index of files), with the config given or beside it."""
    stored: Mapping[str, Any] = _stored(path)
    files = tuple(stored.files) if isinstance(stored, Shards) else (path,)
    try:
        config = given.config
        if config is None and (path.parent / "config.json").is_file():
            config = read_json(path.parent / "config.json")
        spec, weights = _weights(stored, config, given.family)
        tokenizer = tokenizer_from(given.tokenizer) or tokenizer_beside(path.parent)
    except PathsumError as error:
        raise type(error)(f"{path}: {error}") from error
    training = path.parent / "training.json"
    return Model(
        name=name,
        weights=weights if spec.family == "pathsum" else with_bos(weights, tokenizer, path.parent),
        tokenizer=tokenizer,
        path=path.parent,
        files=files,
        training=read_json(training) if training.is_file() else {},
    )


def _stored(path: Path) -> Mapping[str, Any]:
    if path.suffix == ".safetensors":
        return SafetensorsFile(path)
    return Shards(path) if path.name.endswith(".index.json") else read_pickled(path)


def _gguf(path: Path, given: _Given) -> Model:
    from pathsum.weights.gguf import open_gguf

    if given.family is not None or given.config is not None:
        raise CheckpointError(f"{path}: a GGUF file says itself what it is; leave family= and config= out")
    opened = open_gguf(path)
    return Model(
        name=path.stem,
        weights=Weights.from_tensors(opened.spec, opened.tensors),
        tokenizer=tokenizer_from(given.tokenizer) or opened.tokenizer,
        path=path.parent,
        files=(path,),
        no_tokenizer=opened.no_tokenizer,
    )


def _in_memory(source: Any, given: _Given) -> Model:
    """A `transformers` model, or a state dict with `config=`."""
    config, stored = given.config, source
    if not isinstance(source, Mapping):
        config = _config_of(source) if config is None else config
        stored = source.state_dict()
    spec, weights = _weights(stored, config, given.family)
    tokenizer = tokenizer_from(given.tokenizer)
    return Model(spec.family, weights if spec.family == "pathsum" else with_bos(weights, tokenizer, None), tokenizer)


def _config_of(model: Any) -> dict[str, Any] | Spec | None:
    """What a model in memory says of itself: `.config` or, in TransformerLens, `.cfg`."""
    config = getattr(model, "config", None) or getattr(model, "cfg", None)
    if not hasattr(model, "state_dict") or config is None:
        raise CheckpointError(
            f"open() takes a name, a path, a state dict, or a model with .config and .state_dict(), "
            f"not {type(model).__name__}"
        )
    if hasattr(config, "to_dict"):
        return _plain(config.to_dict())
    return _plain(asdict(config) if is_dataclass(config) else config)  # type: ignore[arg-type]


# ---- from tensors and a config ----


def _weights(
    stored: Mapping[str, Any], config: dict[str, Any] | Spec | None, family: str | Family | None
) -> tuple[Spec, Weights]:
    stored, config = _unwrapped(stored, config)
    if isinstance(config, Spec):
        return config, Weights.from_tensors(config, stored)
    if config is None:
        raise CheckpointError(
            "nothing says what the tensors are, and no config.json lies beside it: the model needs config=, "
            "its config.json as a dict or a path (that of a TransformerLens model is model.cfg.to_dict())"
        )
    config = _text_part(config)
    if family is None and config.get("model_type") == "pathsum":
        spec = _own_spec(config)
        _check_own(spec, stored)
        return spec, Weights.from_tensors(spec, stored)
    spec, tensors = read_family(family_named(family, config, stored), config, stored)
    return spec, Weights.from_tensors(spec, tensors)


def _own_spec(config: dict[str, Any]) -> Spec:
    spec = Spec.from_dict({key: value for key, value in config.items() if key != "model_type"})
    if spec.folded:
        raise CheckpointError("config: folded is true, but models on disk are raw; set it to false")
    return spec


def _check_own(spec: Spec, stored: Mapping[str, Any]) -> None:
    """Names and shapes of a model of ours, from the file's header, before any tensor is read."""
    known = shapes(spec)
    if absent := sorted(set(required_shapes(spec)) - set(stored)):
        raise MissingTensor(f"tensor {absent[0]} is missing; config.json asks for {known[absent[0]]}")
    check_names(spec, stored)
    if isinstance(stored, SafetensorsFile):
        for name in stored:
            shape = stored.shape(name)
            check_shape(name, shape, expected_shape(spec, name, len(shape)))


def _unwrapped(
    stored: Mapping[str, Any], config: dict[str, Any] | Spec | None
) -> tuple[Mapping[str, Any], dict[str, Any] | Spec | None]:
    """The state dict inside a training checkpoint, and nanoGPT's `model_args` as its config."""
    if isinstance(stored, SafetensorsFile | Shards):
        return stored, config
    for name in ("model", "state_dict", "model_state_dict"):
        inner = stored.get(name)
        if isinstance(inner, Mapping):
            if config is None and isinstance(stored.get("model_args"), Mapping):
                config = {"model_type": "nanogpt", **stored["model_args"]}
            stored = inner
            break
    wrong = [name for name, tensor in stored.items() if not isinstance(tensor, Tensor) or not isinstance(name, str)]
    if wrong:
        raise CheckpointError(f"{wrong[0]!r} is a {type(stored[wrong[0]]).__name__}, not a tensor; pass a state dict")
    return stored, config


def _text_part(config: dict[str, Any]) -> dict[str, Any]:
    """The language model's config of a model that also sees or hears; the rest does not enter on text."""
    inner, kind = config.get("text_config"), config.get("model_type")
    if not isinstance(inner, dict) or not isinstance(kind, str) or kind in FAMILIES:
        return config
    tied = {key: config[key] for key in ("tie_word_embeddings",) if key in config}
    return {**tied, **inner}


def _plain(config: Any) -> dict[str, Any] | Spec | None:
    if config is None or isinstance(config, Spec):
        return config
    if isinstance(config, str | os.PathLike):
        return read_json(Path(config))
    if isinstance(config, Mapping):
        return dict(config)
    raise CheckpointError(f"config= takes a dict, a path or a Spec, not {type(config).__name__}")


def _place(source: str | os.PathLike[str]) -> Path:
    if not str(source).strip():
        raise CheckpointError(f"no model is named; built-in are {', '.join(builtin_names())}; or give a path")
    path = Path(source)
    try:
        if path.exists():
            return path
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{str(source)[:80]!r} is no path: {error}") from error
    names = builtin_names()
    if str(source) in names:
        return BUILTIN / str(source)
    if path.suffix or len(path.parts) > 1:
        raise CheckpointError(f"{source} does not exist; give a folder, a file, hf:owner/name, or {', '.join(names)}")
    near = difflib.get_close_matches(str(source), names, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise CheckpointError(
        f"no model {str(source)!r}: {hint}built-in are {', '.join(names)}; or give a path or hf:owner/name"
    )
