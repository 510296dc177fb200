"""Skip-trigrams are the strongest of all, whatever is left out of the tables while they are searched."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pathsum.circuits.trigrams import _Side, skip_trigrams
from pathsum.lowrank import LowRank


@st.composite
def tables(draw) -> tuple[LowRank, LowRank]:
    """A QK and an OV circuit of small whole numbers, with ties, zero rows and rows of very different length."""
    vocabulary, rank = draw(st.integers(1, 9)), draw(st.integers(1, 3))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))

    def factor(*shape: int) -> torch.Tensor:
        whole = torch.randint(-3, 4, shape, generator=generator).double()
        return whole * 4.0 ** torch.randint(-2, 3, (shape[0], 1), generator=generator)

    return tuple(LowRank(factor(vocabulary, rank), factor(vocabulary, rank).mT) for _ in range(2))


def brute(qk: LowRank, ov: LowRank, count: int, per_source: int, sources: list[int], tokens: list[int]) -> list[float]:
    """Every product of two positive entries; at most `per_source` of a source."""
    scores, logits = qk.dense().tolist(), ov.dense().tolist()
    best = []
    for s in sources:
        products = [scores[d][s] * logits[o][s] for d in tokens for o in tokens if scores[d][s] > 0 < logits[o][s]]
        best += sorted(products, reverse=True)[:per_source]
    return sorted(best, reverse=True)[:count]


@given(tables(), st.integers(1, 30), st.integers(1, 100), st.integers(1, 4), st.data())
@settings(deadline=None, max_examples=200)
def test_skip_trigrams_are_the_strongest_of_those_that_are_let_in(pair, count, per_source, block, data):
    qk, ov = pair
    ids = st.lists(st.integers(0, qk.shape[0] - 1), min_size=1, max_size=9, unique=True)
    sources, tokens = data.draw(ids), data.draw(ids)
    found = skip_trigrams(qk, ov, count, per_source, block, torch.tensor(sources), torch.tensor(tokens))
    assert found.effect.tolist() == pytest.approx(brute(qk, ov, count, per_source, sources, tokens), rel=1e-9)
    assert found.qk.tolist() == pytest.approx(qk.entries(found.destination, found.source).tolist(), rel=1e-9)
    assert found.ov.tolist() == pytest.approx(ov.entries(found.out, found.source).tolist(), rel=1e-9)
    assert set(found.source.tolist()) <= set(sources)
    assert {*found.destination.tolist(), *found.out.tolist()} <= set(tokens)
    triples = list(zip(found.source.tolist(), found.destination.tolist(), found.out.tolist(), strict=True))
    assert len(set(triples)) == len(triples)


def test_a_small_block_of_a_large_table_finds_the_same():
    generator = torch.Generator().manual_seed(0)
    factors = [torch.randn(700, 6, generator=generator) * torch.rand(700, 1, generator=generator) for _ in range(4)]
    qk, ov = LowRank(factors[0], factors[1].mT), LowRank(factors[2], factors[3].mT)
    whole, parts = (skip_trigrams(qk, ov, 40, 3, block) for block in (700, 16))
    assert torch.equal(whole.source, parts.source) and torch.equal(whole.out, parts.out)
    assert torch.equal(whole.destination, parts.destination)


def test_whole_columns_are_made_of_few_sources(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    size, made, top = 3000, [], _Side.top
    lengths = torch.logspace(0, -2, size)[torch.randperm(size, generator=generator)][:, None]
    factors = [torch.randn(size, 8, generator=generator) * lengths for _ in range(4)]
    qk, ov = LowRank(factors[0], factors[1].mT), LowRank(factors[2], factors[3].mT)
    monkeypatch.setattr(_Side, "top", lambda side, columns, most: made.append(len(columns)) or top(side, columns, most))
    found = skip_trigrams(qk, ov, 10, block=50)
    assert sum(made) < 2 * 65  # both tables; the first block is made whole, nothing is known then
    products = qk.dense().amax(0) * ov.dense().amax(0)
    assert found.effect.tolist() == pytest.approx(products.topk(10).values.tolist())
