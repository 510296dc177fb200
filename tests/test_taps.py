"""Smeared keys and convolutions: mixed over positions in runs, expansions and readings alike."""

import dataclasses
from itertools import product

import numpy as np
import pytest
import torch

import oracle
import pathsum
from cases import CASES, Case, agree, case
from pathsum.circuits.positional import positional_scores
from pathsum.circuits.tables import layer_OV, layer_QK, left_out
from pathsum.errors import CheckpointError, MissingTensor, NotApplicable
from pathsum.paths.logits import expand, path_taps
from pathsum.paths.scores import expand_scores
from pathsum.report.views.path_table import path_table
from pathsum.runs.run import run_weights
from pathsum.toys import SHARP, Axes
from pathsum.weights.model import Model
from pathsum.weights.positions import LearnedQK, Sinusoidal
from pathsum.weights.spec import Attention, Spec
from pathsum.weights.taps import mixed, mixed_transposed
from test_paths import recorded

TAPPED = [one for one in CASES if any(layer.smeared_keys or layer.convolution for layer in one.spec.layers)]
EVERY_TAPPED_CASE = pytest.mark.parametrize("one", TAPPED, ids=repr)
DELTA = 2


def tapped_layers(one: Case) -> list[int]:
    return [i for i, facts in enumerate(one.spec.layers) if facts.smeared_keys or facts.convolution is not None]


def counts(one: Case, layer: int) -> list[int]:
    return [oracle.tap_count(one.spec, layer, which) for which in "QKV"]


# ---- mixing ----


@pytest.mark.parametrize("pos", [1, 2, 3, 9])
def test_mixing_is_the_convolution_and_its_transpose_is_its_transpose(pos):
    taps = torch.randn(2, 3, 4, dtype=torch.float64)
    x, g = torch.randn(2, 5, 2, pos, 4, dtype=torch.float64)
    found, padded = mixed(x, taps), torch.nn.functional.pad(x, (0, 0, 2, 0))
    for p in range(pos):
        agree(found[..., p, :], sum(taps[:, t] * padded[..., 2 + p - t, :] for t in range(3)))
    agree((found * g).sum(), (x * mixed_transposed(g, taps)).sum())


def test_smeared_keys_are_a_mean_of_two_neighbours():
    one = TAPPED[0]
    taps = one.weights.block(0).taps("K")
    assert taps is not None and taps.shape == (3, 2, 4)
    gate = one.tensors["L0.smear"].sigmoid()
    agree(taps[:, 0], gate[:, None].expand(3, 4))
    agree(taps.sum(1), torch.ones(3, 4))
    assert one.weights.block(0).taps("Q") is None and one.weights.block(0).taps("V") is None


@EVERY_TAPPED_CASE
def test_the_first_positions_reach_back_to_nothing(one):
    """A text's run does not depend on what would have come before it: the same as the oracle's, token by token."""
    for n in (1, 2, 4):
        run = run_weights(Model("m", one.weights), one.weights, one.tokens[:n])
        agree(run.uncapped_logits, oracle.run(one.spec, one.arrays, one.tokens[:n].tolist()).logits, 1e-11)


# ---- what a config may say ----


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"smeared_keys": True, "convolution": 3}, "both mix keys; a layer has one of them"),
        ({"convolution": 1}, "convolution is 1, must be a whole number, at least 2"),
        ({"smeared_keys": 1}, "smeared_keys is 1, must be true or false"),
    ],
)
def test_facts_that_make_no_sense_are_refused(facts, message, unchecked):
    with pytest.raises(CheckpointError, match=message):
        Attention(**facts)


def test_a_convolution_before_a_norm_that_centres_is_refused():
    with pytest.raises(CheckpointError, match="convolution goes with the qk_norm rms"):
        dataclasses.replace(TAPPED[2].spec, qk_norm="layer")


