"""Canonical tensors out of a GGUF's: which rows of which tensor, and how they are turned."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor

from pathsum.weights.gguf.file import GgufFile
from pathsum.weights.gguf.source import check

Turn = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Part:
    """Rows `start` to `stop` of the file's tensor `name`, turned."""

    name: str
    turn: Turn
    start: int = 0
    stop: int | None = None


class Parts(Mapping[str, Tensor]):
    """Canonical tensors, each read and turned when it is asked for."""

    def __init__(self, file: GgufFile, parts: dict[str, Part]) -> None:
        self._file, self._parts = file, parts

    def __getitem__(self, name: str) -> Tensor:
        part = self._parts[name]
        return part.turn(self._file.read(part.name, part.start, part.stop))

    def origin(self, name: str) -> tuple[str, ...]:
        """The file's tensor that this one is made of."""
        return (self._parts[name].name,)

    def __contains__(self, name: object) -> bool:
        return name in self._parts

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)


def part(
    file: GgufFile, name: str, shape: tuple[int, ...], turn: Turn | None = None, rows: tuple[int, int] | None = None
) -> Part:
    """A part of a tensor that must be there with this shape; raises `MissingTensor`."""
    check(file, name, shape)
    return Part(name, turn or as_is, *(rows or (0, None)))


def as_is(tensor: Tensor) -> Tensor:
    return tensor


def times(factor: float | int) -> Turn:
    return as_is if factor == 1 else lambda tensor: tensor * factor


def heads(n: int) -> Turn:
    """`[n · d_head, …]` → `[n, d_head, …]`."""
    return lambda tensor: tensor.reshape(n, -1, *tensor.shape[1:])


def unpermuted_heads(n: int) -> Turn:
    """The same for rows stored pair by pair, `(0, d_head/2, 1, d_head/2 + 1, …)`: put back into halves."""
    return lambda tensor: tensor.reshape(n, -1, 2, *tensor.shape[1:]).swapaxes(1, 2).reshape(n, -1, *tensor.shape[1:])


def output_heads(n: int, factor: float | int) -> Turn:
    """`[d_model, n · d_head]` → `[n, d_model, d_head]`, times the residual's factor."""
    return lambda tensor: times(factor)(tensor).reshape(tensor.shape[0], n, -1).permute(1, 0, 2)
