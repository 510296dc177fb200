"""Gram matrices of many heads at once: products of all pairs against dense ones, sharing, memory, and rounding."""

import pytest
import torch

from cases import BY_NAME, agree
from pathsum.circuits import composition, gram, stream
from pathsum.circuits.composition import gram_pairs
from pathsum.circuits.cut import compositions
from pathsum.circuits.gram import column_gram, gram_products, product_spectrum, row_gram, strips, thin, wide
from pathsum.errors import ExpansionTooLarge

F64 = torch.float64


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)), dtype=F64)


def heads(near: torch.Tensor, core: torch.Tensor, dtype=F64) -> gram.Thin:
    return thin(near, core, product_spectrum(core, row_gram(near)), dtype)


def held(matrices: list[torch.Tensor], dtype=F64) -> gram.Wide:
    return wide(matrices, lambda index: matrices[index], dtype)


def dense(one: gram.Gram) -> torch.Tensor:
    """Every matrix, spelt out."""
    found = []
    for index in range(len(one)):
        X, C = one.factors(index)
        found.append(X.mT @ X if C is None else X.mT @ C @ X)
    return torch.stack(found)


def sides(d: int = 11, dtype=F64):
    readers = [
        heads(normal(2, 3, d), row_gram(normal(4, 3, 5)), dtype),
        heads(normal(3, 3, d), row_gram(normal(3, 3, 5)), dtype),
        held([normal(20, d), normal(4, d)], dtype),
    ]
    writers = [held([normal(17, d)], dtype), heads(normal(2, 4, d), row_gram(normal(2, 4, 2)), dtype)]
    return readers, writers


@pytest.mark.parametrize(("rows", "strip", "buffer"), [(64, 96, 10**7), (4, 1, 1), (1, 5, 100), (11, 2, 400)])
def test_all_pairs_of_thin_and_wide_matrices_are_the_dense_ones(rows, strip, buffer, monkeypatch):
    monkeypatch.setattr(gram, "ROWS", rows)
    monkeypatch.setattr(gram, "STRIP", strip)
    readers, writers = sides()
    found = gram_products(readers, [1, 1, 3], writers, 11, buffer)
    theirs = torch.einsum("aij,bij->ab", torch.cat(list(map(dense, readers))), torch.cat(list(map(dense, writers))))
    agree(found[:, :1], theirs[:, :1])
    agree(found[7:], theirs[7:])


def test_spectra_and_traces_are_those_of_the_dense_matrices():
    for one in [each for side in sides() for each in side]:
        full = dense(one)
        exact = torch.linalg.eigvalsh(full).flip(-1)
        k = min(exact.shape[-1], one.spectrum.shape[-1])
        agree(one.spectrum[:, :k], exact[:, :k].clamp_min(0))
        first, second = one.traces
        agree(first, full.diagonal(dim1=-2, dim2=-1).sum(-1))
        agree(second, (full @ full).diagonal(dim1=-2, dim2=-1).sum(-1))


def test_spectra_of_singular_factors_are_found_too():
    core = row_gram(normal(3, 6, 2))
    core[1] = 0
    near = normal(3, 6, 9)
    one = heads(near, core)
    agree(one.spectrum, torch.linalg.eigvalsh(dense(one)).flip(-1)[:, :6].clamp_min(0), 1e-12)
    assert (one.spectrum[1] == 0).all()


def test_a_wide_gram_matrix_is_summed_in_chunks_of_rows(monkeypatch):
    monkeypatch.setattr(gram, "CHUNK", 7)
    matrix = normal(40, 13)
    agree(column_gram(matrix), matrix.mT @ matrix)


def test_strips_take_what_their_last_readers_take_and_every_reader_is_in_one(monkeypatch):
    monkeypatch.setattr(gram, "STRIP", 5)
    assert strips([2, 2, 2, 6, 1], [1, 3, 4, 7, 9]) == [(slice(0, 3), 4), (slice(3, 4), 7), (slice(4, 5), 9)]


def test_heads_of_a_group_share_their_factors():
    folded = BY_NAME["multi_query"].folded
    part = stream.parts(folded, deltas=(1,))[0].load()
    near = {site.kind: one.near.shape[0] for site, one in part.readers}
    assert near == {"Q": 4, "K": 1, "V": 1}
    assert {len(one) for _, one in part.readers} == {4}


@pytest.mark.parametrize("memory", [100, 6000])
def test_too_little_memory_for_two_layers_is_refused_with_the_bound(memory):
    with pytest.raises(ExpansionTooLarge, match="raise memory="):
        list(compositions(BY_NAME["three_layers_alibi"].folded, dtype=F64, memory=memory))


def test_memory_decides_how_many_layers_are_held(monkeypatch):
    case, most = BY_NAME["three_layers_alibi"], []
    plain = composition.gram_products

    def watched(readers, limits, writers, *rest):
        most.append(sum(map(len, readers)))
        return plain(readers, limits, writers, *rest)

    monkeypatch.setattr(composition, "gram_products", watched)
    list(compositions(case.folded, dtype=F64, memory=6200))
    assert most == [9, 9, 9]  # two layers with the first, and the third with the second: one by one
    most.clear()
    list(compositions(case.folded, dtype=F64))
    assert most == [18]


