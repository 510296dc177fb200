"""Biases, positions and distances in QK read off weights: against loops over tokens, positions and distances."""

from itertools import product

import numpy as np
import pytest
import torch

import oracle
import pathsum
from cases import BY_NAME, CASES, agree, case
from pathsum.circuits.pointers import pointer_circuit, pointers
from pathsum.circuits.positional import matching_curve, positional_scores, rotary_curve
from pathsum.circuits.spectra import positivity, qk_eigenvalues
from pathsum.circuits.tables import layer_QK, qk_circuit, score_circuit
from pathsum.circuits.trigrams import centred_qk
from pathsum.errors import NotApplicable
from pathsum.lowrank import LowRank
from pathsum.toys import pointer_model
from pathsum.weights.model import Model
from pathsum.weights.positions import Rotary

LAYERED = [one for one in CASES if one.spec.n_layers]
ROTARY = [one for one in CASES if any(isinstance(layer.positions, Rotary) for layer in one.spec.layers)]
BIASED_ROTARY = case("biased_rotary", Rotary(4), Rotary(2, base=7.0, interleaved=True),
                     extras="attention_bias norm_bias qk_norm", norm="layer", shape=(6, 4, 2, 5))  # fmt: skip
FAINT = case("faint", Rotary(4)).with_tensors(W_E=0.1 * case("faint", Rotary(4)).tensors["W_E"])
RESIDUAL = ("gpt2", "biases_without_norm")


def side(one, layer: int, which: str, head: int, x: np.ndarray) -> np.ndarray:
    """The query or key made from x with scale 1 in every norm: `G_q (W_Q (G x + β) + b_Q) + β_q`.

    Mixed over positions, x through tap 0 and biases through all.
    """
    h = head if which == "Q" else oracle.key_value_head(one.spec, head)
    matrix = (oracle.query_matrix if which == "Q" else oracle.key_matrix)(one.spec, one.arrays, layer, head)
    beta = oracle.norm_named(one.spec, one.arrays, f"L{layer}.attention_norm", one.spec.d_model).bias
    norm = oracle.side_norm(one.spec, one.arrays, layer, which, h)
    W = one.arrays[f"L{layer}.W_{which}"][h]
    b = oracle.bias(one.arrays, f"L{layer}.b_{which}", (h + 1, one.spec.d_head))[h]
    taps = [
        oracle.tap(one.spec, one.arrays, layer, which, h, t) for t in range(oracle.tap_count(one.spec, layer, which))
    ]
    return matrix @ x + norm.matrix @ (sum(taps) * (W @ beta + b)) + norm.bias


def token_score(one, layer: int, head: int, destination: int, source: int, delta: int) -> float:
    """The score of one token with another `delta` before it, biases and all."""
    E = one.arrays["W_E"]
    q = oracle.rotation_at(one.spec, layer, delta) @ side(one, layer, "Q", head, E[:, destination])
    k = oracle.rotation_at(one.spec, layer, 0) @ side(one, layer, "K", head, E[:, source])
    return one.spec.layers[layer].score_scale * float(q @ k)


def token_scores(one, layer: int, head: int, delta: int) -> np.ndarray:
    n = range(one.spec.d_vocab)
    return np.array([[token_score(one, layer, head, i, j, delta) for j in n] for i in n])


# ---- biases of queries and keys ----


@pytest.mark.parametrize("one", [*LAYERED, BIASED_ROTARY], ids=repr)
def test_a_score_table_is_what_the_softmax_sees_of_tokens_at_one_distance(one):
    layer, head, delta = one.spec.n_layers - 1, one.spec.n_heads - 1, 2
    table = centred_qk(score_circuit(one.folded, layer, delta)[head], one.spec.layers[layer].score_scale)
    theirs = token_scores(one, layer, head, delta)
    agree(table.dense(), theirs - theirs.mean(1, keepdims=True), 1e-11)


@pytest.mark.parametrize("name", ["gpt2", "qwen2"])
def test_without_the_queries_bias_the_table_is_another(name):
    one = BY_NAME[name]
    plain, whole = (centred_qk(f(one.folded, 1, 2)[0], 1.0).dense() for f in (qk_circuit, score_circuit))
    assert (plain - whole).norm() > 0.1 * whole.norm()
    # It is one term a source: the same in every row.
    agree((whole - plain)[0].expand_as(plain), whole - plain, 1e-12)


def test_entries_and_trigrams_have_the_queries_bias():
    one = BIASED_ROTARY
    theirs = token_scores(one, 1, 0, 3)
    theirs = theirs - theirs.mean(1, keepdims=True)
    rows = pathsum.entries(Model("m", one.weights), delta=3, count=4).rows()
    found = [row["value"] for row in rows if row["head"] == "L1H0" and row["circuit"] == "QK"]
    agree(found, np.sort(theirs.ravel())[::-1][:4], 1e-5)
    rows = [row for row in pathsum.trigrams(Model("m", one.weights), delta=3).rows() if row["head"] == "L1H0"]
    assert rows
    for row in rows:
        assert row["qk"] == pytest.approx(theirs[int(row["destination"]), int(row["source"])], rel=1e-4)


