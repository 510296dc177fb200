"""Sums of paths as a labelled table: by one or two of five axes, on each of which every path has one place.

    order      how many heads            source     embed, pos, L0.mlp, …
    position   from which token          head       the last one; `direct` without any          layer   its layer

So every path is in one cell, a table sums to what was taken apart, and `check()` says how well.
"""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from pathsum.errors import NotApplicable

AXES = ("order", "source", "position", "head", "layer")
DIRECT = "direct"


@dataclass(frozen=True, repr=False)
class Table:
    """`values` has one axis for each of `axes`, then those of what was taken apart."""

    axes: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    """Of each axis."""
    values: Float[Tensor, "*cells_and_shape"]
    target: Float[Tensor, "*shape"]
    """What all cells sum to."""

    def __repr__(self) -> str:
        cells = ", ".join(f"{len(names)} by {axis}" for axis, names in zip(self.axes, self.labels, strict=True))
        return f"Table({cells}; values {list(self.values.shape)})"

    def check(self) -> float:
        """Reconstruction error `max|Σ − target| / max|target|`."""
        return relative_error(self.values.sum(tuple(range(len(self.axes)))), self.target)


def check_axes(axes: tuple[str, ...]) -> None:
    """Raises `NotApplicable` for an axis that is none, more than two, or a head with its layer."""
    wrong = [axis for axis in axes if axis not in AXES]
    if wrong or not 1 <= len(axes) <= 2 or len(set(axes)) < len(axes):
        raise NotApplicable(f"a table is by one or two of {', '.join(AXES)}, not {axes!r}")
    if set(axes) == {"head", "layer"}:
        raise NotApplicable("a head is in one layer: a table by both says nothing more than by head")


def numbered(count: int) -> tuple[str, ...]:
    """Labels of orders and positions."""
    return tuple(map(str, range(count)))


def relative_error(found: Tensor, wanted: Tensor) -> float:
    """`max|found − wanted| / max|wanted|`; the plain maximum where `wanted` is all zero."""
    gap, size = (found - wanted).abs().max().item(), wanted.abs().max().item()
    return gap / size if size else gap
