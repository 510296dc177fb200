"""`LowRank` means `left @ right`: every operation agrees with the dense matrix, computed here in float64."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from pathsum.lowrank import LowRank

DTYPES = (torch.float64, torch.float32, torch.bfloat16)
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 1e-5}

sizes = st.integers(1, 6)
ranks = st.integers(0, 8)
batches = st.sampled_from([(), (2,), (1,), (3, 2)])
dtypes = st.sampled_from(DTYPES)
seeds = st.integers(0, 10**6)


def normal(seed: int, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def low_rank(seed: int, batch: tuple[int, ...], m: int, r: int, n: int, dtype: torch.dtype) -> LowRank:
    return LowRank(normal(seed, *batch, m, r, dtype=dtype), normal(seed + 1, *batch, r, n, dtype=dtype))


@st.composite
def matrices(draw, square: bool = False, batch=batches, dtype=dtypes) -> LowRank:
    """A random `LowRank` of any shape, rank (0, and beyond the size), batch and dtype."""
    m = draw(sizes)
    n = m if square else draw(sizes)
    return low_rank(draw(seeds), draw(batch), m, draw(ranks), n, draw(dtype))


@st.composite
def pairs(draw, same_shape: bool = False) -> tuple[LowRank, LowRank]:
    """Two that can be composed, or added: the same batch and dtype, any ranks."""
    batch, dtype = draw(batches), draw(dtypes)
    a = draw(matrices(batch=st.just(batch), dtype=st.just(dtype)))
    m, n = a.shape[-2:] if same_shape else (a.shape[-1], draw(sizes))
    return a, low_rank(draw(seeds), batch, m, draw(ranks), n, dtype)


def meaning(a: LowRank) -> Tensor:
    """The dense matrix, in float64 from the factors as they are."""
    return a.left.double() @ a.right.double()


def size(a: LowRank) -> float:
    """What rounding errors are relative to: ‖L‖‖R‖ of the largest of the batch."""
    norms = a.left.double().norm(dim=(-1, -2)) * a.right.double().norm(dim=(-1, -2))
    return float(norms.max()) if norms.numel() else 0.0


def same(actual: Tensor, expected: Tensor, scale: float, dtype: torch.dtype, times: float = 1.0) -> None:
    """Equal shapes, and equal values up to rounding at this scale."""
    assert actual.shape == expected.shape
    assert_close(actual.double(), expected, rtol=0, atol=times * TOLERANCE[dtype] * max(scale, 1e-30))


# ---- the algebra ----


@given(matrices())
def test_dense_is_the_product_of_the_factors(a):
    same(a.dense(), meaning(a), size(a), a.dtype)
    assert a.shape == meaning(a).shape
    assert a.rank == a.left.shape[-1]


@given(pairs())
def test_composing_is_the_matrix_product_and_keeps_the_smaller_rank(pair):
    a, b = pair
    same(meaning(a @ b), meaning(a) @ meaning(b), size(a) * size(b), a.dtype)
    assert (a @ b).rank == min(a.rank, b.rank)


@given(matrices(), sizes, seeds)
def test_a_tensor_on_either_side_counts_as_a_dense_matrix(a, k, seed):
    batch, (m, n) = a.shape[:-2], a.shape[-2:]
    left, right = normal(seed, *batch, k, m, dtype=a.dtype), normal(seed, *batch, n, k, dtype=a.dtype)
    scale = size(a) * max(left.double().norm().item(), right.double().norm().item())
    same(meaning(left @ a), left.double() @ meaning(a), scale, a.dtype)
    same(meaning(a @ right), meaning(a) @ right.double(), scale, a.dtype)
    assert (left @ a).rank == (a @ right).rank == a.rank


@given(matrices(batch=st.just((3,))), sizes, seeds)
def test_a_matrix_without_batch_composes_with_every_one_of_a_batch(a, k, seed):
    single = low_rank(seed, (), a.shape[-1], k, a.shape[-2], a.dtype)
    scale = size(a) * size(single)
    same(meaning(a @ single), meaning(a) @ meaning(single), scale, a.dtype)
    same(meaning(single @ a), meaning(single) @ meaning(a), scale, a.dtype)
    for total in (single.T + a, a + single.T):
        same(total.dense(), meaning(single).mT + meaning(a), size(a) + size(single), a.dtype)


@given(pairs(same_shape=True))
def test_sums_and_differences_are_those_of_the_matrices_and_ranks_add(pair):
    a, b = pair
    same(meaning(a + b), meaning(a) + meaning(b), size(a) + size(b), a.dtype)
    same(meaning(a - b), meaning(a) - meaning(b), size(a) + size(b), a.dtype)
    assert (a + b).rank == a.rank + b.rank


@given(matrices(), st.one_of(st.floats(-5, 5), st.integers(-5, 5)))
def test_a_scalar_multiplies_every_entry_from_either_side(a, scalar):
    for scaled in (a * scalar, scalar * a):
        same(meaning(scaled), meaning(a) * scalar, 5 * size(a), a.dtype)
    same(meaning(-a), -meaning(a), size(a), a.dtype)


@given(matrices())
def test_the_transpose_swaps_the_matrix_axes_and_no_others(a):
    same(meaning(a.T), meaning(a).mT, size(a), a.dtype)
    assert a.T.rank == a.rank


@given(matrices(batch=st.just((3, 2))))
@pytest.mark.parametrize(
    "index",
    [0, -1, (1, 0), (slice(None), 1), (Ellipsis, 0), slice(1, 3), None, (0, None), (0, 1, None, Ellipsis), Ellipsis,
     torch.tensor([2, 0])],
    ids=str,
)  # fmt: skip
def test_indexing_reaches_the_batch_axes_only(index, a):
    whole = index if isinstance(index, tuple) else (index,)
    whole = whole if Ellipsis in [part for part in whole if not isinstance(part, Tensor)] else (*whole, Ellipsis)
    same(meaning(a[index]), meaning(a)[(*whole, slice(None), slice(None))], size(a), a.dtype)


@given(matrices(), st.sampled_from([(), (4,), (5, 4)]), seeds)
def test_apply_is_the_matrix_times_vectors(a, leading, seed):
    batch = a.shape[:-2]
    x = normal(seed, *leading, *batch, a.shape[-1], dtype=a.dtype)
    expected = (meaning(a) @ x.double().unsqueeze(-1)).squeeze(-1)
    same(a.apply(x), expected, size(a) * x.double().norm().item(), a.dtype)


@given(matrices(), st.sampled_from(DTYPES))
def test_to_changes_the_factors_dtype_and_nothing_else(a, dtype):
    assert a.to(dtype).dtype == dtype
    assert torch.equal(meaning(a.to(dtype)), a.left.to(dtype).double() @ a.right.to(dtype).double())


# ---- what the core knows ----


@given(matrices(square=True))
def test_trace_and_diagonal_are_those_of_the_matrix(a):
    same(a.trace(), meaning(a).diagonal(dim1=-2, dim2=-1).sum(-1), size(a), a.dtype)
    same(a.diagonal(), meaning(a).diagonal(dim1=-2, dim2=-1), size(a), a.dtype)


@given(matrices(square=True))
def test_the_core_has_the_same_trace_of_every_power(a):
    core, dense, scale = a.core().double(), meaning(a), max(size(a), 1e-30)
    for power in range(1, 5):
        traces = [torch.linalg.matrix_power(m / scale, power).diagonal(dim1=-2, dim2=-1).sum(-1) for m in (core, dense)]
        same(*traces, 1.0, a.dtype, times=10)
    assert core.shape[-2:] == (a.rank, a.rank)


@given(matrices(square=True))
def test_eigenvalues_are_the_non_zero_ones_of_the_matrix_as_a_multiset(a):
    """Equal power sums of degree 1 … m fix a multiset of at most m numbers, up to zeros (Newton's identities)."""
    values, dense, scale = a.eigenvalues(), meaning(a), max(size(a), 1e-30)
    for power in range(1, a.shape[-1] + 1):
        expected = torch.linalg.matrix_power(dense / scale, power).diagonal(dim1=-2, dim2=-1).sum(-1)
        same(((values / scale) ** power).sum(-1).real, expected, 1.0, torch.float64)
    assert values.shape == (*a.shape[:-2], min(a.rank, a.shape[-1]))
    assert values.dtype == torch.complex128
    moduli = values.abs()
    assert (moduli[..., :-1] >= moduli[..., 1:] * (1 - 1e-12)).all()


def test_complex_eigenvalues_come_in_their_pairs():
    a = LowRank(torch.tensor([[0.0, -2.0], [2.0, 0.0], [0.0, 0.0]]), torch.eye(2, 3))
    assert sorted(a.eigenvalues().imag.tolist()) == pytest.approx([-2.0, 2.0], abs=1e-12)
    assert a.eigenvalues().real.abs().max() < 1e-12


@given(matrices())
def test_svd_rebuilds_the_matrix_from_orthonormal_vectors(a):
    U, S, Vh = a.svd()
    k = min(*a.shape[-2:], a.rank)
    assert S.shape == (*a.shape[:-2], k)
    same(U * S.unsqueeze(-2) @ Vh, meaning(a), size(a), torch.float64)
    eye = torch.eye(k, dtype=torch.float64).expand(*a.shape[:-2], k, k)
    same(U.mT @ U, eye, 1.0, torch.float64)
    same(Vh @ Vh.mT, eye, 1.0, torch.float64)


@given(matrices())
def test_singular_values_fall_and_are_those_of_the_matrix(a):
    k = min(*a.shape[-2:], a.rank)
    expected = torch.linalg.svdvals(meaning(a))[..., :k]
    same(a.singular_values(), expected, size(a), torch.float64)
    same(a.svd().S, expected, size(a), torch.float64)


@given(matrices())
def test_norm_is_frobenius(a):
    same(a.norm(), meaning(a).norm(dim=(-1, -2)), size(a), torch.float64, times=1e5)


@given(pairs())
def test_a_cyclic_permutation_keeps_the_trace_and_not_the_norm(pair):
    a, _ = pair
    b = low_rank(7, a.shape[:-2], a.shape[-1], 3, a.shape[-2], a.dtype)
    same((a @ b).trace(), (b @ a).trace().double(), size(a) * size(b), a.dtype)
    x, y = LowRank(torch.eye(2, 1), torch.eye(1, 2)), LowRank(torch.tensor([[0.0], [1.0]]), torch.eye(1, 2))
    assert (x @ y).norm() == 0
    assert (y @ x).norm() == 1


@given(matrices())
def test_compressing_keeps_the_matrix_with_a_rank_no_larger_than_its_size(a):
    same(meaning(a.compress()), meaning(a), size(a), a.dtype)
    assert a.compress().rank == min(a.rank, *a.shape[-2:])
    assert (a.compress() is a) == (a.rank <= min(a.shape[-2:]))


@given(matrices(), st.integers(0, 7))
def test_truncating_gives_the_nearest_matrix_of_the_rank_and_its_distance(a, rank):
    kept, distance = a.truncate(rank)
    best = torch.linalg.svdvals(meaning(a))[..., rank:].square().sum(-1).sqrt()
    same(distance, best, size(a), torch.float64)
    same((meaning(a) - meaning(kept)).norm(dim=(-1, -2)), best, size(a), torch.float64)
    assert kept.rank == min(rank, a.rank, *a.shape[-2:])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_matrix_too_large_to_form_still_answers(dtype):
    n = 200_000  # the dense matrix would have 4e10 entries
    a = LowRank(normal(0, n, 2, dtype=dtype), normal(1, 2, n, dtype=dtype))
    core = a.right.double() @ a.left.double()
    assert_close(a.trace().double(), core.trace(), rtol=0, atol=1e-5 * size(a))
    assert_close(a.eigenvalues().sum().real, core.trace(), rtol=1e-9, atol=1e-9)
    assert_close(a.singular_values().square().sum(), a.norm() ** 2)
    assert a.diagonal().shape == (n,)
    assert (a @ a.T @ a).rank == 2
    assert a.rows([3, -1]).shape == (2, n)


# ---- parts of the dense meaning ----


@given(matrices())
@pytest.mark.parametrize(
    "index", [0, -1, slice(None), slice(0, 2), [0, -1, 0], [], torch.tensor([0, 0]), torch.tensor([], dtype=torch.long)]
)
def test_rows_and_columns_are_those_of_the_matrix(index, a):
    kept = [index] if isinstance(index, int) else index
    kept = torch.tensor(kept, dtype=torch.long) if isinstance(kept, list) else kept
    same(a.rows(index), meaning(a)[..., kept, :], size(a), a.dtype)
    same(a.columns(index), meaning(a)[..., kept], size(a), a.dtype)


@given(matrices(), st.integers(0, 5), seeds)
def test_entries_are_read_at_their_row_and_column(a, k, seed):
    generator = torch.Generator().manual_seed(seed)
    rows, columns = (torch.randint(side, (k,), generator=generator) for side in a.shape[-2:])
    same(a.entries(rows, columns), meaning(a)[..., rows, columns], size(a), a.dtype)


@given(matrices(batch=st.just(())), st.integers(1, 4))
def test_blocks_cover_the_rows_once_in_order(a, step):
    starts, parts = zip(*a.blocks(step), strict=True)
    assert list(starts) == list(range(0, a.shape[0], step))
    same(torch.cat(parts), meaning(a), size(a), a.dtype)


@given(matrices(batch=st.just(())), st.integers(0, 40))
def test_largest_and_smallest_are_the_extreme_entries_with_their_places(a, k):
    dense = meaning(a)
    for found, sign in ((a.largest(k), 1), (a.smallest(k), -1)):
        expected = sign * (sign * dense).flatten().sort(descending=True).values[:k]
        same(found.values, expected, size(a), a.dtype)
        same(dense[found.rows, found.columns], expected, size(a), a.dtype, times=2)
        assert len(set(zip(found.rows.tolist(), found.columns.tolist(), strict=True))) == min(k, dense.numel())


@given(matrices(batch=st.just(()), dtype=st.just(torch.bfloat16)))
def test_bfloat16_factors_are_multiplied_in_float32_at_least(a):
    x = normal(0, a.shape[1], dtype=torch.bfloat16)
    some = torch.tensor([0])
    results = [a.dense(), a.apply(x), a.rows(0), a.entries(some, some), a.largest(1).values, (a @ a.T).trace()]
    assert {part.dtype for part in results} == {torch.float32}


# ---- errors say what is wrong ----

SQUARE, WIDE = LowRank(torch.ones(3, 1), torch.ones(1, 3)), LowRank(torch.ones(3, 1), torch.ones(1, 4))
BATCH = LowRank(torch.ones(2, 3, 1), torch.ones(2, 1, 3))


@pytest.mark.parametrize("what", ["trace", "diagonal", "eigenvalues", "core"])
def test_what_needs_a_square_matrix_says_so(what):
    with pytest.raises(ValueError, match=rf"^{what} needs a square matrix, this one is 3 × 4$"):
        getattr(WIDE, what)()
    with pytest.raises(ValueError, match=r"this one is 3 × 4$"):
        getattr(LowRank(torch.ones(2, 3, 1), torch.ones(1, 4)), what)()


@pytest.mark.parametrize("what", ["blocks", "largest"])
def test_what_reads_one_matrix_refuses_a_batch(what):
    with pytest.raises(ValueError, match=rf"^{what} reads one matrix at a time; index the batch \(2,\) first$"):
        list(getattr(BATCH, what)(1))


def test_factors_that_do_not_meet_are_refused_with_both_shapes(unchecked):
    with pytest.raises(ValueError, match=r"do not meet: left \(3, 2\), right \(1, 4\)"):
        LowRank(torch.ones(3, 2), torch.ones(1, 4))


def test_factors_of_two_dtypes_are_refused():
    with pytest.raises(ValueError, match=r"differ in dtype: left torch.float32, right torch.float64"):
        LowRank(torch.ones(3, 1), torch.ones(1, 3, dtype=torch.float64))


def test_sums_of_different_shapes_are_refused():
    with pytest.raises(ValueError, match=r"cannot add matrices of shapes \(3, 3\) and \(3, 4\)"):
        SQUARE + WIDE


def test_a_broadcast_is_no_way_to_add_one_row_to_a_matrix():
    with pytest.raises(ValueError, match="cannot add"):
        SQUARE + LowRank(torch.ones(1, 1), torch.ones(1, 3))


@pytest.mark.parametrize("matrix, index", [(SQUARE, 0), (SQUARE, (0, 1)), (BATCH, (0, 1)), (BATCH, (..., 0, 1))])
def test_an_index_into_the_matrix_axes_is_refused(matrix, index):
    with pytest.raises(IndexError, match="entries are read with"):
        matrix[index]


def test_a_negative_number_of_entries_is_refused():
    with pytest.raises(ValueError, match="must be 0 or more"):
        SQUARE.largest(-1)


def test_composing_matrices_that_do_not_meet_is_refused():
    with pytest.raises((ValueError, RuntimeError)):
        WIDE @ SQUARE


@given(matrices())
def test_the_norm_of_a_difference_with_itself_is_zero_up_to_rounding_and_never_nan(a):
    gone = (a - a).norm()
    assert gone.shape == a.shape[:-2]
    assert (gone <= 1e-6 * size(a)).all()