@pytest.mark.parametrize("delta", ["rms", [1, 2], float("nan")])
def test_one_distance_is_one_finite_number(delta, unchecked):
    with pytest.raises(NotApplicable, match="must be one distance"):
        layer_QK(BY_NAME["llama"].folded, 0, delta)


# ---- positions that are vectors ----


@pytest.mark.parametrize("name", RESIDUAL)
def test_learned_positions_in_the_stream_give_a_matrix(name):
    one, n = BY_NAME[name], 6
    for layer, head in product(range(one.spec.n_layers), range(one.spec.n_heads)):
        found = positional_scores(one.folded, layer, n)[head]
        W_pos = one.arrays["W_pos"]
        queries = np.array([side(one, layer, "Q", head, W_pos[:, p]) for p in range(n)])
        keys = np.array([oracle.key_matrix(one.spec, one.arrays, layer, head) @ W_pos[:, p] for p in range(n)])
        agree(found, one.spec.layers[layer].score_scale * queries @ keys.T, 1e-11)


def test_layers_whose_positions_are_no_vectors_have_no_matrix():
    beside_rotation = case("learned_and_rotary", Rotary(4), learned_positions=True)
    for one in (BY_NAME["one_layer"], BY_NAME["llama"], beside_rotation):
        with pytest.raises(NotApplicable, match="layer 0 has no positions of its own in queries and keys"):
            positional_scores(one.folded, 0, 4)


def test_the_positional_reading_has_a_lag_curve_for_learned_positions():
    one = BY_NAME["gpt2"]
    rows = pathsum.positional(Model("m", one.weights), lags=3).rows()
    scores = positional_scores(one.folded, 1, one.spec.n_ctx)[2]
    scores = scores - scores.mean(-1, keepdim=True)
    found = [row for row in rows if row["head"] == "L1H2"]
    assert [row["lag"] for row in found] == [0, 1, 2]
    for row in found:
        values = np.diag(scores.numpy(), -row["lag"])
        assert (row["score"], row["spread"]) == pytest.approx((values.mean(), values.std()))
        assert row["matching_score"] is None


# ---- rotary ----


@pytest.mark.parametrize("one", [*ROTARY, BIASED_ROTARY, FAINT], ids=repr)
def test_the_rotary_curve_is_mean_and_spread_over_all_pairs_of_tokens(one):
    for layer, facts in enumerate(one.spec.layers):
        if not isinstance(facts.positions, Rotary):
            continue
        deltas = [0, 1, 4]
        mean, spread = rotary_curve(one.folded, layer, torch.tensor(deltas, dtype=torch.float64))
        for head in {0, one.spec.n_heads - 1}:
            scores = [token_scores(one, layer, head, delta) for delta in deltas]
            agree(mean[head], [each.mean() for each in scores], 1e-10)
            agree(spread[head], [each.std() for each in scores], 1e-10)


def test_the_positional_reading_of_a_rotary_model_is_its_curve_with_the_matching_score():
    one, n = BIASED_ROTARY, BIASED_ROTARY.spec.n_ctx
    rows = [row for row in pathsum.positional(Model("m", one.weights), lags=4).rows() if row["head"] == "L1H3"]
    mean, spread = rotary_curve(one.folded, 1, torch.arange(n, dtype=torch.float64))
    assert [row["lag"] for row in rows] == [0, 1, 2, 3]
    agree([row["score"] for row in rows], (mean[3] - mean[3].mean())[:4], 1e-10)
    agree([row["spread"] for row in rows], spread[3, :4], 1e-10)
    matching = [positivity(qk_eigenvalues(one.folded, 1, lag))[3].item() for lag in range(4)]
    assert [row["matching_score"] for row in rows] == pytest.approx(matching, abs=1e-6)


@pytest.mark.parametrize("one", ROTARY, ids=repr)
def test_the_matching_curve_is_the_matching_score_at_every_distance(one):
    layer = max(at for at, facts in enumerate(one.spec.layers) if isinstance(facts.positions, Rotary))
    found = matching_curve(one.folded, layer, torch.tensor([0.0, 2.0, 5.0], dtype=torch.float64))
    for (place, delta), head in product(enumerate([0, 2, 5]), range(one.spec.n_heads)):
        theirs = oracle.matching_score(one.spec, one.arrays, layer, head, delta)
        assert found[head, place].item() == pytest.approx(theirs, abs=1e-6)


