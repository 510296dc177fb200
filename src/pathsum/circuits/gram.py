"""Inner products of many Gram matrices with many others, streamed over tiles of the shared space.

`‖R W‖² = ⟨RᵀR, W Wᵀ⟩`, so what composition needs of a reader or a writer is one symmetric `d × d` matrix:

1. `Thin`: `nearᵀ core near` of a head. No such matrix is ever held; a tile of it is one product of thin factors.
2. `Wide`: of an MLP or the embedding, whose rank is at least d. Held whole.
3. A tile of every writer and of some readers lies in two buffers, so all pairs of them are one GEMM. Only tiles on and
   right of the diagonal are formed: the rest stands for twice itself, and the diagonal's own tile for half.
4. Readers and writers come in order; a reader takes the writers before it. That staircase is cut into strips.

Tiles and GEMMs are of the matrices' dtype, their sums over rows of tiles float64.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

ROWS = 64
"""Rows of a tile."""
STRIP = 144
"""Readers that are multiplied together, at least."""
BUFFER = 48_000_000
"""Bytes of the writers' buffer of tiles, near what a last cache holds; tiles are as wide as fit, in steps of `ROWS`."""
CHUNK = 4096
"""Columns of a wide matrix whose products are summed in its own dtype."""
BANDS = 4
"""Bands of rows that a wide Gram matrix is formed in: more leave out more below the diagonal, and multiply slower."""


@dataclass(frozen=True)
class Thin:
    """`nearᵀ core near` of several heads; heads of a group share `near`.

    `spectrum`: eigenvalues of each, falling, float64.
    """

    near: Float[Tensor, "kv r d"]
    core: Float[Tensor, "head r r"]
    spectrum: Float[Tensor, "head r"]

    def __len__(self) -> int:
        return len(self.core)

    @property
    def dtype(self) -> torch.dtype:
        return self.near.dtype

    @property
    def traces(self) -> tuple[Float[Tensor, " head"], Float[Tensor, " head"]]:
        """tr A and tr A² of each."""
        return self.spectrum.sum(-1), self.spectrum.square().sum(-1)

    def left(self, rows: slice) -> Float[Tensor, "kv group_rows r"]:
        """`nearᵀ core` of some rows, group by group."""
        near = self.near[:, :, rows].mT
        if len(self.core) == len(near):
            return near @ self.core
        return (near[:, None] @ self.core.unflatten(0, (len(near), -1))).flatten(1, 2)

    def tile(self, left: Tensor, columns: slice, out: Float[Tensor, "head t w"]) -> None:
        torch.bmm(left, self.near[:, :, columns], out=out.view(len(self.near), -1, out.shape[-1]))

    def factors(self, index: int) -> tuple[Float[Tensor, "r d"], Float[Tensor, "r r"]]:
        """X and C with `Xᵀ C X` the matrix, float64."""
        kv = index // (len(self.core) // len(self.near))
        return self.near[kv].double(), self.core[index].double()


@dataclass(frozen=True)
class Wide:
    """Gram matrices that are held; `again(i)` reads what the i-th is of: X `[rank, d]` with `XᵀX`."""

    gram: Float[Tensor, "matrix d d"]
    spectrum: Float[Tensor, "matrix d"]
    again: Callable[[int], Tensor]

    def __len__(self) -> int:
        return len(self.gram)

    @property
    def dtype(self) -> torch.dtype:
        return self.gram.dtype

    @property
    def traces(self) -> tuple[Float[Tensor, " matrix"], Float[Tensor, " matrix"]]:
        """tr A and tr A² of each."""
        trace = self.gram.diagonal(dim1=-2, dim2=-1).sum(-1, dtype=torch.float64)
        return trace, torch.stack([one.double().square().sum() for one in self.gram])

    def left(self, rows: slice) -> Float[Tensor, "matrix t d"]:
        return self.gram[:, rows]

    def tile(self, left: Tensor, columns: slice, out: Float[Tensor, "matrix t w"]) -> None:
        out.copy_(left[:, :, columns])

    def factors(self, index: int) -> tuple[Float[Tensor, "rank d"], None]:
        return self.again(index).double(), None


Gram = Thin | Wide


def thin(
    near: Float[Tensor, "kv r d"],
    core: Float[Tensor, "head r r"],
    spectrum: Float[Tensor, "head r"],
    dtype: torch.dtype,
) -> Thin:
    """Factors in `dtype`, laid out so that a slice of their columns goes into a product without a copy.

    What lies in a file is copied, so that the file need not stay mapped.
    """
    near = near.to(dtype)
    if 1 not in near.stride()[1:] or not near.untyped_storage().resizable():
        near = near.clone(memory_format=torch.contiguous_format)
    return Thin(near, core.to(dtype), spectrum)


def wide(matrices: Sequence[Float[Tensor, "_ d"]], again: Callable[[int], Tensor], dtype: torch.dtype) -> Wide:
    """`XᵀX` of some matrices, and their spectra, in `dtype`; `again(i)` reads the i-th once more if it is needed."""
    gram = torch.stack([column_gram(matrix.to(dtype)).to(dtype) for matrix in matrices])
    return Wide(gram, torch.linalg.eigvalsh(gram).flip(-1).clamp_min(0).double(), again)


