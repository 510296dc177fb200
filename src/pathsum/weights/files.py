"""Tensors by name from files, each read when it is asked for: safetensors (one or sharded), and torch's own files.

Torch's files are pickles. They are read by torch's weights-only loader, which builds tensors and plain containers and
refuses anything else in them; nothing in them is run.

Mappings are annotated `Mapping[str, Any]`, of tensors: a run-time check of their values would read them.
"""

import json
import re
import warnings
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from pathsum.errors import CheckpointError, MissingTensor


class SafetensorsFile(Mapping[str, Any]):
    """The tensors of one memory-mapped file."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise CheckpointError(f"{path} is missing; copy the whole model folder")
        self.path = path
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

    def shape(self, name: str) -> tuple[int, ...]:
        """From the file's header."""
        return tuple(self._file.get_slice(name).get_shape())

    def outline(self, name: str) -> Tensor:
        """The tensor without its values, on torch's meta device; what is mapped is not read for it."""
        return self._file.get_tensor(name).to("meta")

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class Shards(Mapping[str, Any]):
    """The tensors of several files, found through an index; a file is opened when a tensor of it is asked for.

    Of safetensors one file is mapped at a time, beside those that tensors in use lie in.
    """

    def __init__(self, index: Path) -> None:
        self._index = index
        self._places = _weight_map(index)
        self.files = sorted({index.parent / name for name in self._places.values()})
        for file in self.files:
            if not file.is_file():
                raise CheckpointError(f"{file} is missing, but {index.name} says it holds tensors; copy it too")
        mapped = index.name.endswith(".safetensors.index.json")
        self._open = lru_cache(maxsize=1)(SafetensorsFile) if mapped else cache(read_pickled)

    def __getitem__(self, name: str) -> Tensor:
        return self._shard(name)[name]

    def outline(self, name: str) -> Tensor:
        """The tensor without its values, on torch's meta device."""
        return outline(self._shard(name), name)

    def _shard(self, name: str) -> Mapping[str, Any]:
        place = self._places[name]
        shard = self._open(self._index.parent / place)
        if name not in shard:
            raise MissingTensor(f"tensor {name} is not in {place}, where {self._index} says it is; copy both again")
        return shard

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        """File by file."""
        return iter(sorted(self._places, key=self._places.__getitem__))

    def __len__(self) -> int:
        return len(self._places)


def outline(stored: Mapping[str, Any], name: str) -> Tensor:
    """A tensor of a file or of memory without its values, on torch's meta device."""
    if isinstance(stored, SafetensorsFile | Shards):
        return stored.outline(name)
    if not isinstance(stored[name], Tensor):
        raise CheckpointError(f"{name!r} is a {type(stored[name]).__name__}, not a tensor; save a state dict")
    return stored[name].to("meta")


def _weight_map(index: Path) -> dict[str, str]:
    """Tensor name → file name. Only files beside the index are read."""
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise CheckpointError(f"{index} has no weight_map from tensor names to file names")
    for name, file in places.items():
        if not isinstance(file, str) or Path(file).name != file or "\\" in file or file in ("", ".", ".."):
            raise CheckpointError(f"{index}: tensor {name} is said to be in {file!r}; only files beside it are read")
    return places


def read_pickled(path: Path) -> dict[str, Any]:
    """What torch's weights-only loader finds in a `.bin`, `.pt` or `.pth` file: a dict.

    Raises `CheckpointError` for a file that holds anything but tensors and plain values.
    """
    if not path.is_file():
        raise CheckpointError(f"{path} is missing; copy the whole model folder")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of pickles the loader may not take: it says so by an error
            found = torch.load(path, map_location="cpu", weights_only=True, mmap=_is_zip(path))
    except Exception as error:
        # Of torch's page-long message the cause alone: the rest is how to switch the safety off.
        why = re.search(r"WeightsUnpickler error:\s*([^\n]+)", str(error))
        said = why[1] if why else (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise CheckpointError(
            f"{path} ({path.stat().st_size} bytes) cannot be read as plain tensors ({said}); pathsum runs no code "
            "from a checkpoint: save a state_dict of tensors, or safetensors"
        ) from error
    if not isinstance(found, dict):
        raise CheckpointError(f"{path} holds a {type(found).__name__}, not tensors by name; save a state_dict")
    return found


def _is_zip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"PK\x03\x04"


def read_json(path: Path) -> dict[str, Any]:
    """One JSON object. Raises `CheckpointError` for anything else, a field given twice included."""
    try:
        plain = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_once)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError, OSError) as error:
        raise CheckpointError(f"{path} is no readable JSON: {error}") from error
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from error
    if not isinstance(plain, dict):
        raise CheckpointError(f"{path} must hold one JSON object")
    return plain


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"field {key!r} is given twice; keep one")
        found[key] = value
    return found
