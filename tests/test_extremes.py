"""The largest entries of a product, against the whole table."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pathsum.extremes import Entries, balanced_lengths, largest_entries, search

SEEDS = st.integers(0, 10_000)


def factors(seed: int, m: int = 90, n: int = 70, r: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows and columns of very different lengths in ill-conditioned coordinates, so that most blocks are skipped."""
    generator = torch.Generator().manual_seed(seed)
    normal = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)
    M = normal(r, r) * 10.0 ** -torch.arange(r)
    return normal(m, r) * normal(m, 1) ** 3 @ M, torch.linalg.solve(M, normal(r, n) * normal(1, n) ** 3)


def listed(found: Entries) -> list[tuple[float, int, int]]:
    return list(zip(*(part.tolist() for part in found), strict=True))


def brute_force(left: torch.Tensor, right: torch.Tensor, k: int) -> list[tuple[float, int, int]]:
    """Every entry by a loop, sorted by value, row and column."""
    dense = left.double().numpy() @ right.double().numpy()
    every = [(float(value), i, j) for (i, j), value in np.ndenumerate(dense)]
    return sorted(every, key=lambda one: (-one[0], one[1], one[2]))[:k]


@given(SEEDS, st.integers(1, 60), st.integers(1, 9))
def test_none_of_the_largest_is_missed_whatever_is_skipped(seed, k, most_rows):
    left, right = factors(seed)
    found, visited = search(left, right, k, most_rows)
    expected = brute_force(left, right, k)
    assert [place for _, *place in listed(found)] == [place for _, *place in expected]
    np.testing.assert_allclose(found.values, [value for value, *_ in expected], rtol=1e-9)
    assert visited < 90 * 70


@given(SEEDS, st.integers(1, 60), st.integers(1, 9))
def test_float32_factors_are_searched_for_the_values_of_float64(seed, k, most_rows):
    """Every value is the inner product in float64, rounded once; none beyond rounding of the k-th is missed."""
    left, right = (part.float() for part in factors(seed))
    found, _ = search(left, right, k, most_rows)
    dense = (left.double() @ right.double()).float()
    assert torch.equal(found.values, dense.flatten().sort(descending=True).values[:k])
    assert torch.equal(found.values, dense[found.rows, found.columns])


SHAPES = [(5, 5, 2), (1, 7, 3), (6, 4, 0), (0, 3, 1), (4, 0, 2), (0, 0, 0), (9, 8, 1), (3, 11, 4)]


@given(SEEDS, st.integers(0, 120), st.integers(1, 6), st.sampled_from(SHAPES), st.sampled_from([2, 0.5, 5]))
def test_ties_are_broken_by_row_and_then_by_column(seed, k, most_rows, shape, spread):
    """Whole numbers, so that many entries are equal, with zero and repeated rows among them; k beyond the table."""
    generator = torch.Generator().manual_seed(seed)
    m, n, r = shape
    left, right = ((torch.randn(size, generator=generator) * spread).round() for size in ((m, r), (r, n)))
    found, _ = search(left, right, k, most_rows)
    assert listed(found) == brute_force(left, right, k)


def test_a_tie_wider_than_a_tile_is_cut_at_its_first_places():
    found, visited = search(torch.ones(1500, 1), torch.ones(1, 1500), 3)
    assert listed(found) == [(1.0, 0, 0), (1.0, 0, 1), (1.0, 0, 2)]
    assert visited == 1500 * 1500