def test_a_layer_that_does_not_rotate_has_no_rotary_curve():
    for curve in (rotary_curve, matching_curve):
        with pytest.raises(NotApplicable, match="not rotary"):
            curve(BY_NAME["gpt2"].folded, 0, torch.zeros(1, dtype=torch.float64))


# ---- pointer arithmetic ----


@pytest.mark.parametrize("name", RESIDUAL)
def test_the_pointer_table_is_what_a_moved_position_says_of_positions(name):
    one, n = BY_NAME[name], 5
    circuit = pointer_circuit(one.folded, 1, 0, n)
    w = one.arrays["W_pos"][:, :n]
    for later, earlier in product(range(3), range(3)):
        moved = oracle.dense_OV(one.spec, one.arrays, 0, earlier) @ w
        table = one.spec.layers[1].score_scale * moved.T @ oracle.dense_QK(one.spec, one.arrays, 1, later) @ w
        agree(circuit[later, earlier].dense(), table, 1e-11)
        table = table - table.mean(1, keepdims=True)
        table = table - table.mean(0, keepdims=True)
        after = [table[p, p + 1] for p in range(n - 1)]
        others = [table[p, k] for p, k in product(range(n), range(n)) if k != p + 1]
        found = pointers(circuit[later])
        assert found.next[earlier].item() == pytest.approx(np.mean(after) - np.mean(others))
        assert found.contrast[earlier].item() == pytest.approx((np.mean(after) - np.mean(others)) / table.std())
        assert found.share_next[earlier].item() == np.mean([table[p].argmax() == p + 1 for p in range(n - 1)])
        means = {offset: np.diag(table, offset).mean() for offset in range(1 - n, n)}
        assert found.offset[earlier].item() == max(means, key=lambda offset: means[offset])


def test_the_planted_pointer_is_found_and_no_other_pair():
    rows = pathsum.pointer(pointer_model()).rows()
    assert (rows[0]["source"], rows[0]["destination"]) == ("L0H0", "L1H1")
    assert rows[0]["share_next"] == 1.0 and rows[0]["offset"] == 1
    assert rows[0]["next"] == pytest.approx(60, abs=1) and rows[0]["contrast"] > 4
    assert rows[0]["q_effect"] > 0 and rows[0]["q_z"] > 10
    for row in rows[1:]:
        assert (row["share_next"], row["next"], row["contrast"], row["offset"]) == (None, None, None, None)


def test_a_pointer_to_another_step_is_told_apart():
    step = torch.eye(30, dtype=torch.float64).roll(2, dims=1)
    found = pointers(LowRank(torch.eye(30, dtype=torch.float64)[None], step[None]))
    assert found.share_next.item() == 0 and found.offset.item() == 2 and found.contrast.item() < 0


def test_a_table_of_nothing_points_nowhere_and_a_faint_one_as_it_would_alone():
    near = torch.eye(30, dtype=torch.float64)
    far = torch.stack([1e14 * near.roll(3, dims=1), near.roll(1, dims=1), torch.ones_like(near)])
    found = pointers(LowRank(near.expand(3, 30, 30), far))
    alone = pointers(LowRank(near[None], near.roll(1, dims=1)[None]))
    assert found.offset.tolist() == [3, 1, 0] and found.share_next.tolist()[:2] == [0, 1]
    agree(found.contrast[1:2], alone.contrast)
    agree(found.next[1:2], alone.next)
    assert all(one[2].isnan() for one in (found.share_next, found.next, found.contrast))


def test_a_random_model_has_no_pointers():
    one = case("random_pointers", None, None, shape=(40, 4, 4, 8), n_tokens=98, learned_positions=True)
    frame = pathsum.pointer(Model("m", one.weights)).frame
    assert len(frame) == 16
    assert frame["share_next"].max() < 0.1
    assert frame["contrast"].abs().max() < 0.5


def test_models_without_positions_in_the_stream_have_no_pointers():
    for name in ("llama", "positions_after_norm"):
        with pytest.raises(NotApplicable, match="learned positions in the residual stream"):
            pathsum.pointer(Model("m", BY_NAME[name].weights))
        with pytest.raises(NotApplicable, match="learned positions in the residual stream"):
            pointer_circuit(BY_NAME[name].folded, 1, 0, 3)
    with pytest.raises(NotApplicable, match="earlier writer"):
        pointer_circuit(BY_NAME["gpt2"].folded, 0, 0, 3)


def test_a_pointer_toy_of_more_positions_than_tokens_is_refused():
    with pytest.raises(NotApplicable, match="n_ctx of at most 4"):
        pointer_model(4, 5)


def test_induction_by_pointer_arithmetic_is_induction():
    found = {row["head"]: row for row in pathsum.induction(pointer_model(), block=8).rows()}
    assert [head for head, row in found.items() if row["is_induction_head"]] == ["L1H1"]
    assert found["L1H1"]["prefix_matching"] == pytest.approx(1)
    run = pathsum.run(pointer_model(), torch.arange(8).repeat(3), dtype=torch.float64)
    # The second copy's token 3, at 11, looks at what came after the first, at 4.
    assert run.patterns[1, 1, 11].argmax() == 4


