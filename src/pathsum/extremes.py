"""The largest entries of a product of thin factors, found exactly without forming it.

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
TINY = 1e-17
"""Shorter balanced vectors count as this long, over some length near the longest: their squares would vanish."""
MOST_ERROR = 1e-3
"""Balanced vectors are made in float64 where those of the factors' dtype might be wrong by more, over the longest."""


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
    k = min(k, len(left) * right.shape[1])
    A, B, size, tiny = _sides(left, right)
    heights, widths = A.norm(dim=1).clamp_min(TINY), B.norm(dim=1).clamp_min(TINY)
    zeros = _empty(left, heights), _empty(right.mT, widths)
    best = _zeros(left, *zeros, k)
    if not k or zeros[0].all() or zeros[1].all():
        return best, 0
    scale = size * heights.amax().item() * widths.amax().item()
    rows, heights, A = _sorted(heights, A, zeros[0])
    columns, widths, B = _sorted(widths, B, zeros[1])
    error = max(ROUNDING, 2 * (left.shape[1] + 16) * torch.finfo(A.dtype).eps)
    side = max(1024, 2 * int(k**0.5) + 2)
    floor = _floor(A[:side] @ B[:side].mT, k) - error - tiny
    floor, visited, start = max(floor, 0.0) if len(best.values) == k else floor, 0, 0
    while start < len(rows):
        lowest = (floor - tiny) / (1 + error)
        reach = int((widths >= lowest / heights[start]).sum())
        if not reach:
            break
        stop = _stop(heights, start, most_rows)
        step = max(1, TILE // (stop - start))
        for first in range(0, reach, step):
            last = min(first + step, reach)
            visited += (stop - start) * (last - first)
            slack = error * (heights[start] * widths[first]).item() + tiny
            i, j = _above(A[start:stop] @ B[first:last].mT, floor - slack)
            if len(i):
                best = _with(best, left, right, rows[start + i], columns[first + j], k)
                floor = max(floor, best.values[-1].item() / scale) if len(best.values) == k else floor
        start = stop
    return best, visited


def balanced_lengths(left: Float[Tensor, "m r"], right: Float[Tensor, "r n"]) -> tuple[Tensor, Tensor]:
    """Lengths `a [m]`, `b [n]`, float64, with `|(left @ right)[i, j]| ≤ a[i] b[j]`: of `left T` and `T⁻¹ right`."""
    left, right = left.double(), right.double()
    T, back = balancing(left, right)
    return (left @ T).norm(dim=1), (back @ right).norm(dim=0)


def balancing(left: Float[Tensor, "m r"], right: Float[Tensor, "r n"]) -> tuple[Tensor, Tensor]:
    """T and T⁻¹, float64, that give `left T` and `T⁻¹ right` the same Gram matrix: the diagonal singular values.

    T = G_L^(−1/2) U S^(1/2) where G_L^(1/2) G_R^(1/2) = U S Vᵀ. Gram matrices are made in the factors' dtype, their
    coordinates brought to one size: how tight T is depends on it, not that it is right. Factors of zeros are left as
    they are.
    """
    r = left.shape[1]
    sizes = [_size(part) for part in (left, right)]
    if not all(sizes):
        return torch.eye(r, dtype=torch.float64), torch.eye(r, dtype=torch.float64)
    sizes = [max(size, torch.finfo(left.dtype).tiny) for size in sizes]
    left, right = left / sizes[0], right / sizes[1]
    G_L, G_R = (left.mT @ left).double(), (right @ right.mT).double()
    diagonals = [gram.diagonal().clamp_min(1e-30 * gram.diagonal().amax()) for gram in (G_L, G_R)]
    even = (diagonals[1] / diagonals[0]) ** 0.25
    least = max(LEAST, r * torch.finfo(left.dtype).eps)
    root, inverse = _roots(G_L * even[:, None] * even, least)
    other, _ = _roots(G_R / even[:, None] / even, least)
    U, S, _ = torch.linalg.svd(root @ other)
    scale = (sizes[1] / sizes[0]) ** 0.5
    return even[:, None] * (inverse @ U * S.sqrt()) * scale, (U / S.sqrt()).mT @ root / even / scale


def _sides(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor, float, float]:
    """Balanced rows and columns; what their products are to be multiplied with, and how far those may be off.

    Rows and columns are of lengths near 1 at most; the error is absolute, over the longest row's and column's length.
    A rounded inner product of r terms is off by r ε/2 of the sum of their moduli, and T is rounded too.
    """
    T, back = balancing(left, right)
    size = (_size(left) or 1.0) * (_size(right) or 1.0)
    T, back = T / size**0.5, back.mT / size**0.5
    for dtype in (left.dtype, torch.float64):
        A, B = left.to(dtype) @ T.to(dtype), right.mT.to(dtype) @ back.to(dtype)
        error = _error(left, T, A) + _error(right.mT, back, B)
        if error <= MOST_ERROR:
            break
    return A, B, size, error + TINY


def _error(vectors: Tensor, turn: Tensor, turned: Tensor) -> float:
    """The largest error of `turned`, over the longest of it; ∞ where that is unknown."""
    if not turned.numel():
        return 0.0
    moduli = vectors.abs().to(turned.dtype) @ turn.norm(dim=1).to(turned.dtype)
    off = (moduli.amax() / turned.norm(dim=1).amax()).double().nan_to_num(torch.inf, torch.inf).item()
    return off * (len(turn) + 2) * torch.finfo(turned.dtype).eps


def _size(part: Tensor) -> float:
    """The largest modulus; 0 where there is none."""
    return max(-part.amin().item(), part.amax().item()) if part.numel() else 0.0


def _empty(vectors: Float[Tensor, "n r"], lengths: Float[Tensor, " n"]) -> Tensor:
    """Which are zero: only those of no length are looked at."""
    empty = lengths <= TINY
    empty[empty.clone()] = (vectors[empty] == 0).all(1)
    return empty


def _roots(gram: Tensor, least: float) -> tuple[Tensor, Tensor]:
    """The square root of a Gram matrix and its inverse, null directions lifted."""
    values, vectors = torch.linalg.eigh(gram)
    roots = values.clamp_min(values[-1].clamp_min(1e-300) * least).sqrt()
    return vectors * roots @ vectors.mT, vectors / roots @ vectors.mT


def _finite(x: Tensor) -> bool:
    # A sum is finite only if every term is.
    return bool(x.sum().isfinite() or x.isfinite().all())


def _sorted(lengths: Tensor, vectors: Tensor, empty: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Places, lengths and vectors of those that are not zero, longest first; the longest has length 1."""
    some = len(lengths) - int(empty.sum())
    lengths, places = lengths.masked_fill(empty, -1).sort(descending=True, stable=True)
    longest, places = lengths[0], places[:some]
    return places, lengths[:some] / longest, vectors[places].div_(longest)


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
