"""Virtual heads behave like heads: dense products, listed terms, and what leaving them out costs."""

import numpy as np
import pytest
import torch

import oracle
import pathsum
from cases import BY_NAME, CASES, agree
from pathsum.behaviour.losses import next_token_losses
from pathsum.errors import NotApplicable
from pathsum.paths.logits import expand
from pathsum.paths.virtual import head_pairs, pair_losses, pair_squares, virtual_head
from pathsum.runs.graded import frozen_run
from pathsum.runs.run import run_weights
from pathsum.study.result import read_one
from pathsum.study.subject import Subject
from pathsum.weights.model import Model
from test_paths import recorded

DEEP = [case for case in CASES if case.spec.n_layers >= 2]
SOME = ["three_layers_rotary_rms", "gpt2", "gptj", "gemma2", "post_layer_norm", "gpt_oss", "convolution_rotary"]
ONE_TAP = [case for case in DEEP if not any(layer.convolution for layer in case.spec.layers)]
"""Where what a virtual head moves is one matrix; where values are mixed it has one for every tap (test_taps)."""


@pytest.mark.parametrize("case", DEEP, ids=repr)
def test_a_virtual_head_is_the_product_of_two(case):
    for earlier, later in head_pairs(case.spec):
        found = virtual_head(case.weights, *(f"L{layer}H{index}" for layer, index in (earlier, later)))
        OV = oracle.dense_OV(case.spec, case.arrays, *later) @ oracle.dense_OV(case.spec, case.arrays, *earlier)
        circuit = oracle.dense_unembedding(case.spec, case.arrays) @ OV @ case.arrays["W_E"]
        agree(found.OV.dense(), OV)
        agree(found.circuit.dense(), circuit)
        assert found.copying_score == pytest.approx(oracle.eigenvalue_share(circuit), abs=1e-9)
        expected = oracle.composition(case.spec, case.arrays, "V", earlier, later)
        assert found.composition.score == pytest.approx(expected.score, rel=1e-9)
        assert found.composition.effect == pytest.approx(expected.score - case.spec.d_model**-0.5, rel=1e-7)
        assert found.composition.ceiling == pytest.approx(expected.ceiling, rel=1e-7)
        assert found.composition.z == pytest.approx(expected.z, rel=1e-5, nan_ok=True)


@pytest.mark.parametrize("case", ONE_TAP, ids=repr)
def test_its_pattern_and_circuit_on_the_tokens_are_the_term_of_its_path(case):
    run = recorded(case)
    expansion, one_hot = expand(run), torch.eye(case.spec.d_vocab, dtype=torch.float64)[case.tokens]
    for earlier, later in head_pairs(case.spec):
        found = virtual_head(run.model, *(f"L{layer}H{index}" for layer, index in (earlier, later)))
        agree(found.pattern(run) @ found.circuit.apply(one_hot), expansion.term(found.path).logits, 1e-11)


def test_its_pattern_without_norms_is_the_product_of_patterns():
    case = BY_NAME["three_layers_alibi"]
    run = recorded(case)
    A = case.recorded.layers[2].pattern[1] @ case.recorded.layers[0].pattern[2]
    agree(virtual_head(case.weights, "L0H2", "L2H1").pattern(run), A)
    assert np.allclose(A.sum(-1), 1)


def test_a_virtual_head_of_float32_weights_is_in_float64():
    case = BY_NAME["gpt2"].with_tensors(**{name: x.float() for name, x in BY_NAME["gpt2"].tensors.items()})
    found = virtual_head(case.weights, "L0H0", "L1H1")
    OV = oracle.dense_OV(case.spec, case.arrays, 1, 1) @ oracle.dense_OV(case.spec, case.arrays, 0, 0)
    agree(found.circuit.dense(), oracle.dense_unembedding(case.spec, case.arrays) @ OV @ case.arrays["W_E"])


def test_a_pair_that_cannot_compose_is_refused():
    model = Model("m", BY_NAME["gpt2"].weights)
    for earlier, later in (("L1H0", "L0H1"), ("L1H0", "L1H1")):
        with pytest.raises(NotApplicable, match=f"{later} reads nothing that {earlier} writes"):
            pathsum.virtual_head(model, earlier, later)
    with pytest.raises(NotApplicable, match="no head L7H0"):
        pathsum.virtual_head(model, "L0H0", "L7H0")


# ---- on a text ----