def row_gram(matrices: Float[Tensor, "n r d"]) -> Float[Tensor, "n r r"]:
    """`X Xᵀ`, float64."""
    exact = matrices.double()
    return exact @ exact.mT


def column_gram(matrix: Float[Tensor, "rank d"]) -> Float[Tensor, "d d"]:
    """`XᵀX`, only what lies on and right of its diagonal's blocks multiplied out; sums over chunks in float64."""
    d = matrix.shape[-1]
    total = torch.zeros(d, d, dtype=torch.float64)
    size = -(-d // BANDS)
    for chunk in matrix.split(CHUNK):
        for start in range(0, d, size):
            total[start : start + size, start:] += chunk[:, start : start + size].mT @ chunk[:, start:]
    return total.triu() + total.triu(1).mT


def product_spectrum(core: Float[Tensor, "head r r"], near: Float[Tensor, "kv r r"]) -> Float[Tensor, "head r"]:
    """Eigenvalues of `core · near`, both symmetric and positive, falling: the squared singular values."""
    near = near.repeat_interleave(len(core) // len(near), 0)
    root, failed = torch.linalg.cholesky_ex(core)
    if failed.any():
        values, vectors = torch.linalg.eigh(core)
        root = torch.where((failed > 0)[:, None, None], vectors * values.clamp_min(0).sqrt()[:, None, :], root)
    return torch.linalg.eigvalsh(root.mT @ near @ root).flip(-1).clamp_min(0)


def product_square(X: Tensor, C: Tensor | None, Y: Tensor, D: Tensor | None) -> Tensor:
    """`tr(C M D Mᵀ)`, M = X Yᵀ; None stands for the identity, of a matrix with many rows."""
    if C is not None and D is not None:
        M = X @ Y.mT
        return (C @ M * (M @ D)).sum()
    if C is not None:
        X, D, Y = Y, C, X
    total = torch.zeros((), dtype=torch.float64)
    for rows in X.split(CHUNK):
        M = rows @ Y.mT
        total += (M * (M if D is None else M @ D)).sum()
    return total


def gram_products(
    readers: Sequence[Gram], limits: Sequence[int], writers: Sequence[Gram], d: int, buffer: int = BUFFER
) -> Float[Tensor, "reader writer"]:
    """`⟨A, B⟩` of every matrix of `readers[i]` with the first `limits[i]` of all writers' matrices, float64.

    `limits` does not fall. What lies beyond a reader's limit is of no meaning.
    """
    dtype = writers[0].dtype
    cuts = strips([len(reader) for reader in readers], limits)
    n, m, tallest = _count(readers), _count(writers), max(_count(readers[some]) for some, _ in cuts)
    width = min(d, ROWS * max(1, buffer // (dtype.itemsize * m * ROWS**2)))
    reader_tiles, writer_tiles = (torch.empty(count * ROWS * width, dtype=dtype) for count in (tallest, m))
    sums, total = torch.zeros(n, m, dtype=dtype), torch.zeros(n, m, dtype=torch.float64)
    for start in range(0, d, ROWS):
        rows = slice(start, min(start + ROWS, d))
        writer_lefts, reader_lefts = ([gram.left(rows) for gram in side] for side in (writers, readers))
        for first in range(start, d, width):
            columns = slice(first, min(first + width, d))
            B = _tiles(writers, writer_lefts, rows, columns, writer_tiles)
            if first == start:
                B[:, :, : rows.stop - start] *= 0.5
            at = 0
            for some, limit in cuts:
                A = _tiles(readers[some], reader_lefts[some], rows, columns, reader_tiles)
                sums[at : at + len(A), :limit].addmm_(A.flatten(1), B[:limit].flatten(1).mT, alpha=2)
                at += len(A)
        total += sums
        sums.zero_()
    return total


def _tiles(grams: Sequence[Gram], lefts: list[Tensor], rows: slice, columns: slice, buffer: Tensor) -> Tensor:
    """One tile of every matrix, in the buffer."""
    t, w, count = rows.stop - rows.start, columns.stop - columns.start, _count(grams)
    out, at = buffer[: count * t * w].view(count, t, w), 0
    for gram, left in zip(grams, lefts, strict=True):
        gram.tile(left, columns, out[at : at + len(gram)])
        at += len(gram)
    return out


def strips(counts: Sequence[int], limits: Sequence[int]) -> list[tuple[slice, int]]:
    """Parts of at least `STRIP` readers together, and how many writers the last of them takes.

    Thinner strips would waste less and multiply more slowly.
    """
    found, first, readers = [], 0, 0
    for part, count in enumerate(counts):
        readers += count
        if readers >= STRIP or part == len(counts) - 1:
            found.append((slice(first, part + 1), limits[part]))
            first, readers = part + 1, 0
    return found


def _count(grams: Sequence[Gram]) -> int:
    return sum(len(gram) for gram in grams)