def test_a_layer_has_the_tensors_that_its_facts_ask_for_and_no_others():
    mixed_layers = next(one for one in TAPPED if one.name == "smeared_and_plain_layers")
    assert "L1.smear" not in mixed_layers.tensors
    with pytest.raises(MissingTensor, match=r"tensor L0\.smear is missing; config\.json asks for \(2,\)"):
        mixed_layers.with_tensors(**{"L0.smear": None}).weights.block(0)
    with pytest.raises(CheckpointError, match=r"L1\.smear has no place"):
        _ = mixed_layers.with_tensors(**{"L1.smear": torch.zeros(2).double()}).weights
    convolution = next(one for one in TAPPED if one.name == "convolution_sinusoidal")
    with pytest.raises(MissingTensor, match=r"L1\.conv_V has shape \(2, 2, 4\), but config\.json asks for \(2, 3, 4\)"):
        convolution.with_tensors(**{"L1.conv_V": torch.zeros(2, 2, 4).double()}).weights.block(1)


def test_older_configs_without_the_facts_still_open():
    plain = TAPPED[0].spec.to_dict()
    assert Spec.from_dict(plain) == TAPPED[0].spec
    for layer in plain["layers"]:
        del layer["smeared_keys"], layer["convolution"]
    assert [layer.smeared_keys for layer in Spec.from_dict(plain).layers] == [False, False]


@EVERY_TAPPED_CASE
def test_a_saved_model_is_the_same_when_opened(one, tmp_path):
    pathsum.save(tmp_path / "model", one.weights)
    opened = pathsum.open(tmp_path / "model")
    assert opened.spec == one.spec
    agree(run_weights(opened, opened.weights, one.tokens).logits, recorded(one).logits)


# ---- families by tap ----


@EVERY_TAPPED_CASE
def test_circuits_through_every_tap_are_the_oracles(one):
    for layer in range(one.spec.n_layers):
        queries, keys, values = counts(one, layer)
        for s, t in product(range(queries), range(keys)):
            found = layer_QK(one.folded, layer, DELTA, (s, t))
            for head in range(one.spec.n_heads):
                agree(found[head].dense(), oracle.dense_QK(one.spec, one.arrays, layer, head, DELTA, (s, t)), 1e-11)
        for t in range(values):
            for head in range(one.spec.n_heads):
                theirs = oracle.dense_OV(one.spec, one.arrays, layer, head, t)
                agree(layer_OV(one.folded, layer, t)[head].dense(), theirs, 1e-11)


def test_a_tap_that_is_not_there_is_named():
    head = TAPPED[0].weights.head("L0H1")
    with pytest.raises(NotApplicable, match="no tap 2: there are taps 0 to 1"):
        head.QK(taps=(0, 2))
    with pytest.raises(NotApplicable, match="no tap 1: there is tap 0"):
        head.OV_through(1)


@EVERY_TAPPED_CASE
def test_a_term_is_the_sum_over_taps_of_its_patterns_with_its_matrices(one):
    expansion = expand(recorded(one))
    one_hot = torch.eye(one.spec.d_vocab, dtype=torch.float64)[one.tokens]
    for term in expansion.terms():
        if term.path.source == "unembed.bias":
            continue
        x = one_hot if term.path.source == "embed" else expansion.sources[term.path.source]
        total = torch.zeros_like(term.logits)
        for taps in path_taps(expansion.frozen, term.path):
            total += expansion.pattern(term.path, taps) @ expansion.matrix(term.path, taps).apply(x)
        agree(total, term.logits, 1e-11)


def test_taps_of_a_path_are_one_a_head():
    expansion = expand(recorded(next(one for one in TAPPED if one.name == "convolution_sinusoidal")))
    assert len(path_taps(expansion.frozen, expansion._known("L0H0 → L1H0"))) == 9
    with pytest.raises(NotApplicable, match="1 taps for the 2 heads of embed → L0H0 → L1H0; give one a head"):
        expansion.pattern("L0H0 → L1H0", (0,))


