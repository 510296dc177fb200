"""The largest entries of a product of thin factors, found exactly without forming it (framework §5).

1. `left @ right = (left T)(T⁻¹ right)` for any invertible T. With the T that gives both sides the same, diagonal Gram
   matrix, an entry is at most the product of its row's and its column's length, and that bound is tight.
2. The k-th best among the longest rows and columns is a first floor: nothing below it can be listed.
3. Rows and columns are sorted by length. Blocks of rows are visited, longest first, each only up to the column where
   the bound falls below the floor; where it does so at the first column, nothing better is left.
4. Balanced factors only say where to look. What may be listed is computed from the factors as given, in float64.

Memory is one tile. Bounds of clusters of rows and columns, or of boxes around their leading coordinates, let more of a
table be visited than these lengths do: in the many dimensions of a head, a cluster is as wide as the whole.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

ENTRIES = 1 << 22
"""Entries in a block of a table: 16 MB in float32."""
TILE = 1 << 20
"""Entries of the balanced product in memory at once."""
MOST_ROWS = 512
"""Of a tile: its bound is that of its first row."""
ALIKE = 0.9
"""Rows of one tile are no shorter than this, over the longest; but 32 at least."""
LEAST = 1e-12
"""Smaller eigenvalues of a Gram matrix, over its largest, count as this: any T is right that can be inverted."""
ROUNDING = 1e-5
"""A bound is raised by so much, relatively; by 2 ε a dimension where that is more."""
TINY = 1e-36
"""Absolute rounding of a product of balanced factors, over the longest row's and column's."""


class Entries(NamedTuple):
    """Entries of a matrix, by position."""

    values: Float[Tensor, " k"]
    rows: Int[Tensor, " k"]
    columns: Int[Tensor, " k"]


def largest_entries(left: Float[Tensor, "m r"], right: Float[Tensor, "r n"], k: int) -> Entries:
    """The `k` largest entries of `left @ right`, largest first, equal ones by row and then by column.

    An entry's value is its inner product, summed in float64 and rounded to the factors' dtype; values that are equal
    then are a tie, and of those that tie with the k-th the first by row and column are listed. Rows and columns of
    zeros have entries 0. `k` beyond the table's size gives every entry; rank 0 is a table of zeros.
    Raises `ValueError` for factors that are not finite and for listed entries that overflow: they have no order.
    """
    return search(left, right, k)[0]


def search(
    left: Float[Tensor, "m r"], right: Float[Tensor, "r n"], k: int, most_rows: int = MOST_ROWS
) -> tuple[Entries, int]:
    """`largest_entries`, and how many entries were visited to find them."""
    if not (_finite(left) and _finite(right)):
        raise ValueError("the factors hold values that are not finite; entries of their product have no order")
    n = right.shape[1]
    k = min(k, len(left) * n)
    A, B = balanced(left, right)
    heights, widths = A.norm(dim=1), B.norm(dim=1)
    best = _zeros(left, heights == 0, widths == 0, k)
    scale = (heights.amax() * widths.amax()).item() if k else 0.0
    if not scale:
        return best, 0
    rows, heights, A = _sorted(heights, A, left.dtype)
    columns, widths, B = _sorted(widths, B, left.dtype)
    error = max(ROUNDING, 2 * (left.shape[1] + 16) * torch.finfo(left.dtype).eps)
    side = max(1024, 2 * int(k**0.5) + 2)
    floor = _floor(A[:side] @ B[:side].mT, k) - error - TINY
    floor, visited, start = max(floor, 0.0) if len(best.values) == k else floor, 0, 0
    while start < len(rows):
        lowest = (floor - TINY) / (1 + error)
        reach = int((widths >= lowest / heights[start]).sum())
        if not reach:
            break
        stop = _stop(heights, start, most_rows)
        step = max(1, TILE // (stop - start))
        for first in range(0, reach, step):
            last = min(first + step, reach)
            visited += (stop - start) * (last - first)
            slack = error * (heights[start] * widths[first]).item() + TINY
            i, j = _above(A[start:stop] @ B[first:last].mT, floor - slack)
            if len(i):
                best = _with(best, left, right, rows[start + i], columns[first + j], k)
                floor = max(floor, best.values[-1].item() / scale) if len(best.values) == k else floor
        start = stop
    return best, visited


def balanced(
    left: Float[Tensor, "m r"], right: Float[Tensor, "r n"]
) -> tuple[Float[Tensor, "m r"], Float[Tensor, "n r"]]:
    """`A = left T` and `Bᵀ = T⁻¹ right`, float64, whose Gram matrices are both diag(the product's singular values).

    T = G_L^(−1/2) U S^(1/2) where G_L^(1/2) G_R^(1/2) = U S Vᵀ. So `|(left @ right)[i, j]| ≤ ‖A[i]‖ ‖B[j]‖`.
    """
    if not left.shape[1] or not left.shape[0] or not right.shape[1]:
        return left.double(), right.mT.double()
    sizes = [part.abs().amax().double().clamp_min(1e-300) for part in (left, right)]
    left, right = left.double() / sizes[0], right.mT.double() / sizes[1]
    root, inverse = _roots(left.mT @ left)
    other, _ = _roots(right.mT @ right)
    U, S, _ = torch.linalg.svd(root @ other)
    scale = sizes[0].sqrt() * sizes[1].sqrt()
    return left @ (inverse @ U * S.sqrt() * scale), right @ (root @ U / S.sqrt() * scale)


def balanced_lengths(left: Float[Tensor, "m r"], right: Float[Tensor, "r n"]) -> tuple[Tensor, Tensor]:
    """Lengths `a [m]`, `b [n]` of the rows of `balanced`, float64, with `|(left @ right)[i, j]| ≤ a[i] b[j]`."""
    A, B = balanced(left, right)
    return A.norm(dim=1), B.norm(dim=1)


def _roots(gram: Tensor) -> tuple[Tensor, Tensor]:
    """The square root of a Gram matrix and its inverse, null directions lifted."""
    values, vectors = torch.linalg.eigh(gram)
    roots = values.clamp_min(values[-1].clamp_min(1e-300) * LEAST).sqrt()
    return vectors * roots @ vectors.mT, vectors / roots @ vectors.mT


def _finite(x: Tensor) -> bool:
    # A sum is finite only if every term is.
    return bool(x.sum().isfinite() or x.isfinite().all())


def _sorted(lengths: Tensor, vectors: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Places, lengths and vectors, longest first, without zeros; the longest has length 1."""
    lengths, places = lengths.sort(descending=True, stable=True)
    some = int((lengths > 0).sum())
    scale = lengths[0]
    return places[:some], lengths[:some] / scale, vectors.to(dtype)[places[:some]].div_(scale)


def _floor(values: Float[Tensor, "m n"], k: int) -> float:
    """The k-th largest; −∞ where there are fewer."""
    return values.flatten().topk(k).values[-1].item() if values.numel() >= k else -torch.inf


def _stop(heights: Tensor, start: int, most_rows: int) -> int:
    """The end of the tile that begins at a row."""
    ahead = heights[start : start + most_rows]
    return start + min(len(ahead), max(32, int((ahead >= ALIKE * ahead[0]).sum())))


def _above(values: Float[Tensor, "m n"], low: float) -> tuple[Tensor, Tensor]:
    """Places in a tile of what is at least `low`: rows without any are passed over by their largest."""
    rows = (values.amax(1) >= low).nonzero()[:, 0]
    i, j = (values[rows] >= low).nonzero().unbind(1)
    return rows[i], j


def _with(best: Entries, left: Tensor, right: Tensor, rows: Tensor, columns: Tensor, k: int) -> Entries:
    """The `k` first of the best so far and of others, whose values are computed here, some at a time."""
    size = max(1, ENTRIES // left.shape[1])
    for i, j in zip(rows.split(size), columns.split(size), strict=True):
        values = (left[i].double() * right.mT[j].double()).sum(1).to(left.dtype)
        if not values.isfinite().all():
            raise ValueError(f"entries of the product overflow {left.dtype}; pass factors of a wider one, or smaller")
        best = _first(Entries(*(torch.cat(pair) for pair in zip(best, (values, i, j), strict=True))), k)
    return best


def _first(found: Entries, k: int) -> Entries:
    """The `k` first: largest values first, equal ones by row, then by column."""
    for key in ("columns", "rows", "values"):
        order = getattr(found, key).argsort(descending=key == "values", stable=True)
        found = Entries(*(part[order] for part in found))
    return Entries(*(part[:k] for part in found))


def _zeros(left: Tensor, rows: Tensor, columns: Tensor, k: int) -> Entries:
    """The `k` first entries of rows and columns that are zero."""
    empty = columns.nonzero()[:, 0]
    counts = torch.where(rows, len(columns), len(empty))
    before = counts.cumsum(0) - counts
    counts = counts.where(before < k, 0)
    i = torch.arange(len(rows)).repeat_interleave(counts)[:k]
    place = torch.arange(len(i)) - before[i]
    j = place if not len(empty) else torch.where(rows[i], place, empty[place.clamp_max(len(empty) - 1)])
    return Entries(left.new_zeros(len(i)), i, j)
