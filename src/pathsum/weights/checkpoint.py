"""Opens a built-in name or a folder, lazily and never by pickle; saves a model beside its place and renames it in."""

import difflib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor

from pathsum.errors import CheckpointError, MissingTensor, UnsupportedFamily
from pathsum.weights.model import Model
from pathsum.weights.spec import Spec
from pathsum.weights.weights import Weights, check_names, check_shape, expected_shape, required_shapes, shapes

BUILTIN = Path(__file__).parent / "builtin"


def builtin_names() -> list[str]:
    """Names of the models that ship with the package."""
    return sorted(folder.name for folder in BUILTIN.iterdir() if (folder / "config.json").is_file())


def open_model(source: str | os.PathLike[str]) -> Model:
    """A built-in by name, or a folder with `config.json`, `model.safetensors` and perhaps `tokenizer.json`.

    A path that exists wins over a name. Raises `CheckpointError` saying what is missing and what to do.

    >>> pathsum.open("two-layer").spec.n_heads
    12
    """
    folder = _folder(source)
    config = _json(folder / "config.json")
    if config.pop("model_type", None) != "pathsum":
        raise UnsupportedFamily(f"{folder / 'config.json'}: this version opens models saved by pathsum only")
    try:
        spec = Spec.from_dict(config)
        if spec.folded:
            raise CheckpointError("config: folded is true, but models on disk are raw; set it to false")
        tensors = SafetensorsFile(folder / "model.safetensors")
        tensors.check(spec)
    except CheckpointError as error:
        raise type(error)(f"{folder}: {error}") from error
    training = folder / "training.json"
    return Model(
        name=folder.name,
        weights=Weights.from_tensors(spec, tensors),
        tokenizer=_tokenizer(folder),
        path=folder,
        training=_json(training) if training.is_file() else {},
    )


class SafetensorsFile(Mapping[str, Tensor]):
    """The tensors of one memory-mapped file, each read when it is asked for."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise CheckpointError(f"{path} is missing; a model folder needs config.json and model.safetensors")
        try:
            self._file = safe_open(path, framework="pt")
        except (SafetensorError, OSError) as error:
            raise CheckpointError(
                f"{path} ({path.stat().st_size} bytes) is no readable safetensors file ({error}); copy it again"
            ) from error
        self._names = set(self._file.keys())

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._names:
            raise KeyError(name)
        return self._file.get_tensor(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def check(self, spec: Spec) -> None:
        """Names and shapes, from the file's header, before any tensor is read."""
        known = shapes(spec)
        if absent := sorted(set(required_shapes(spec)) - self._names):
            raise MissingTensor(f"tensor {absent[0]} is missing; config.json asks for {known[absent[0]]}")
        check_names(spec, self._names)
        for name in self._names:
            shape = tuple(self._file.get_slice(name).get_shape())
            check_shape(name, shape, expected_shape(spec, name, len(shape)))


def save(
    directory: Path, weights: Weights, tokenizer: Tokenizer | None = None, training: dict[str, Any] | None = None
) -> None:
    """Write a model folder beside `directory` and rename it into place (its files one by one if it exists).

    Raises `CheckpointError` for folded weights: what is on disk is raw, and `fold()` is asked for after opening.
    """
    if weights.spec.folded:
        raise CheckpointError(f"{directory}: folded weights are not saved; save the raw ones and fold() after opening")
    directory.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    try:
        tensors = {name: tensor.detach().contiguous().clone() for name, tensor in weights.tensors().items()}
        save_file(tensors, beside / "model.safetensors")
        _write_json(beside / "config.json", {"model_type": "pathsum", **weights.spec.to_dict()})
        if tokenizer is not None:
            tokenizer.save(str(beside / "tokenizer.json"))
        if training is not None:
            _write_json(beside / "training.json", training)
        for file in beside.iterdir():
            file.chmod(0o644)
        if directory.exists():
            for file in beside.iterdir():
                file.replace(directory / file.name)
        else:
            beside.chmod(0o755)
            beside.rename(directory)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _folder(source: str | os.PathLike[str]) -> Path:
    if not str(source).strip():
        raise CheckpointError(f"no model is named; built-in are {', '.join(builtin_names())}; or give a folder's path")
    path = Path(source)
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise CheckpointError(f"{path} has no config.json; a model folder needs config.json and model.safetensors")
        return path
    if path.exists():
        raise CheckpointError(f"{path} is a file; pass the folder with config.json and model.safetensors")
    names = builtin_names()
    if str(source) in names:
        return BUILTIN / str(source)
    near = difflib.get_close_matches(str(source), names, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise CheckpointError(f"no model {str(source)!r}: {hint}built-in are {', '.join(names)}; or give a folder's path")


def _tokenizer(folder: Path) -> Tokenizer | None:
    """The folder's own, or, for a checkpoint of a run, the run folder's."""
    for place in (folder, folder.parent):
        file = place / "tokenizer.json"
        if file.is_file() and (place == folder or (place / "training.json").is_file()):
            try:
                return Tokenizer.from_file(str(file))
            except Exception as error:  # tokenizers raises bare Exception
                raise CheckpointError(f"{file} is no readable tokenizer: {error}") from error
    return None


def _json(path: Path) -> dict[str, Any]:
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} is no readable JSON: {error}") from error
    if not isinstance(plain, dict):
        raise CheckpointError(f"{path} must hold one JSON object")
    return plain


def _write_json(path: Path, plain: dict[str, Any]) -> None:
    path.write_text(json.dumps(plain, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
