"""The largest entries of every row and column, against the whole table."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pathsum.by_row import largest_by_row
from pathsum.lowrank import LowRank

SEEDS = st.integers(0, 10_000)
SHAPES = [(5, 7, 2), (3, 64, 4), (4, 65, 3), (7, 300, 2), (1, 1, 1), (6, 4, 0), (0, 3, 1), (4, 0, 2)]


def brute_force(dense: np.ndarray, k: int) -> list[list[tuple[float, int]]]:
    """Every row sorted by value and column, by a loop."""
    rows = [
        sorted(((float(value), j) for j, value in enumerate(row)), key=lambda one: (-one[0], one[1])) for row in dense
    ]
    return [row[:k] for row in rows]


def listed(values: torch.Tensor, columns: torch.Tensor) -> list[list[tuple[float, int]]]:
    return [list(zip(*row, strict=True)) for row in zip(values.tolist(), columns.tolist(), strict=True)]


@given(SEEDS, st.integers(0, 90), st.sampled_from(SHAPES), st.sampled_from([0.5, 2, 20]), st.integers(1, 2000))
def test_every_row_has_its_largest_in_order_and_ties_by_column(seed, k, shape, spread, block):
    """Whole numbers, so that many entries are equal, with zero rows among them; k beyond the columns."""
    generator = torch.Generator().manual_seed(seed)
    m, n, r = shape
    left, right = ((torch.randn(size, generator=generator) * spread).round() for size in ((m, r), (r, n)))
    blocks = list(largest_by_row(left, right, k, block))
    assert all(len(one.values) * n <= max(block, n) for one in blocks)
    assert [one.first for one in blocks] == list(np.cumsum([0, *(len(one.values) for one in blocks)])[:-1])
    found = [row for one in blocks for row in listed(one.values, one.columns)]
    assert found == brute_force(left.numpy() @ right.numpy(), k)


@given(SEEDS, st.integers(1, 6))
def test_rows_and_columns_of_a_real_table_agree_with_float64(seed, k):
    generator = torch.Generator().manual_seed(seed)
    table = LowRank(*(torch.randn(*size, generator=generator, dtype=torch.float64) for size in ((70, 5), (5, 200))))
    dense = table.dense().numpy()
    for found, whole in ((table.largest_by_row(k), dense), (table.largest_by_column(k), dense.T)):
        expected = brute_force(whole, k)
        assert found.columns.tolist() == [[j for _, j in row] for row in expected]
        np.testing.assert_allclose(found.values, [[value for value, _ in row] for row in expected], rtol=1e-12)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_factors_that_are_not_finite_are_refused(bad):
    left, right = torch.ones(3, 2), torch.ones(2, 4)
    left[1, 1] = bad
    with pytest.raises(ValueError, match="not finite"):
        next(largest_by_row(left, right, 1))


def test_products_that_overflow_are_refused():
    with pytest.raises(ValueError, match=r"overflow torch\.float32"):
        next(largest_by_row(torch.full((2, 1), 1e30), torch.full((1, 2), 1e30), 1))


def test_one_matrix_at_a_time_and_no_negative_number():
    with pytest.raises(ValueError, match=r"largest_by_row reads one matrix at a time"):
        LowRank(torch.ones(2, 3, 1), torch.ones(2, 1, 3)).largest_by_row(1)
    with pytest.raises(ValueError, match="must be 0 or more"):
        LowRank(torch.ones(3, 1), torch.ones(1, 3)).largest_by_column(-1)


@pytest.mark.parametrize(("m", "n", "k"), [(0, 5, 3), (2, 5, 4), (0, 2, 9), (3, 0, 1), (3, 2, 0)])
def test_every_shape_gives_whole_columns_of_places(m, n, k):
    found = LowRank(torch.ones(m, 1), torch.ones(1, n)).largest_by_row(k)
    assert found.first == 0
    assert found.values.shape == found.columns.shape == (m, min(k, n))
    assert found.columns.dtype == torch.long


def test_groups_that_tie_at_the_last_place_give_the_first_columns():
    """One entry in each of many groups of columns is the largest, and only one may be listed."""
    right = torch.zeros(1, 40 * 64)
    right[0, 10::64] = 1.0
    (found,) = largest_by_row(torch.ones(3, 1), right, 1)
    assert found.columns.tolist() == [[10]] * 3
    (found,) = largest_by_row(torch.ones(3, 1), right.flip(1), 2)
    assert found.columns.tolist() == [[53, 117]] * 3