@EVERY_TAPPED_CASE
def test_all_predictions_at_once_are_those_of_each_path_by_position(one):
    run = recorded(one)
    table = path_table(expand(run))
    for at in (0, 3, len(one.tokens) - 1):
        u = torch.zeros(1, one.spec.d_vocab, dtype=torch.float64)
        u[0, table.targets[at]] = 1
        readout = expand(run).toward(u - 1 / one.spec.d_vocab, at)
        parts = [readout.by_position(path)[0] for path in table.paths]
        agree(table.values[:, at], [part.sum() for part in parts], 1e-9)
        agree(table.positions[at], sum(parts), 1e-9)


# ---- scores ----


def oracle_by_tap(one: Case, layer: int, head: int, s: int, t: int) -> np.ndarray:
    """What the stream says through these two taps, with loops."""
    x, frozen, n = one.recorded.residuals[layer], one.recorded.layers[layer], len(one.tokens)
    kv = oracle.key_value_head(one.spec, head)
    Q = oracle.query_matrix(one.spec, one.arrays, layer, head, s)
    K = oracle.key_matrix(one.spec, one.arrays, layer, head, t)
    found = np.zeros((n, n))
    for i, j in product(range(s, n), range(t, n)):
        q = oracle.rotation_at(one.spec, layer, i) @ Q @ x[i - s] * frozen.attention_scale[i - s]
        k = oracle.rotation_at(one.spec, layer, j) @ K @ x[j - t] * frozen.attention_scale[j - t]
        found[i, j] = float(q @ k) * frozen.query_scale[head][i] * frozen.key_scale[kv][j]
    return found * one.spec.layers[layer].score_scale


@pytest.mark.parametrize("one", [*TAPPED, CASES[5]], ids=repr)
def test_scores_by_tap_are_the_oracles_and_sum_to_the_scores(one):
    run = recorded(one)
    for layer, head in product(range(one.spec.n_layers), range(one.spec.n_heads)):
        expansion = expand_scores(run, f"L{layer}H{head}")
        split = expansion.by_tap()
        assert split.check() <= 1e-12
        queries, keys, _ = counts(one, layer)
        assert split.queries[:queries] == tuple(f"tap {s}" for s in range(queries))
        for s, t in product(range(queries), range(keys)):
            agree(split.scores[s, t], oracle_by_tap(one, layer, head, s, t), 1e-10)
        at = expansion.at([(5, 3), (5, 5)])
        agree(at.by_tap.values[0], split.scores[:, :, 5, [3, 5]].mean(-1), 1e-10)
        assert at.by_tap.error <= 1e-12


@EVERY_TAPPED_CASE
def test_without_norms_the_weights_of_taps_are_the_scores_of_tokens(one):
    if one.spec.norm != "none":
        pytest.skip("scales of norms are no weights")
    expansion = expand_scores(recorded(one), "L0H1")
    queries, keys, _ = counts(one, 0)
    split, n = expansion.by_tap(), len(one.tokens)
    for s, t in product(range(queries), range(keys)):
        weights = expansion.weights_of("embed", "embed", taps=(s, t))
        over = weights.matrix.dense()[one.tokens][:, one.tokens] * expansion.block.attention.score_scale
        agree(split.scores[s, t, s:, t:], over[: n - s, : n - t], 1e-11)


def test_a_term_through_taps_prints_how_far_back_it_reads():
    expansion = expand_scores(recorded(TAPPED[0]), "L0H1")
    assert str(expansion.weights_of(taps=(0, 1))) == "Id ⊗ D ⊗ W_Eᵀ W_QK^{L0H1}(0, 1) W_E"
    assert str(expansion.weights_of()) == "Id ⊗ Id ⊗ W_Eᵀ W_QK^{L0H1} W_E"
    convolution = next(one for one in TAPPED if one.name == "convolution_sinusoidal")
    after_a_head = expand_scores(recorded(convolution), "L1H1").weights_of("embed", "L0H0", taps=(1, 2))
    assert str(after_a_head) == "D ⊗ D^2 A^{L0H0} ⊗ W_Eᵀ W_QK^{L1H1}(1, 2) W_OV^{L0H0} W_E"