@pytest.mark.parametrize("name", SOME)
def test_sizes_and_losses_of_pairs_are_those_of_listed_terms(name):
    case = BY_NAME[name]
    run = recorded(case)
    frozen, terms, pairs = frozen_run(run), list(expand(run).terms()), head_pairs(case.spec)
    everything, zero = run.uncapped_logits, torch.zeros_like(run.logits)
    squares, losses = pair_squares(frozen), pair_losses(frozen, pairs)
    assert len(squares) == len(losses) == len(pairs) > 0
    for pair, square, without in zip(pairs, squares, losses, strict=True):
        ending = sum((term.logits for term in terms if term.path.heads[-2:] == pair), zero)
        centred = ending - ending.mean(-1, keepdim=True)
        agree(square, centred.square().mean(-1)[:-1], 1e-9)
        agree(without, next_token_losses(everything - ending, case.tokens), 1e-9)


def test_pairs_at_some_rows_of_a_batch_in_blocks_are_those_of_the_whole(monkeypatch):
    case = BY_NAME["gpt2"]
    tokens = torch.stack([case.tokens, case.tokens.flip(0)])
    frozen = frozen_run(run_weights(Model("m", case.weights), case.weights, tokens))
    rows, pairs = torch.tensor([0, 2, 5, 6, 11]), head_pairs(case.spec)
    squares, losses = pair_squares(frozen)[:, rows], pair_losses(frozen, pairs)[:, rows]
    monkeypatch.setattr("pathsum.paths.virtual.KEPT", 2 * case.spec.d_vocab)
    monkeypatch.setattr("pathsum.paths.virtual.BLOCK", case.spec.d_vocab)
    monkeypatch.setattr("pathsum.paths.virtual.MIXED", 2 * case.spec.n_heads * case.spec.d_head * tokens.numel())
    agree(pair_squares(frozen, rows), squares, 1e-11)
    agree(pair_losses(frozen, [pairs[5], pairs[2]], rows), losses[[5, 2]], 1e-11)


def test_losses_of_pairs_of_later_layers_alone_are_those_of_the_whole():
    frozen = frozen_run(recorded(BY_NAME["three_layers_rotary_rms"]))
    pairs = head_pairs(frozen.weights.spec)
    late = [index for index, (earlier, _) in enumerate(pairs) if earlier[0] == 1]
    agree(pair_losses(frozen, [pairs[index] for index in late]), pair_losses(frozen, pairs)[late])


def test_models_of_one_layer_have_no_virtual_heads():
    frozen = frozen_run(recorded(BY_NAME["one_layer"]))
    assert head_pairs(frozen.weights.spec) == [] and pair_squares(frozen).shape == (0, 6)
    assert pair_losses(frozen, []).shape == (0, 6)
    assert read_one("virtual", subject("one_layer")).frame.height == 0


def subject(name: str) -> Subject:
    case = BY_NAME[name]
    text = torch.randint(case.spec.d_vocab, (60,), generator=torch.Generator().manual_seed(3)).tolist()
    return Subject(Model(name, case.weights), text, sequences=4)


def test_the_table_has_all_pairs_and_what_the_largest_cost():
    every = read_one("virtual", subject("three_layers_rotary_rms"))
    some = read_one("virtual", subject("three_layers_rotary_rms"), pairs=4)
    assert every.frame.height == some.frame.height == 12
    assert every.manifest["text"]["positions_scored"] == len(subject("three_layers_rotary_rms").scored_rows)
    largest = every.frame.sort("size", descending=True)[:4]
    assert set(some.frame["size"][:4]) == set(largest["size"])
    assert some.frame["cost_without"].is_null().to_list() == 4 * [False] + 8 * [True]
    assert some.frame["size"][4:].is_sorted(descending=True)
    for result in (every.frame, some.frame[:4]):
        assert result["cost_without"].abs().is_sorted(descending=True)
        assert result["cost_without_error"].min() > 0
    assert some.frame[:4].sort("size").equals(largest.sort("size"))


def test_numbers_of_the_table_are_those_of_each_virtual_head():
    one = subject("gpt2")
    rows = read_one("virtual", one).rows()
    for row in rows:
        found = virtual_head(one.model, row["source"], row["destination"])
        assert row["copying_score"] == pytest.approx(found.copying_score, abs=1e-4)
        assert row["v_effect"] == pytest.approx(found.composition.effect, abs=1e-4)
        assert row["cost_without"] == pytest.approx(found.cost_without(one.text_run), abs=1e-6)