@pytest.mark.parametrize("side", [0, 1, "both"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_side_of_zeros_is_a_table_of_zeros_in_order(side, dtype):
    left, right = (part.to(dtype) for part in factors(1))
    for one, part in enumerate((left, right)):
        if side in (one, "both"):
            part.zero_()
    assert listed(largest_entries(left, right, 75)) == [(0.0, place // 70, place % 70) for place in range(75)]


def test_zero_rows_and_columns_have_entries_zero_that_come_before_negative_ones():
    left, right = torch.tensor([[-1.0], [0.0], [2.0]]), torch.tensor([[1.0, 0.0]])
    expected = [(2.0, 2, 0), (0.0, 0, 1), (0.0, 1, 0), (0.0, 1, 1), (0.0, 2, 1), (-1.0, 0, 0)]
    assert listed(largest_entries(left, right, 99)) == expected
    assert listed(largest_entries(left, right, 3)) == expected[:3]


@pytest.mark.parametrize("size", [2.0**-100, 2.0**-66, 1.0, 2.0**50])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_entries_of_any_size_are_told_from_zeros(size, dtype):
    """Rows of 2⁻²⁰, 2⁻⁴⁰, … of the longest, down to what the dtype can hold, all columns, one row of zeros."""
    left = torch.tensor([1.0, 2.0**-20, 0.0, 2.0**-40, 2.0**-80, 2.0**-100], dtype=dtype)[:, None] * torch.ones(
        1, 2, dtype=dtype
    )
    right = torch.tensor([[1.0, -1.0], [1.0, -0.5]], dtype=dtype) * torch.tensor(size, dtype=dtype)
    found = largest_entries(left, right, 12)
    rounded = [
        (torch.tensor(value, dtype=torch.float64).to(dtype).item(), *place)
        for value, *place in brute_force(left, right, 12)
    ]
    assert listed(found) == sorted(rounded, key=lambda one: (-one[0], one[1], one[2]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("powers", [(-60, 60), (-40, -40), (62, 62), (3, 2)])
def test_powers_of_two_change_neither_the_places_nor_what_is_visited(powers, dtype):
    left, right = (part.to(dtype) / part.abs().amax().to(dtype) for part in factors(0))
    found, visited = search(left, right, 20, most_rows=4)
    scaled, again = search(left * 2.0 ** powers[0], right * 2.0 ** powers[1], 20, most_rows=4)
    assert torch.equal(scaled.values, found.values * 2.0 ** sum(powers)) and again == visited
    assert torch.equal(scaled.rows, found.rows) and torch.equal(scaled.columns, found.columns)


@given(SEEDS, st.integers(1, 40))
def test_factors_too_ill_conditioned_for_their_dtype_are_balanced_in_float64(seed, k):
    """A long direction that the other side nearly cancels: float32 would be off by more than the entries."""
    generator = torch.Generator().manual_seed(seed)
    left = torch.randn(60, 3, generator=generator) + 3e4 * torch.randn(60, 1, generator=generator)
    right = torch.randn(3, 50, generator=generator)
    right = right - right.mean(0)
    dense = (left.double() @ right.double()).float()
    found = largest_entries(left, right, k)
    assert torch.equal(found.values, dense.flatten().sort(descending=True).values[:k])
    assert torch.equal(found.values, dense[found.rows, found.columns])


def test_entries_beyond_the_range_of_their_dtype_are_refused():
    left, right = torch.full((2, 1), 1e30), torch.full((1, 2), 1e30)
    with pytest.raises(ValueError, match=r"overflow torch\.float32"):
        largest_entries(left, right, 1)
    assert largest_entries(left.double(), right.double(), 1).values.item() == pytest.approx(1e60)


@given(SEEDS, st.sampled_from([1.0, 1e-30, 1e30]))
def test_no_entry_is_longer_than_its_row_and_column(seed, scale):
    left, right = factors(seed)
    left[3], right[:, 4] = 0, 0
    heights, widths = balanced_lengths((left * scale).float(), right.float())
    dense = (left * scale).float().double() @ right.float().double()
    assert (dense.abs() <= heights[:, None] * widths * (1 + 1e-9) + 1e-300).all()


@given(SEEDS)
def test_both_sides_are_balanced(seed):
    left, right = factors(seed, r=2)
    heights, widths = balanced_lengths(left, right)
    singular = torch.linalg.svdvals(left @ right).sum()
    assert (heights.shape, widths.shape) == ((90,), (70,))
    torch.testing.assert_close(heights.square().sum(), singular, rtol=1e-6, atol=0)
    torch.testing.assert_close(widths.square().sum(), singular, rtol=1e-6, atol=0)


def test_a_side_of_lower_rank_keeps_its_bound():
    """What one side says in directions that the other does not have counts for nothing."""
    left, right = factors(0)
    left[:, 3:] = 0
    heights, widths = balanced_lengths(left, right)
    assert ((left @ right).abs() <= heights[:, None] * widths * (1 + 1e-9)).all()
    singular = torch.linalg.svdvals(left @ right).sum()
    assert heights.norm() * widths.norm() < 1.05 * singular


def test_most_of_a_table_is_never_looked_at():
    """One row and one column stand out; the others are not multiplied with each other."""
    left, right = torch.full((4000, 2), 1e-3), torch.full((2, 4000), 1e-3)
    left[17], right[:, 23] = 1.0, 1.0
    found, visited = search(left, right, 1, most_rows=8)
    assert listed(found) == [(2.0, 17, 23)]
    assert 0 < visited < 4000 * 4000 / 100


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_factors_that_are_not_finite_are_refused(bad):
    left, right = factors(0)
    right[2, 3] = bad
    with pytest.raises(ValueError, match="not finite"):
        largest_entries(left, right, 3)
