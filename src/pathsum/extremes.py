"""The largest entries of a product of thin factors, found exactly without forming it (framework §5).

1. `left @ right = (left T)(T⁻¹ right)` for any invertible T. With the T that gives both sides the same, diagonal Gram
   matrix, an entry is at most the product of its row's and its column's length, and that bound is tight.
2. Rows and columns are sorted by length. Blocks of rows are visited, longest first, each only up to the column where
   the bound falls below the k-th best so far; where it does so at the first column, nothing better is left.

Memory is one block. Entries are computed from the factors as given; the balanced ones only give the bound.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

ENTRIES = 1 << 22
"""Entries in a block: 16 MB in float32."""
MOST_ROWS = 1024
"""Of a block: the bound is that of its first row."""
LEAST = 1e-12
"""Smaller eigenvalues of a Gram matrix, over its largest, count as this: any T is right that can be inverted."""
ROUNDING = 1e-5
"""By so much the bound is raised, relatively."""


class Entries(NamedTuple):
    """Entries of a matrix, by position."""

    values: Float[Tensor, " k"]
    rows: Int[Tensor, " k"]
    columns: Int[Tensor, " k"]


def largest_entries(
    left: Float[Tensor, "m r"], right: Float[Tensor, "r n"], k: int, most_rows: int = MOST_ROWS
) -> Entries:
    """The `k` largest entries of `left @ right`, largest first, equal ones by row and column.

    Which of several entries equal to the k-th are listed is unspecified; a value is exact up to the rounding of one
    inner product. `k` beyond the table's size gives every entry.
    Raises `ValueError` for factors that are not finite: their entries have no order.
    """
    if not (left.isfinite().all() and right.isfinite().all()):
        raise ValueError("the factors hold values that are not finite; entries of their product have no order")
    heights, widths = balanced_lengths(left, right)
    heights, rows = heights.sort(descending=True)
    widths, columns = widths.sort(descending=True)
    left, right = left[rows], right.mT.contiguous()[columns]
    k = min(k, len(rows) * len(columns))
    best, start = Entries(left.new_empty(0), rows[:0], columns[:0]), 0
    while k and start < len(rows):
        reach = _reach(heights[start], widths, best, k)
        if not reach:
            break
        stop = start + max(1, min(most_rows, ENTRIES // reach))
        found = _above(left[start:stop] @ right[:reach].mT, best, k)
        best = _best(best, found._replace(rows=rows[start + found.rows], columns=columns[found.columns]), k)
        start = stop
    return _in_order(best)


def balanced_lengths(left: Float[Tensor, "m r"], right: Float[Tensor, "r n"]) -> tuple[Tensor, Tensor]:
    """Lengths `a [m]`, `b [n]`, float64, with `|(left @ right)[i, j]| ≤ a[i] b[j]`.

    Those of the rows of `left T` and the columns of `T⁻¹ right`, whose Gram matrices are both the diagonal matrix of
    the product's singular values: T = G_L^(−1/2) U S^(1/2) where G_L^(1/2) G_R^(1/2) = U S Vᵀ.
    """
    if not left.shape[1] or not left.shape[0] or not right.shape[1]:
        return left.new_zeros(left.shape[0]).double(), left.new_zeros(right.shape[1]).double()
    sizes = [part.abs().amax().double().clamp_min(1e-300) for part in (left, right)]
    left, right = left.double() / sizes[0], right.double() / sizes[1]
    root, inverse = _roots(left.mT @ left)
    other, _ = _roots(right @ right.mT)
    U, S, _ = torch.linalg.svd(root @ other)
    T, back = inverse @ U * S.sqrt(), (U / S.sqrt()).mT @ root
    scale = sizes[0].sqrt() * sizes[1].sqrt()
    return (left @ T).norm(dim=1) * scale, (back @ right).norm(dim=0) * scale


def _roots(gram: Tensor) -> tuple[Tensor, Tensor]:
    """The square root of a Gram matrix and its inverse, null directions lifted."""
    values, vectors = torch.linalg.eigh(gram)
    roots = values.clamp_min(values[-1].clamp_min(1e-300) * LEAST).sqrt()
    return vectors * roots @ vectors.mT, vectors / roots @ vectors.mT


def _reach(height: Tensor, widths: Tensor, best: Entries, k: int) -> int:
    """How many of the columns, widest first, may hold something better."""
    if len(best.values) < k:
        return len(widths)
    return int((height * widths * (1 + ROUNDING) > best.values[-1]).sum())


def _above(values: Float[Tensor, "m n"], best: Entries, k: int) -> Entries:
    """The entries of a block that may be among the `k` best, by their place in the block."""
    longest = values.amax(1)
    if len(best.values) < k and len(longest) < k:
        top = values.flatten().topk(min(k, values.numel())).indices
        rows, columns = top // values.shape[1], top % values.shape[1]
    else:
        # The k-th best row's best is no more than the k-th best entry.
        beats, low = (torch.gt, best.values[-1]) if len(best.values) == k else (torch.ge, longest.topk(k).values[-1])
        chosen = beats(longest, low).nonzero()[:, 0]
        rows, columns = beats(values[chosen], low).nonzero().unbind(1)
        rows = chosen[rows]
    return Entries(values[rows, columns], rows, columns)


def _best(a: Entries, b: Entries, k: int) -> Entries:
    """The `k` best of both, largest first."""
    joined = Entries(*(torch.cat(parts) for parts in zip(a, b, strict=True)))
    top = joined.values.topk(min(k, len(joined.values))).indices
    return Entries(*(part[top] for part in joined))


def _in_order(found: Entries) -> Entries:
    """Largest first, equal ones by row, then by column."""
    for key in ("columns", "rows", "values"):
        order = getattr(found, key).argsort(descending=key == "values", stable=True)
        found = Entries(*(part[order] for part in found))
    return found
