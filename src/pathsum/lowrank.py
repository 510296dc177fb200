"""`LowRank`: a matrix kept as the product of two thin factors.

Every circuit and every path of a transformer is such a product, and its rank is at most `d_head`. Questions about the
`m × n` matrix are answered from its `r × r` core, so nothing here forms the product except `dense()`, `rows`,
`columns` and the blocks that `largest` visits.

Linear algebra runs in float32 at least; `eigenvalues`, `norm` and `svd` run in float64, whatever the factors' dtype.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor

from pathsum.by_row import RowEntries, largest_by_row
from pathsum.extremes import Entries, largest_entries

Index = int | slice | Int[Tensor, " k"] | list[int]


class SVD(NamedTuple):
    """`U diag(S) Vh`, the singular values `S` falling; `Vh` has the right singular vectors as rows."""

    U: Float[Tensor, "*batch m k"]
    S: Float[Tensor, "*batch k"]
    Vh: Float[Tensor, "*batch k n"]


@dataclass(frozen=True)
class LowRank:
    """The matrix `left @ right`, with any leading batch axes.

    `left [*batch, m, r]`, `right [*batch, r, n]`. The rank bound `r` may exceed the size and may be 0. Raises
    `ValueError` for factors that do not meet. Paper: “Working with Low-Rank Matrices”.

    >>> weights = pathsum.open("two-layer-small").weights
    >>> circuit = weights.W_U @ weights.head("L1H1").OV @ weights.W_E
    >>> print(circuit.shape, circuit.rank, circuit.eigenvalues().shape)     # [d_vocab, d_vocab], from [d_head, d_head]
    torch.Size([1024, 1024]) 32 torch.Size([32])
    """

    left: Float[Tensor, "*#batch m r"]
    right: Float[Tensor, "*#batch r n"]

    def __post_init__(self) -> None:
        if self.left.shape[-1] != self.right.shape[-2]:
            raise ValueError(
                f"the factors do not meet: left {tuple(self.left.shape)}, right {tuple(self.right.shape)}; "
                "left's last axis must equal right's last but one"
            )
        if self.left.dtype != self.right.dtype:
            raise ValueError(f"the factors differ in dtype: left {self.left.dtype}, right {self.right.dtype}")

    # ---- shape ----

    @property
    def shape(self) -> torch.Size:
        """Shape of the dense meaning, `[*batch, m, n]`."""
        batch = torch.broadcast_shapes(self.left.shape[:-2], self.right.shape[:-2])
        return torch.Size((*batch, self.left.shape[-2], self.right.shape[-1]))

    @property
    def rank(self) -> int:
        """The bound `r` on the rank: the width of the factors."""
        return self.left.shape[-1]

    @property
    def dtype(self) -> torch.dtype:
        """Of both factors."""
        return self.left.dtype

    @property
    def T(self) -> "LowRank":
        """The transpose of every matrix of the batch: `(L R)ᵀ = Rᵀ Lᵀ`."""
        return LowRank(self.right.mT, self.left.mT)

    def __getitem__(self, index) -> "LowRank":
        """Index the batch axes; the two matrix axes stay whole."""
        batch = self.shape[:-2]
        left = self.left.expand(*batch, *self.left.shape[-2:])
        right = self.right.expand(*batch, *self.right.shape[-2:])
        index = index if isinstance(index, tuple) else (index,)
        if sum(part is not None and part is not Ellipsis for part in index) > len(batch):
            raise IndexError(f"{len(index)} indices for {len(batch)} batch axes; entries are read with .entries(i, j)")
        whole = (*index, slice(None), slice(None))
        return LowRank(left[whole], right[whole])

    def to(self, dtype: torch.dtype) -> "LowRank":
        """The same matrix with factors of another dtype."""
        return LowRank(self.left.to(dtype), self.right.to(dtype))

    # ---- algebra ----

    def __matmul__(self, other: "LowRank | Float[Tensor, '*batch n p']") -> "LowRank":
        """Compose: `(L₁R₁)(L₂R₂)`, keeping the smaller of the two ranks; a tensor counts as a dense matrix."""
        if isinstance(other, Tensor):
            return LowRank(*_same_dtype(self.left, _product(self.right, other)))
        middle = _product(self.right, other.left)
        if self.rank <= other.rank:
            return LowRank(*_same_dtype(self.left, _product(middle, other.right)))
        return LowRank(*_same_dtype(_product(self.left, middle), other.right))

    def __rmatmul__(self, other: Float[Tensor, "*batch p m"]) -> "LowRank":
        """Compose with a dense matrix on the left: `W @ (L R) = (W L) R`."""
        return LowRank(*_same_dtype(_product(other, self.left), self.right))

    def __add__(self, other: "LowRank") -> "LowRank":
        """Sum, by concatenating the factors: the ranks add."""
        if self.shape[-2:] != other.shape[-2:]:
            raise ValueError(f"cannot add matrices of shapes {tuple(self.shape)} and {tuple(other.shape)}")
        batch = torch.broadcast_shapes(self.shape[:-2], other.shape[:-2])
        lefts = [part.left.expand(*batch, *part.left.shape[-2:]) for part in (self, other)]
        rights = [part.right.expand(*batch, *part.right.shape[-2:]) for part in (self, other)]
        return LowRank(torch.cat(_same_dtype(*lefts), dim=-1), torch.cat(_same_dtype(*rights), dim=-2))

    def __mul__(self, scalar: float | int) -> "LowRank":
        """Scale by a number."""
        return LowRank(*_same_dtype(_wide(self.left) * scalar, self.right))

    __rmul__ = __mul__

    def __neg__(self) -> "LowRank":
        return self * -1.0

    def __sub__(self, other: "LowRank") -> "LowRank":
        return self + (-other)

    def apply(self, x: Float[Tensor, "*any n"]) -> Float[Tensor, "*out m"]:
        """Act on vectors: `y = L (R x)`, `x [..., n]` to `y [..., m]`; batch axes broadcast with `x`'s leading ones."""
        column = _product(self.left, _product(self.right, x.unsqueeze(-1)))
        return column.squeeze(-1)

    # ---- what the core knows ----

    def core(self) -> Float[Tensor, "*batch r r"]:
        """`R L`, the `r × r` matrix with the same trace and non-zero eigenvalues (square matrices only)."""
        self._require_square("core")
        return _product(self.right, self.left)

    def trace(self) -> Float[Tensor, "*batch"]:
        """`tr(L R)`, from the factors' entrywise product."""
        self._require_square("trace")
        return (_wide(self.left) * _wide(self.right).mT).sum((-1, -2))

    def diagonal(self) -> Float[Tensor, "*batch m"]:
        """The diagonal of `L R`."""
        self._require_square("diagonal")
        return (_wide(self.left) * _wide(self.right).mT).sum(-1)

    def eigenvalues(self) -> Complex[Tensor, "*batch k"]:
        """The `min(r, m)` eigenvalues that can be non-zero, in float64, largest modulus first."""
        self._require_square("eigenvalues")
        left, right = self.left.double(), self.right.double()
        values = torch.linalg.eigvals(right @ left if self.rank <= self.shape[-1] else left @ right)
        order = values.abs().argsort(dim=-1, descending=True, stable=True)
        return values.gather(-1, order)

    def svd(self) -> SVD:
        """Thin singular value decomposition in float64, `min(m, n, r)` values, from QR of both factors."""
        Q_left, R_left = torch.linalg.qr(self.left.double())
        Q_right, R_right = torch.linalg.qr(self.right.double().mT)
        U, S, Vh = torch.linalg.svd(R_left @ R_right.mT, full_matrices=False)
        return SVD(Q_left @ U, S, Vh @ Q_right.mT)

    def singular_values(self) -> Float[Tensor, "*batch k"]:
        """The singular values alone, falling, float64."""
        R_left = torch.linalg.qr(self.left.double(), mode="r").R
        R_right = torch.linalg.qr(self.right.double().mT, mode="r").R
        return torch.linalg.svdvals(R_left @ R_right.mT)

    def norm(self) -> Float[Tensor, "*batch"]:
        """Frobenius norm, `‖L R‖² = tr(LᵀL · R Rᵀ)`, float64; absolute error about 1e-8 of `‖L‖‖R‖`."""
        left, right = self.left.double(), self.right.double()
        return ((left.mT @ left) * (right @ right.mT)).sum((-1, -2)).clamp_min(0).sqrt()

    def compress(self) -> "LowRank":
        """The same matrix with factors of width at most `min(m, n)`; exact up to rounding."""
        m, n = self.shape[-2:]
        if self.rank <= min(m, n):
            return self
        product = self.dense()
        eye = torch.eye(min(m, n)).to(product)
        return LowRank(product, eye) if n <= m else LowRank(eye, product)

    def truncate(self, rank: int) -> tuple["LowRank", Float[Tensor, "*batch"]]:
        """The nearest matrix of the given rank, and its exact Frobenius distance `√Σ_{i>rank} s_i²`."""
        U, S, Vh = self.svd()
        kept = LowRank(U[..., :rank] * S[..., None, :rank], Vh[..., :rank, :])
        return kept, S[..., rank:].square().sum(-1).sqrt()

    # ---- parts of the dense meaning ----

    def dense(self) -> Float[Tensor, "*batch m n"]:
        """The full matrix. Nothing else forms it."""
        return _product(self.left, self.right)

    def rows(self, index: Index) -> Float[Tensor, "*batch k n"]:
        """The rows at `index` (an integer gives one row, kept as an axis)."""
        return _product(self.left[..., _axis_index(index), :], self.right)

    def columns(self, index: Index) -> Float[Tensor, "*batch m k"]:
        """The columns at `index` (an integer gives one column, kept as an axis)."""
        return _product(self.left, self.right[..., _axis_index(index)])

    def entries(self, rows: Int[Tensor, " k"], columns: Int[Tensor, " k"]) -> Float[Tensor, "*batch k"]:
        """The entries at `(rows[i], columns[i])`."""
        return (_wide(self.left)[..., rows, :] * _wide(self.right)[..., columns].mT).sum(-1)

    def blocks(self, size: int) -> Iterator[tuple[int, Float[Tensor, "rows n"]]]:
        """`(first row, dense block)` over the rows, `size` of them at a time."""
        self._require_single("blocks")
        for start in range(0, self.shape[-2], size):
            yield start, self.rows(slice(start, start + size))

    def largest(self, k: int) -> Entries:
        """The `k` largest entries, exactly, largest first; most of a large table is never looked at.

        A value is an inner product summed in float64 and rounded to the factors' dtype; equal ones come by row and
        column, and so do those that tie with the k-th. `k` beyond the table's size gives every entry.
        Raises `ValueError` for factors that are not finite.
        """
        self._require_single("largest")
        _require_count(k)
        return largest_entries(_wide(self.left), _wide(self.right), k)

    def smallest(self, k: int) -> Entries:
        """The `k` most negative entries, exactly, most negative first."""
        values, rows, columns = (-self).largest(k)
        return Entries(-values, rows, columns)

    def largest_by_row(self, k: int) -> RowEntries:
        """The `k` largest entries of every row, `[m, k]`, largest first, equal ones by column; memory is one block.

        `pathsum.by_row.largest_by_row` gives them a block of rows at a time.
        """
        self._require_single("largest_by_row")
        _require_count(k)
        blocks = list(largest_by_row(_wide(self.left), _wide(self.right), k))
        k = min(k, self.shape[-1])
        empty = RowEntries(0, _wide(self.left).new_zeros(0, k), torch.zeros(0, k, dtype=torch.long))
        _, values, columns = zip(empty, *blocks, strict=True)
        return RowEntries(0, torch.cat(values), torch.cat(columns))

    def largest_by_column(self, k: int) -> RowEntries:
        """The `k` largest entries of every column, `[n, k]`: those of the transpose's rows; its `columns` are rows."""
        return self.T.largest_by_row(k)

    # ---- guards ----

    def _require_square(self, what: str) -> None:
        if self.shape[-1] != self.shape[-2]:
            raise ValueError(f"{what} needs a square matrix, this one is {self.shape[-2]} × {self.shape[-1]}")

    def _require_single(self, what: str) -> None:
        if len(self.shape) != 2:
            raise ValueError(f"{what} reads one matrix at a time; index the batch {tuple(self.shape[:-2])} first")


def _require_count(k: int) -> None:
    if k < 0:
        raise ValueError(f"k is {k}, must be 0 or more")


def _wide(x: Tensor) -> Tensor:
    """At least float32."""
    return x if x.dtype == torch.float64 else x.float()


def _product(a: Tensor, b: Tensor) -> Tensor:
    """`a @ b` in the wider of the two dtypes, float32 at least."""
    a, b = _same_dtype(_wide(a), _wide(b))
    return a @ b


def _same_dtype(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    dtype = torch.promote_types(a.dtype, b.dtype)
    return a.to(dtype), b.to(dtype)


def _axis_index(index: Index) -> slice | Tensor:
    if isinstance(index, slice):
        return index
    return torch.as_tensor([index] if isinstance(index, int) else index, dtype=torch.long)
