"""The largest entries of a product, against the whole table."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pathsum.extremes import balanced_lengths, largest_entries

SEEDS = st.integers(0, 10_000)


def factors(seed: int, m: int = 90, n: int = 70, r: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows and columns of very different lengths in ill-conditioned coordinates, so that most blocks are skipped."""
    generator = torch.Generator().manual_seed(seed)
    normal = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)
    M = normal(r, r) * 10.0 ** -torch.arange(r)
    return normal(m, r) * normal(m, 1) ** 3 @ M, torch.linalg.solve(M, normal(r, n) * normal(1, n) ** 3)


@given(SEEDS, st.integers(1, 60), st.integers(1, 9))
def test_none_of_the_largest_is_missed_whatever_is_skipped(seed, k, most_rows):
    left, right = factors(seed)
    dense = left @ right
    found = largest_entries(left, right, k, most_rows)
    torch.testing.assert_close(found.values, dense.flatten().sort(descending=True).values[:k], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(dense[found.rows, found.columns], found.values, rtol=1e-9, atol=1e-9)


@given(SEEDS, st.integers(0, 30), st.integers(1, 6), st.sampled_from([(5, 5, 2), (1, 7, 3), (6, 4, 0), (0, 3, 1)]))
def test_entries_that_tie_are_each_listed_once_in_order(seed, k, most_rows, shape):
    """Integers, so that many are equal, with zero and repeated rows among them."""
    generator = torch.Generator().manual_seed(seed)
    m, n, r = shape
    left, right = (torch.randint(-1, 2, size, generator=generator).float() for size in ((m, r), (r, n)))
    found = largest_entries(left, right, k, most_rows)
    dense = left @ right
    assert torch.equal(found.values, dense.flatten().sort(descending=True).values[:k])
    assert torch.equal(dense[found.rows, found.columns], found.values)
    listed = list(zip((-found.values).tolist(), found.rows.tolist(), found.columns.tolist(), strict=True))
    assert listed == sorted(set(listed))


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
    seen = 0

    class Counted(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            nonlocal seen
            out = super().__torch_function__(func, types, args, kwargs or {})
            seen += out.numel() if func is torch.Tensor.matmul else 0
            return out

    found = largest_entries(left.as_subclass(Counted), right, 1, most_rows=8)
    assert (int(found.rows), int(found.columns), float(found.values)) == (17, 23, 2.0)
    assert 0 < seen < 4000 * 4000 / 100


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_factors_that_are_not_finite_are_refused(bad):
    left, right = factors(0)
    right[2, 3] = bad
    with pytest.raises(ValueError, match="not finite"):
        largest_entries(left, right, 3)
