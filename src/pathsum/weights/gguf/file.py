"""`GgufFile`: the tensors of one memory-mapped GGUF file, each dequantised when it is asked for."""

import math
import mmap
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from pathsum.errors import CheckpointError
from pathsum.weights.gguf.header import Entry, read_header


class GgufFile(Mapping):  # of str to Tensor; saying so here would have a run-time type check read one
    """Tensors by their GGUF names, float32, shapes in torch's order; `metadata` as plain Python values.

    Raises `CheckpointError` for a file that is no GGUF, damaged, big-endian, or of a version other than 2 and 3.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            with self.path.open("rb") as file:
                self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise CheckpointError(f"cannot be read: {error}") from error
        self.metadata: dict[str, Any]
        self._entries: dict[str, Entry]
        self.metadata, self._entries = read_header(self._bytes)

    def shape(self, name: str) -> tuple[int, ...]:
        """A tensor's shape, without reading it."""
        return self._entries[name].shape

    def kind(self, name: str) -> str:
        """How a tensor is stored: F32, F16, Q4_K …"""
        return self._entries[name].kind

    def read(self, name: str, start: int = 0, stop: int | None = None) -> Float[Tensor, "..."]:
        """Rows `start` to `stop` along the first axis; no other row is dequantised."""
        entry = self._entries[name]
        if len(entry.shape) == 1:
            return self._dequantised(name, entry, 0, 1).reshape(-1)[start:stop]
        rows = self._dequantised(name, entry, *slice(start, stop).indices(entry.shape[0])[:2])
        return rows.reshape(-1, *entry.shape[1:])

    def __getitem__(self, name: str) -> Tensor:
        return self.read(name)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def _dequantised(self, name: str, entry: Entry, start: int, stop: int) -> Tensor:
        from gguf import GGMLQuantizationType, dequantize

        # The innermost axis is a row of blocks of its own.
        rows = math.prod(entry.shape[1:-1]) if len(entry.shape) > 1 else 1
        width = entry.n_bytes // math.prod(entry.shape[:-1])
        stored = np.frombuffer(self._bytes, np.uint8, (stop - start) * rows * width, entry.start + start * rows * width)
        inner = stored.reshape(-1, width)
        try:
            with np.errstate(all="ignore"):
                return torch.from_numpy(np.array(dequantize(inner, GGMLQuantizationType[entry.kind]), np.float32))
        except NotImplementedError as error:
            raise CheckpointError(f"tensor {name} is stored as {entry.kind}, which is not dequantised here") from error