# ---- what weights alone leave out ----

LEFT_OUT = {
    "gpt2": "",
    "qwen3": "QK from weights alone leaves out the scales of the norms of queries and keys (every layer)",
    "gemma2": "QK from weights alone leaves out the soft-cap of scores at 2 (every layer)",
}


@pytest.mark.parametrize(("name", "line"), LEFT_OUT.items())
@pytest.mark.parametrize("reading", ["spectra", "eigenvalues", "composition", "matching", "positional", "entries"])
def test_readings_of_qk_say_what_they_leave_out(name, line, reading, capsys):
    from pathsum.report.tables import reading_table
    from pathsum.report.terminal import print_result

    result = getattr(pathsum, reading)(Model("m", BY_NAME[name].weights))
    assert result.approximate == line
    assert ("approximate" in result.to_dict()["manifest"]) == bool(line)
    assert reading_table(result).approximate == line
    print_result(result, 1)
    printed = " ".join(capsys.readouterr().out.split())
    assert ("approximate" in printed) == bool(line and len(result.frame)) and (line in printed or not len(result.frame))


def test_layers_that_leave_something_out_are_named():
    mixed = BY_NAME["gemma3"].with_tensors(**{"L0.q_norm.gain": None, "L0.k_norm.gain": None})
    result = pathsum.spectra(Model("m", mixed.weights))
    assert result.approximate.endswith("the scales of the norms of queries and keys (L1)")
    assert result.manifest["approximate"] == {"L1": "the scales of the norms of queries and keys"}


def test_readings_without_qk_leave_nothing_out():
    assert pathsum.describe(Model("m", BY_NAME["qwen3"].weights)).approximate == ""


# ---- composition at several distances, as a reading ----


def test_composition_has_rows_of_their_own_for_every_distance():
    one = case("one_rotary_of_three", None, Rotary(4), None, shape=(8, 2, 2, 4))
    frame = pathsum.composition(Model("m", one.weights), delta=[0, 3]).frame
    turning = frame.filter(frame["delta"].is_not_null())
    assert sorted(set(turning["delta"])) == [0.0, 3.0] and set(turning["kind"]) == {"Q", "K"}
    assert set(turning["destination"]) == {"L1H0", "L1H1"}
    # Q and K of L1 twice, everything else once: 4 pairs of heads for each of 3 pairs of layers.
    assert (len(turning), len(frame)) == (2 * 2 * 4, 2 * 2 * 4 + 2 * 2 * 4 + 3 * 4)
    alone = pathsum.composition(Model("m", one.weights), delta=3).frame
    assert (
        frame.filter(frame["delta"] == 3.0)
        .sort("kind", "source", "destination")
        .equals(alone.filter(alone["delta"].is_not_null()).sort("kind", "source", "destination"))
    )


def test_the_root_mean_square_is_named_and_has_its_z():
    rows = pathsum.composition(Model("m", BY_NAME["llama"].weights), delta="rms").rows()
    assert {row["delta"] for row in rows if row["kind"] != "V"} == {"rms"}
    assert all(row["z"] is not None for row in rows)


def test_without_a_distance_rows_that_depend_on_it_are_null_and_last():
    rows = pathsum.composition(Model("m", BY_NAME["llama"].weights)).rows()
    assert all((row["score"] is None) == (row["kind"] != "V") for row in rows)
    assert [row["kind"] for row in rows[:16]] == ["V"] * 16 and "delta" not in rows[0]


def test_the_erratum_is_of_one_distance():
    model = Model("m", BY_NAME["llama"].weights)
    rows = pathsum.composition(model, delta=3, erratum=True).rows()
    row = next(row for row in rows if (row["kind"], row["source"], row["destination"]) == ("K", "L0H1", "L1H2"))
    one = BY_NAME["llama"]
    theirs = oracle.erratum_score(one.spec, one.arrays, "K", (0, 1), (1, 2), 3)
    assert row["cyclic_score"] == pytest.approx(theirs, rel=1e-10)
    with pytest.raises(NotApplicable, match="of one distance"):
        pathsum.composition(model, delta="rms", erratum=True)


def test_more_distances_than_a_table_can_show_are_refused(monkeypatch):
    monkeypatch.setattr("pathsum.study.composition.MOST_PAIRS", 100)
    model = Model("m", BY_NAME["llama"].weights)
    assert len(pathsum.composition(model, delta=[0, 1, 2]).frame)
    with pytest.raises(pathsum.PathsumError, match="pass fewer distances"):
        pathsum.composition(model, delta=[0, 1, 2, 3])
