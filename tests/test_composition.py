"""Composition: true order of the product, exact null moments, ceilings; and the wrong formulas that must not pass."""

import math
from itertools import product

import numpy as np
import pytest
import torch

import oracle
from cases import BY_NAME, CASES, agree
from pathsum.circuits import gram, rotation
from pathsum.circuits.composition import (
    composition_pairs,
    cyclic_score,
    layer_composition,
    null_moments,
    reader_matrices,
    sampled_baseline,
)
from pathsum.circuits.cut import compositions
from pathsum.circuits.stream import KINDS, distances
from pathsum.circuits.tables import layer_OV
from pathsum.errors import NotApplicable
from pathsum.lowrank import LowRank
from pathsum.weights.positions import Rotary

DEEP = [case for case in CASES if case.spec.n_layers >= 2]
EVERY_DEEP_CASE = pytest.mark.parametrize("case", DEEP, ids=repr)


def rotary(case, layer) -> bool:
    return isinstance(case.spec.layers[layer].positions, Rotary)


@EVERY_DEEP_CASE
@pytest.mark.parametrize("kind", KINDS)
def test_score_ceiling_and_z_are_the_oracles(case, kind):
    later, earlier, delta = case.spec.n_layers - 1, 0, 2
    pairs = layer_composition(case.folded, kind, later, earlier, delta)
    for d in range(case.spec.n_heads):
        for s in range(case.spec.n_heads):
            theirs = oracle.composition(case.spec, case.arrays, kind, (earlier, s), (later, d), delta)
            assert pairs.score[d, s].item() == pytest.approx(theirs.score, rel=1e-10)
            assert pairs.ceiling[d, s].item() == pytest.approx(theirs.ceiling, rel=1e-10)
            assert pairs.z[d, s].item() == pytest.approx(theirs.z, rel=1e-8)
    assert pairs.baseline == pytest.approx(case.spec.d_model**-0.5)


