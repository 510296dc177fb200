"""Attention scores expand exactly into (query path, key path)."""

import pytest
import torch

import oracle
from cases import BY_NAME, CASES, agree
from pathsum.errors import ExpansionTooLarge, NotApplicable
from pathsum.paths.scores import expand_scores
from pathsum.runs.run import run_weights
from pathsum.weights.model import Model
from test_paths import recorded

LAYERED = [case for case in CASES if case.spec.n_layers]
EVERY_LAYERED_CASE = pytest.mark.parametrize("case", LAYERED, ids=repr)


def heads(case):
    return [(layer, index) for layer in range(case.spec.n_layers) for index in range(case.spec.n_heads)]


@EVERY_LAYERED_CASE
def test_score_terms_sum_to_the_scores(case):
    run = recorded(case)
    for layer, index in heads(case):
        assert expand_scores(run, f"L{layer}H{index}").by_order().check() <= 1e-12


@EVERY_LAYERED_CASE
def test_scores_by_order_are_the_oracles(case):
    run = recorded(case)
    for layer, index in heads(case):
        split = expand_scores(run, f"L{layer}H{index}").by_order()
        theirs = oracle.scores_by_order(case.spec, case.arrays, case.recorded, layer)[:, :, index]
        orders = layer + 1
        agree(split.scores[:orders, :orders], theirs[:orders, :orders], 1e-11)
        # The oracle keeps what is not from the residual stream in one part: positions and biases.
        agree(split.scores[orders:, :orders].sum(0), theirs[orders, :orders], 1e-11)
        agree(split.scores[:orders, orders:].sum(1), theirs[:orders, orders], 1e-11)


@pytest.mark.parametrize(
    "name",
    ["gpt2", "three_layers_rotary_rms", "positions_after_norm_and_qk_norm", "gemma3", "stablelm_qk", "phi_qk", "olmo2",
     "positions_and_norms_across_heads"],
)  # fmt: skip
def test_listed_pairs_of_paths_are_the_oracles(name):
    case = BY_NAME[name]
    layer, index = case.spec.n_layers - 1, case.spec.n_heads - 1
    listed = {(t.query, t.key): t.scores for t in expand_scores(recorded(case), f"L{layer}H{index}").terms()}
    theirs = oracle.score_terms(case.spec, case.arrays, case.recorded, layer, index)
    from_stream = [(q, k, part) for q, k, part in theirs if "constant" not in (q.source, k.source)]
    name = lambda p: " → ".join([p.source, *(f"L{layer}H{head}" for layer, head in p.heads)])
    for query, key, part in from_stream:
        agree(listed[name(query), name(key)], part, 1e-10)
    extras = {"positions", "bias"}
    assert len(from_stream) == sum(not extras & set(pair) for pair in listed)


@pytest.mark.parametrize("name", ["gpt2", "three_layers_rotary_rms", "positions_and_norms_across_heads"])
def test_a_term_by_name_is_the_listed_one(name):
    case = BY_NAME[name]
    expansion = expand_scores(recorded(case), f"L{case.spec.n_layers - 1}H1")
    for listed in expansion.terms():
        agree(expansion.term(listed.query, listed.key).scores, listed.scores, 1e-11)
    with pytest.raises(NotApplicable, match="does not end before layer"):
        expansion.term("embed", f"embed → L{case.spec.n_layers - 1}H0")
    if "positions" not in expansion.by_order().queries:
        with pytest.raises(NotApplicable, match="H1 has no positions on that side"):
            expansion.term("positions", "embed")


@EVERY_LAYERED_CASE
def test_scores_of_a_batch_are_those_of_its_members(case):
    rows = (case.tokens, (case.tokens + 3) % case.spec.d_vocab)
    model = Model("batch", case.weights)
    name = f"L{case.spec.n_layers - 1}H0"
    both = expand_scores(run_weights(model, case.weights, torch.stack(rows)), name).by_order()
    for row, tokens in enumerate(rows):
        alone = expand_scores(run_weights(model, case.weights, tokens), name).by_order()
        assert alone.queries == both.queries and alone.keys == both.keys
        agree(both.scores[:, :, row], alone.scores)
    assert both.check() <= 1e-12


def test_a_bound_is_asked_for():
    expansion = expand_scores(recorded(BY_NAME["three_layers_normed"]), "L2H0")
    pairs = sum(1 for _ in expansion.terms(most=10**9))
    n = round(pairs**0.5)
    paths = sum("→" in term.query or term.query in ("embed", "L0.bias", "L1.bias") for term in expansion.terms()) // n
    assert sum(1 for _ in expansion.terms(most=paths**2)) == pairs
    with pytest.raises(ExpansionTooLarge, match=f"{paths**2:,} pairs"):
        expansion.terms(most=paths**2 - 1)
    with pytest.raises(ExpansionTooLarge, match=r"max_order=.*most="):
        expansion.terms(most=10)
    assert {term.query.count("→") for term in expansion.terms(max_order=1)} == {0, 1}
    few = len({term.query for term in expansion.terms(max_order=1)} - {"positions", "bias"})
    assert few < paths and sum(1 for _ in expansion.terms(max_order=1, most=few**2))
    with pytest.raises(ExpansionTooLarge, match=f"{few**2:,} pairs"):
        expansion.terms(max_order=1, most=few**2 - 1)


def test_an_unknown_head_is_named():
    with pytest.raises(NotApplicable, match="no head L7H0"):
        expand_scores(recorded(BY_NAME["gpt2"]), "L7H0")