# ---- positions ----


@pytest.mark.parametrize("name", ["smeared_keys", "convolution_sinusoidal", "convolution_of_biases"])
def test_positional_scores_go_through_the_taps(name):
    one, n = next(one for one in TAPPED if one.name == name), 6
    layer = 0
    for head in range(one.spec.n_heads):
        kv, sides = oracle.key_value_head(one.spec, head), []
        for which, h in (("Q", head), ("K", kv)):
            beta = oracle.norm_named(one.spec, one.arrays, f"L{layer}.attention_norm", one.spec.d_model).bias
            norm = oracle.side_norm(one.spec, one.arrays, layer, which, h)
            raw = [oracle.mixed_before_norm(one.spec, one.arrays, layer, [beta] * n, p, which, h) for p in range(n)]
            sides.append(np.array([norm.matrix @ x + (norm.bias if which == "Q" else 0) for x in raw]))
        theirs = one.spec.layers[layer].score_scale * sides[0] @ sides[1].T
        agree(positional_scores(one.folded, layer, n)[head], theirs, 1e-11)


# ---- one layer is enough for induction ----


def one_layer_induction() -> Model:
    """L0H0's keys are the token before, by a gate that is all but shut: what it finds is what came after its query."""
    axes = Axes(d_vocab=16, n_ctx=48)
    finder = axes.head()
    finder["W_Q"][:16], finder["W_K"][:16] = SHARP * axes.reads("tokens"), axes.reads("tokens")
    finder["W_V"][:16], finder["W_O"][:, :16] = 20 * axes.reads("tokens"), axes.reads("outputs").T
    model = axes.model("one-layer", [[finder, axes.idle_head(0)]], W_U=axes.reads("outputs"))
    spec = dataclasses.replace(model.spec, layers=(Attention(LearnedQK(), smeared_keys=True),))
    tensors = {**model.weights.tensors(), "L0.smear": torch.tensor([-30.0, 0.0], dtype=torch.float64)}
    return Model("one-layer", pathsum.weights.weights.Weights.from_tensors(spec, tensors))


def test_one_layer_of_smeared_keys_is_an_induction_head_and_every_reading_says_so():
    model = one_layer_induction()
    found = {row["head"]: row for row in pathsum.induction(model, block=8).rows()}
    assert [head for head, row in found.items() if row["is_induction_head"]] == ["L0H0"]
    assert found["L0H0"]["prefix_matching"] == pytest.approx(1, abs=1e-6) and found["L0H0"]["partner"] is None
    run = pathsum.run(model, torch.arange(8).repeat(3), dtype=torch.float64)
    at = expand_scores(run, "L0H0").at("induction")
    for shares, pair in ((at.by_tap, ("tap 0", "tap 1")), (at.by_lag(), ("lag 0", "lag 1"))):
        agree(shares.share(*pair).values, at.target, 1e-9)
    rows = {(row["circuit"], row["query_tap"], row["key_tap"]): row for row in pathsum.taps(model).rows()
            if row["head"] == "L0H0"}  # fmt: skip
    assert rows["QK", 0, 1]["score"] == pytest.approx(1) and rows["QK", 0, 1]["weight"] == pytest.approx(1)
    assert rows["QK", 0, 0]["size"] < 1e-9 * rows["QK", 0, 1]["size"]
    assert rows["OV", None, None]["score"] == pytest.approx(1) and rows["OV", None, None]["value_tap"] == 0


# ---- readings ----