@pytest.mark.parametrize(("rows", "buffer", "strip"), [(1, 1, 1), (3, 10**9, 2), (3, 200, 100), (64, 700, 1)])
def test_tiles_and_strips_change_nothing(rows, buffer, strip, monkeypatch):
    case = BY_NAME["three_layers_alibi"]
    whole = {(r, w): pairs for r, w, pairs in compositions(case.folded, dtype=torch.float64)}
    assert len(whole) == 9
    monkeypatch.setattr(gram, "ROWS", rows)
    monkeypatch.setattr(gram, "STRIP", strip)
    for reader, writer, pairs in compositions(case.folded, dtype=torch.float64, memory=8 * buffer + 10**6):
        agree(pairs.score, whole[reader, writer].score)
        agree(pairs.z, whole[reader, writer].z, 1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_low_precision_weights_are_composed_in_float64(dtype):
    case = BY_NAME["gpt2"]
    low = case.folded.to(dtype).load()
    high = low.to(torch.float64).load()
    for kind in KINDS:
        mine, theirs = (layer_composition(weights, kind, 1, 0) for weights in (low, high))
        assert mine.score.dtype == torch.float64
        agree(mine.score, theirs.score)
        agree(mine.z, theirs.z, 1e-9)
        agree(cyclic_score(low, kind, 1, 0), cyclic_score(high, kind, 1, 0))


def test_matrices_of_low_precision_are_composed_in_float64():
    readers, writers = layer_OV(BY_NAME["gpt2"].folded, 1), layer_OV(BY_NAME["gpt2"].folded, 0)
    low = [one.to(torch.float32) for one in (readers, writers)]
    found, exact = composition_pairs(*low), composition_pairs(*(one.to(torch.float64) for one in low))
    agree(found.score, exact.score, 0)
    agree(found.z, exact.z, 0)


def test_null_moments_are_those_of_sampled_rotations():
    generator = torch.Generator().manual_seed(0)
    d, n = 8, 20_000
    X, Y = (torch.randn(d, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    A, B = X @ torch.diag(torch.tensor([3.0, 1.0, 0.2]).double()) @ X.T, Y @ Y.T
    gaussian = torch.randn(n, d, d, generator=generator, dtype=torch.float64)
    Q, R = torch.linalg.qr(gaussian)
    Q = Q * R.diagonal(dim1=-2, dim2=-1).sign()[:, None, :]
    sampled = (A @ Q @ B @ Q.mT).diagonal(dim1=-2, dim2=-1).sum(-1)
    traces = [torch.trace(M) for M in (A, A @ A, B, B @ B)]
    mean, variance = null_moments(*traces, d)
    assert sampled.mean().item() == pytest.approx(mean.item(), abs=4 * (variance / n).sqrt().item())
    assert sampled.var().item() == pytest.approx(variance.item(), rel=0.05)


def test_null_moments_are_exact_in_two_dimensions():
    """All of O(2): rotations and reflections at evenly spaced angles integrate trigonometric polynomials exactly."""
    A, B = (M @ M.T for M in torch.randn(2, 2, 2, dtype=torch.float64))
    angle = torch.arange(64, dtype=torch.float64) * 2 * math.pi / 64
    cos, sin = angle.cos(), angle.sin()
    turns = torch.stack([torch.stack([cos, -sin], -1), torch.stack([sin, cos], -1)], -2)
    Q = torch.cat([turns, turns @ torch.diag(torch.tensor([1.0, -1.0], dtype=torch.float64))])
    values = (A @ Q @ B @ Q.mT).diagonal(dim1=-2, dim2=-1).sum(-1)
    mean, variance = null_moments(*[torch.trace(M) for M in (A, A @ A, B, B @ B)], 2)
    assert values.mean().item() == pytest.approx(mean.item(), rel=1e-12)
    assert values.var(correction=0).item() == pytest.approx(variance.item(), rel=1e-10)


def test_the_baseline_is_the_root_mean_square_over_random_rotations():
    generator = torch.Generator().manual_seed(1)
    d, n = 16, 4000
    reader = LowRank(*(torch.randn(s, generator=generator, dtype=torch.float64) for s in ((d, 3), (3, d))))
    writer = LowRank(*(torch.randn(s, generator=generator, dtype=torch.float64) for s in ((n, d, 2), (n, 2, d))))
    Q = torch.linalg.qr(torch.randn(n, d, d, generator=generator, dtype=torch.float64)).Q
    rotated = LowRank(Q @ writer.left[0], (writer.right[0] @ Q.mT))
    scores = composition_pairs(reader, rotated).score
    assert scores.square().mean().sqrt().item() == pytest.approx(d**-0.5, rel=0.03)


def test_the_sampled_baseline_lies_a_little_below_and_is_seeded():
    mean, error = sampled_baseline(64, 8, samples=200)
    assert (mean, error) == sampled_baseline(64, 8, samples=200)
    assert mean < 64**-0.5
    assert mean == pytest.approx(64**-0.5, abs=0.01)
    assert 0 < error < 0.01
    errors = [sampled_baseline(64, 8, samples)[1] for samples in (200, 3200)]
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.1)  # a standard error falls as 1/√samples


def test_no_rotation_beats_the_ceiling_and_aligned_matrices_reach_it():
    case = BY_NAME["gpt2"]
    writers = layer_OV(case.folded, 0)
    aligned = composition_pairs(LowRank(writers.right.mT, writers.left.mT), writers)
    assert (aligned.score <= aligned.ceiling + 1e-12).all()
    s = writers.singular_values().square()
    agree(aligned.score.diagonal(), s.square().sum(-1).sqrt() / s.sum(-1))
    agree(aligned.ceiling.diagonal(), aligned.score.diagonal())


def test_heads_that_avoid_each_other_score_below_the_baseline_with_negative_z():
    eye = torch.eye(8, dtype=torch.float64)
    reader = LowRank(eye[None, :, :2], eye[None, :2])
    writer = LowRank(eye[None, :, 4:], eye[None, 4:])
    pairs = composition_pairs(reader, writer)
    assert pairs.score.item() == 0.0
    assert pairs.z.item() < -2


def test_z_is_nan_where_no_rotation_changes_anything():
    eye = torch.eye(6, dtype=torch.float64)[None]
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(5, *size, generator=generator, dtype=torch.float64) for size in ((6, 2), (2, 6)))
    even, heads = LowRank(eye, eye), LowRank(left, right)
    for readers, writers in ((even, even), (even, heads), (heads, even)):
        assert composition_pairs(readers, writers).z.isnan().all()
    assert composition_pairs(heads, heads).z.isfinite().all()


def test_earlier_or_equal_layers_do_not_read_later_ones():
    with pytest.raises(NotApplicable, match="earlier writer"):
        layer_composition(BY_NAME["gpt2"].folded, "K", 1, 1)


# ---- rotary ----


def test_rotary_q_and_k_need_a_distance_and_v_does_not():
    folded = BY_NAME["llama"].folded
    assert layer_composition(folded, "Q", 1, 0) is None
    assert layer_composition(folded, "K", 1, 0) is None
    assert layer_composition(folded, "V", 1, 0) is not None


ROTARY = [case for case in DEEP if rotary(case, case.spec.n_layers - 1)]


def oracle_over(case, kind, source, destination, deltas):
    """The readers at all distances, each over its norm, on top of each other: one reader whose Gram is their mean."""
    readers = [oracle.reader(case.spec, case.arrays, kind, *destination, delta) for delta in deltas]
    tall = np.vstack([X / np.linalg.norm(X) for X in readers]) / math.sqrt(len(readers))
    return oracle.interaction(tall, oracle.dense_OV(case.spec, case.arrays, *source))


@pytest.mark.parametrize("case", ROTARY, ids=repr)
@pytest.mark.parametrize("kind", ["Q", "K"])
@pytest.mark.parametrize("delta", [(0, 1, 5), (2.5, -3, 40, 40), "rms"], ids=str)
def test_over_several_distances_the_score_is_the_root_mean_square(case, kind, delta):
    later, n_heads = case.spec.n_layers - 1, range(case.spec.n_heads)
    deltas = range(case.spec.n_ctx) if delta == "rms" else delta
    pairs = layer_composition(case.folded, kind, later, 0, delta)
    for d, s in product(n_heads, n_heads):
        each = [oracle.composition(case.spec, case.arrays, kind, (0, s), (later, d), x).score for x in deltas]
        assert pairs.score[d, s].item() == pytest.approx(math.sqrt(np.mean(np.square(each))), rel=1e-12)
        together = oracle_over(case, kind, (0, s), (later, d), deltas)
        assert pairs.ceiling[d, s].item() == pytest.approx(together.ceiling, rel=1e-10)
        assert pairs.z[d, s].item() == pytest.approx(together.z, rel=1e-8)


def test_one_distance_in_a_list_is_that_distance():
    case = BY_NAME["llama"]
    one, listed = (layer_composition(case.folded, "K", 1, 0, delta) for delta in (3, [3]))
    agree(one.score, listed.score, 0)
    agree(one.z, listed.z, 0)


def test_distances_are_streamed_in_blocks_that_change_nothing(monkeypatch):
    case = BY_NAME["multi_query"]
    whole = layer_composition(case.folded, "Q", 1, 0, range(50))
    monkeypatch.setattr(rotation, "BLOCK", 7)
    agree(layer_composition(case.folded, "Q", 1, 0, range(50)).score, whole.score)


def test_a_head_without_queries_has_no_score_over_several_distances():
    case = BY_NAME["llama"]
    silent = case.tensors["L1.W_Q"].clone()
    silent[2] = 0
    pairs = layer_composition(case.with_tensors(**{"L1.W_Q": silent}).folded, "K", 1, 0, "rms")
    assert pairs.score[2].isnan().all() and pairs.z[2].isnan().all()
    assert pairs.score[[0, 1, 3]].isfinite().all()


@pytest.mark.parametrize("delta", ["mean", [], [1, "x"], [math.nan], math.inf, "12"])
def test_what_is_no_distance_is_refused(delta, unchecked):
    with pytest.raises(NotApplicable, match="may be a number, several, or 'rms'"):
        layer_composition(BY_NAME["llama"].folded, "K", 1, 0, delta)


@pytest.mark.parametrize("memory", [6200, 10**9])
@pytest.mark.parametrize("name", ["three_layers_rotary_rms", "query_norm_alone", "three_layers_alibi"])
@pytest.mark.parametrize("delta", [None, 2, "rms"])
def test_all_layers_at_once_are_the_layers_one_by_one(memory, name, delta):
    folded = BY_NAME[name].folded
    every = list(compositions(folded, deltas=[delta], dtype=torch.float64, memory=memory))
    for kind in KINDS:
        found = {(r.layer, w.layer): pairs for r, w, pairs in every if r.kind == kind}
        assert sorted(found) == [(b, a) for b in range(folded.spec.n_layers) for a in range(b)]
        for at, pairs in found.items():
            alone = layer_composition(folded, kind, *at, delta)
            assert (pairs is None) == (alone is None)
            if alone is not None:
                agree(pairs.score, alone.score)
                agree(pairs.ceiling, alone.ceiling)
                agree(pairs.z, alone.z, 1e-9)


# ---- the erratum ----


@pytest.mark.parametrize("kind", KINDS)
def test_the_cyclic_score_is_the_papers_mistake_and_differs(kind):
    case = BY_NAME["two_layers_sinusoidal"]
    found = cyclic_score(case.folded, kind, 1, 0)
    for d in range(case.spec.n_heads):
        for s in range(case.spec.n_heads):
            theirs = oracle.erratum_score(case.spec, case.arrays, kind, (0, s), (1, d))
            assert found[d, s].item() == pytest.approx(theirs, rel=1e-10)
    assert (found - layer_composition(case.folded, kind, 1, 0).score).abs().max() > 1e-2


@pytest.mark.parametrize("kind", ["Q", "K"])
def test_the_cyclic_score_of_a_rotary_layer_is_of_one_distance(kind):
    case = BY_NAME["llama"]
    found = cyclic_score(case.folded, kind, 1, 0, 3)
    for d, s in product(range(4), range(4)):
        theirs = oracle.erratum_score(case.spec, case.arrays, kind, (0, s), (1, d), 3)
        assert found[d, s].item() == pytest.approx(theirs, rel=1e-10)
    with pytest.raises(NotApplicable, match="delta="):
        cyclic_score(case.folded, kind, 1, 0)


# ---- wrong formulas seen in the wild ----


def dense(case, layer, index):
    head = case.folded.block(layer).head(index)
    return head.QK().dense() if not rotary(case, layer) else None, head.OV.dense(), head


@pytest.mark.parametrize(
    ("what", "kind", "wrong"),
    [
        ("Q without the transpose", "Q", lambda later, OV: later.QK().dense() @ OV),
        ("Q from W_Qᵀ alone", "Q", lambda later, OV: later.W_Q @ OV),
        ("K from W_K alone", "K", lambda later, OV: later.W_K @ OV),
        ("V in reverse order", "V", lambda later, OV: OV @ later.OV.dense()),
        ("V without W_O", "V", lambda later, OV: later.W_V @ OV),
        ("the sender's read side contracted", "K", lambda later, OV: later.QK().dense() @ OV.T),
    ],
)
def test_wrong_products_are_not_what_is_computed(what, kind, wrong):
    case = BY_NAME["two_layers_sinusoidal"]
    _, OV, _ = dense(case, 0, 1)
    _, _, later = dense(case, 1, 2)
    product = wrong(later, OV)
    reader = reader_matrices(case.folded, 1, kind)[2]
    bad = torch.linalg.norm(product) / (reader.norm() * torch.linalg.norm(OV))
    good = layer_composition(case.folded, kind, 1, 0).score[2, 1]
    assert abs(bad - good) > 1e-3, what


def test_pairs_that_cannot_compose_are_absent_and_never_zero():
    import pathsum
    from pathsum.weights.model import Model

    case = BY_NAME["three_layers_alibi"]
    frame = pathsum.composition(Model("m", case.weights)).frame
    layers = {(int(row["source"][1]), int(row["destination"][1])) for row in frame.iter_rows(named=True)}
    assert layers == {(0, 1), (0, 2), (1, 2)}
    assert len(frame) == 3 * 3 * case.spec.n_heads**2


def test_ignoring_rotation_is_not_what_is_computed():
    case = BY_NAME["llama"]
    head = case.folded.block(1).head(0)
    unrotated = LowRank(head.W_Q.mT, head.W_K)
    assert (head.QK(3).dense() - unrotated.dense()).norm() > 0.1 * unrotated.norm()
    with pytest.raises(NotApplicable, match="delta="):
        head.QK()


@pytest.mark.parametrize("block", [2, 512])
def test_a_mean_over_distances_is_that_of_each_and_nothing_where_one_vanishes(block, monkeypatch):
    """`mean_Δ R A Rᵀ / tr(R A Rᵀ B)` by loops, of small matrices; no coordinate is left at distance 0 by the last B."""
    monkeypatch.setattr(rotation, "BLOCK", block)
    positions, deltas = Rotary(2, base=5.0, magnitude=0.8), [0.0, 1.0, 2.0, 5.0]
    X, Y = 1e-3 * torch.randn(2, 2, 3, 3, dtype=torch.float64)
    A, B = X @ X.mT, Y @ Y.mT
    A[1], B[1] = torch.diag(torch.tensor([1.0, 0, 0])), torch.diag(torch.tensor([0, 1.0, 0]))
    found = rotation.Rotation(positions, 3).mean_conjugated(A, B, torch.tensor(deltas, dtype=torch.float64))
    turned = [R @ A[0] @ R.T for R in (positions.matrix(delta, 3) for delta in deltas)]
    agree(found[0], sum(each / (each @ B[0]).trace() for each in turned) / len(deltas), 1e-10)
    assert not found[1].any()


def test_a_distance_of_part_of_a_position_is_not_rounded():
    assert distances([0.1, 2], 8).tolist() == [0.1, 2.0] and distances(0.1, 8).tolist() == [0.1]