# ---- rounding ----


def loud(d: int, dtype, low: bool) -> gram.Thin:
    """Heads nearly of rank one, in one half of a rotated space: their Gram form is as noisy as it can be."""
    Q = torch.linalg.qr(normal(d, d)).Q
    near = normal(6, 8, d // 2, seed=int(low)) * torch.logspace(0, -6, 8, dtype=F64)[:, None]
    near = (near @ (Q[: d // 2] if low else Q[d // 2 :])).float().to(F64)
    return heads(near, torch.eye(8, dtype=F64).expand(6, 8, 8).contiguous(), dtype)


@pytest.mark.parametrize("d", [64, 768])
def test_orthogonal_heads_score_zero_in_float32(d, monkeypatch):
    reader, writer = loud(d, torch.float32, True), loud(d, torch.float32, False)
    pairs = gram_pairs([reader], [6], [writer], d)
    assert (pairs.score <= 1e-5 * pairs.baseline).all()
    assert (pairs.z < 0).all()
    monkeypatch.setattr(composition, "NOISE", 0.0)
    assert (gram_pairs([reader], [6], [writer], d).score > 1e-4 * pairs.baseline).any()


def test_measuring_again_replaces_the_pairs_that_are_marked_and_no_others():
    readers, writers = sides()
    every = torch.einsum("aij,bij->ab", *(torch.cat(list(map(dense, side))) for side in (readers, writers)))
    where = torch.rand(every.shape, generator=torch.Generator().manual_seed(0)) < 0.5
    found = composition.measured_again(torch.zeros_like(every), where, readers, writers)
    agree(found, every * where)


def test_pairs_are_measured_again_where_a_score_could_be_off_by_more_than_a_share_of_the_baseline(monkeypatch):
    """The square's error is at most ε: the score's is ε / (2 √square ‖R‖‖W‖). Of heads that leak into each other."""
    d, marked = 64, []
    low, high = (loud(d, F64, half).near for half in (True, False))
    leaks = torch.logspace(-2, -5, 150, dtype=F64)[:, None, None]
    core = torch.eye(8, dtype=F64)
    readers = heads((3 * (low[:1] + leaks * high[:1])), core.expand(150, 8, 8).contiguous(), torch.float32)
    writers = heads(high[:1], core[None], torch.float32)
    plain = composition.measured_again

    def watched(squares, where, *sides):
        marked.append(where)
        return plain(squares, where, *sides)

    monkeypatch.setattr(composition, "measured_again", watched)
    pairs = gram_pairs([readers], [1], [writers], d)
    A, B = dense(readers), dense(writers)
    square = (A * B).sum((-1, -2))
    error = composition.NOISE * torch.finfo(torch.float32).eps * A.flatten(1).norm(dim=1) * B.norm()
    size = (A.diagonal(dim1=-2, dim2=-1).sum(-1) * B[0].trace()).sqrt()
    off = torch.maximum(error / square, error / (2 * square.sqrt() * size) / (composition.SHARP * pairs.baseline))
    sure = (off - 1).abs() > 0.02
    assert torch.equal(marked[0][sure, 0], (off > 1)[sure])
    assert 20 < (off > 1).sum() < 130 and sure.sum() > 140
    agree(pairs.score[:, 0], square.sqrt() / size, 1e-2)


def test_orthogonal_wide_matrices_score_zero_in_float32():
    d = 64
    Q = torch.linalg.qr(normal(d, d)).Q
    tall = [(normal(100, d // 2, seed=s) * torch.logspace(0, -6, d // 2, dtype=F64)) @ half for s, half in
            enumerate((Q[: d // 2], Q[d // 2 :]))]  # fmt: skip
    reader, writer = (held([one.float()], torch.float32) for one in tall)
    for left, right in (
        (reader, writer),
        (loud(d, torch.float32, True), writer),
        (reader, loud(d, torch.float32, False)),
    ):
        assert (gram_pairs([left], [len(right)], [right], d).score <= 1e-3 * d**-0.5).all()


@pytest.mark.parametrize("d", [96, 768])
def test_float32_is_as_near_float64_as_the_docs_say(d):
    near, other = (normal(8, 16, d, seed=s).float().to(F64) for s in (1, 2))
    core = row_gram(normal(8, 16, 32)).float().to(F64)
    high, low = (gram_pairs([heads(near, core, t)], [8], [heads(other, core, t)], d) for t in (F64, torch.float32))
    assert (low.score - high.score).abs().max() < 1e-6 * high.baseline
    assert (low.z - high.z).abs().max() < 1e-4
    agree(low.ceiling, high.ceiling)


@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma3"])
def test_all_pairs_of_a_model_in_float32(name):
    folded = BY_NAME[name].folded
    high, low = (list(compositions(folded, deltas=(2,), dtype=t)) for t in (F64, torch.float32))
    for one, other in zip(high, low, strict=True):
        assert one.reader == other.reader and one.writer == other.writer
        assert (one.pairs.score - other.pairs.score).abs().max() < 1e-5 * one.pairs.baseline