@EVERY_TAPPED_CASE
def test_the_reading_of_taps_is_that_of_the_dense_tables(one):
    rows = pathsum.taps(Model("m", one.weights), delta=DELTA).rows()
    assert {row["head"] for row in rows} == {f"L{i}H{h}" for i in tapped_layers(one) for h in range(one.spec.n_heads)}
    assert len(rows) == sum(one.spec.n_heads * (q * k + v) for q, k, v in (counts(one, i) for i in tapped_layers(one)))
    E, U = one.arrays["W_E"], oracle.dense_unembedding(one.spec, one.arrays)
    for row in rows:
        layer, head = (int(part) for part in row["head"][1:].split("H"))
        kv, scale = oracle.key_value_head(one.spec, head), one.spec.layers[layer].score_scale
        if row["circuit"] == "QK":
            pair = row["query_tap"], row["key_tap"]
            table = scale * E.T @ oracle.dense_QK(one.spec, one.arrays, layer, head, DELTA, pair) @ E
            tap = oracle.tap(one.spec, one.arrays, layer, "Q", head, pair[0])
            tap = tap * oracle.tap(one.spec, one.arrays, layer, "K", kv, pair[1])
            assert row["value_tap"] is None
        else:
            table = U @ oracle.dense_OV(one.spec, one.arrays, layer, head, row["value_tap"]) @ E
            tap = oracle.tap(one.spec, one.arrays, layer, "V", kv, row["value_tap"])
            assert row["query_tap"] is None and row["key_tap"] is None
        own = np.linalg.eigvals(table)
        assert row["weight"] == pytest.approx(np.sqrt((tap**2).mean()))
        assert row["size"] == pytest.approx(np.sqrt((table**2).mean()))
        assert row["score"] == pytest.approx(oracle.eigenvalue_share(table), abs=1e-6)
        departs = np.sqrt(max(0.0, 1 - (np.abs(own) ** 2).sum() / (table**2).sum()))
        assert row["departure"] == pytest.approx(departs, abs=1e-6)


def test_the_reading_of_taps_needs_a_distance_where_layers_are_rotary():
    one = next(one for one in TAPPED if one.name == "convolution_rotary")
    for row in pathsum.taps(Model("m", one.weights)).rows():
        assert (row["score"] is None) == (row["size"] is None) == (row["circuit"] == "QK")
        assert row["weight"] is not None


def test_models_that_mix_nothing_have_no_taps():
    with pytest.raises(NotApplicable, match="no head of m mixes queries, keys or values over positions"):
        pathsum.taps(Model("m", CASES[4].weights))


def test_readings_of_tap_0_say_so_and_the_reading_of_all_taps_does_not():
    smeared, convolution = (Model("m", one.weights) for one in (TAPPED[1], TAPPED[2]))
    line = "QK from weights alone leaves out the scales of the norms of queries and keys and taps beyond 0 of keys (L0)"
    assert line in pathsum.spectra(smeared, delta=1).approximate
    assert "taps" not in pathsum.taps(smeared, delta=1).approximate
    assert "taps beyond 0" in left_out(smeared.weights)["L0"] and "taps" not in left_out(smeared.weights, True)["L0"]
    assert pathsum.spectra(convolution).approximate == (
        "QK from weights alone leaves out taps beyond 0 of queries, keys, values (every layer)"
    )


def test_a_model_says_what_it_mixes():
    smeared, convolution = ({row["name"]: row for row in pathsum.describe(Model("m", one.weights)).rows()}
                            for one in (TAPPED[1], TAPPED[2]))  # fmt: skip
    assert smeared["smeared keys"]["value"] == 1 and smeared["smeared keys"]["note"].startswith("1 of 2 layers")
    assert convolution["convolution"]["value"] == 3 and convolution["layers with taps"]["value"] == 2


def test_position_tables_of_a_one_layer_case_are_the_run_without_a_text():
    """Where W_E is zero, positions are all that a score has."""
    one = case("smeared_positions", Sinusoidal(0.7), smeared=(True,), extras="attention_bias")
    blank = one.with_tensors(W_E=torch.zeros_like(one.tensors["W_E"]))
    scores = recorded(blank).frozen.layers[0].scores
    agree(scores, positional_scores(blank.folded, 0, len(one.tokens)), 1e-11)
