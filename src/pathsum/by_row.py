"""The largest entries of every row of a product of thin factors: exact, and little dearer than the product itself.

1. A block of rows is multiplied out and its columns are taken in groups of 64; one pass finds each group's largest.
2. A row's `k` largest entries lie in the `k` groups of largest largest. Only those are looked at again.
3. Where more groups or entries tie with the k-th than fit, the row is looked at once more, for the first columns.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

GROUP = 64
BLOCK = 1 << 24
"""Entries of a block: 64 MB in float32."""


class RowEntries(NamedTuple):
    """Entries of some rows of a matrix, `k` of each, largest first, equal ones by column."""

    first: int
    """The row that row 0 of these is."""
    values: Float[Tensor, "rows k"]
    columns: Int[Tensor, "rows k"]


def largest_by_row(
    left: Float[Tensor, "m r"], right: Float[Tensor, "r n"], k: int, block: int = BLOCK
) -> Iterator[RowEntries]:
    """The `k` largest entries of every row of `left @ right`, a block of rows at a time.

    Values are those of the product in the factors' dtype; of entries equal to a row's k-th the first columns are
    listed. `k` beyond the number of columns gives every column. Memory: `block` entries.
    Raises `ValueError` for factors that are not finite and for products that overflow: they have no order.
    """
    if not (left.isfinite().all() and right.isfinite().all()):
        raise ValueError("the factors hold values that are not finite; entries of their product have no order")
    n, k = right.shape[1], min(k, right.shape[1])
    padded = -(-n // GROUP) * GROUP
    table = left.new_full((min(len(left), max(1, block // max(1, padded))), padded), -torch.inf)
    for first, rows in _blocks(left, len(table)):
        product = table[: len(rows)]
        torch.mm(rows, right, out=product[:, :n])
        values, columns = _largest(product, k)
        if not values.isfinite().all():
            raise ValueError(f"entries of the product overflow {left.dtype}; pass factors of a wider one, or smaller")
        yield RowEntries(first, values, columns)


def _blocks(left: Tensor, size: int) -> Iterator[tuple[int, Tensor]]:
    for first in range(0, len(left), max(1, size)):
        yield first, left[first : first + size]


def _largest(table: Float[Tensor, "rows padded"], k: int) -> tuple[Tensor, Tensor]:
    groups = table.unflatten(1, (-1, GROUP))
    most = groups.amax(2)
    some = min(k, most.shape[1])
    chosen = most.topk(some, dim=1).indices.sort(1).values
    candidates = groups.gather(1, chosen[:, :, None].expand(-1, -1, GROUP)).flatten(1)
    values, places = candidates.topk(k, dim=1)
    columns = chosen.gather(1, places // GROUP) * GROUP + places % GROUP
    if k:
        last = values[:, -1:]
        tied = ((most >= last).sum(1) > some) | ((candidates >= last).sum(1) > k)
        columns[tied] = _first_columns(table[tied], last[tied], k)
    # By column, then by value: a stable sort keeps equal ones in their order.
    columns = columns.sort(1).values
    values, order = table.gather(1, columns).sort(dim=1, descending=True, stable=True)
    return values, columns.gather(1, order)


def _first_columns(table: Tensor, last: Tensor, k: int) -> Tensor:
    """The columns above the k-th value, and as many of those equal to it as fit, first ones first."""
    n = table.shape[1]
    falling = torch.arange(n, 0, -1, dtype=torch.int32)
    key = torch.where(table > last, 2 * n, torch.where(table == last, falling, 0))
    return key.topk(k, dim=1).indices
