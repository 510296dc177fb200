"""What terms are worth: every loss is that of a sum of explicitly listed terms."""

import dataclasses
import math

import pytest
import torch

from cases import BY_NAME, CASES, agree
from pathsum.behaviour.losses import next_token_losses
from pathsum.paths import importance
from pathsum.paths.importance import direct_and_full_loss, head_losses, order_losses
from pathsum.paths.logits import expand
from pathsum.runs.graded import frozen_run
from pathsum.runs.run import run_weights
from pathsum.weights.model import Model
from test_paths import recorded

UNCAPPED = [case for case in CASES if case.spec.logit_cap is None]


def loss(logits, tokens) -> float:
    return next_token_losses(logits, tokens).mean().item()


@pytest.mark.parametrize("case", UNCAPPED, ids=repr)
def test_losses_by_order_are_those_of_the_terms_up_to_it(case):
    run = recorded(case)
    found = order_losses(frozen_run(run))
    assert found[0] == pytest.approx(math.log(case.spec.d_vocab))
    terms = list(expand(run).terms())
    for order in range(case.spec.n_layers + 1):
        kept = sum(term.logits for term in terms if term.path.order <= order)
        assert found[order + 1] == pytest.approx(loss(kept, case.tokens), rel=1e-9)
    assert found[-1] == pytest.approx(loss(run.logits, case.tokens))


@pytest.mark.parametrize("name", ["gpt2", "three_layers_rotary_rms", "post_layer_norm"])
@pytest.mark.parametrize("by_layer", [False, True])
def test_losses_by_head_and_layer_are_those_of_listed_terms(name, by_layer):
    case = BY_NAME[name]
    run = recorded(case)
    terms = list(expand(run).terms())
    everything = sum(term.logits for term in terms)
    direct = sum(term.logits for term in terms if term.path.order == 0)
    for found in head_losses(frozen_run(run), by_layer):
        ends_here = lambda t: t.path.heads and t.path.head_names[-1].startswith(found.name)  # noqa: B023
        zero = torch.zeros_like(direct)
        ending = sum((t.logits for t in terms if ends_here(t)), zero)
        individual = sum((t.logits for t in terms if ends_here(t) and t.path.order == 1), zero)
        assert found.individual == pytest.approx(loss(direct + individual, case.tokens), rel=1e-9)
        assert found.ending == pytest.approx(loss(direct + ending, case.tokens), rel=1e-9)
        assert found.without == pytest.approx(loss(everything - ending, case.tokens), rel=1e-9)


@pytest.mark.parametrize("name", ["gpt2", "gemma2", "post_layer_norm"])
@pytest.mark.parametrize("by_layer", [False, True])
def test_a_batch_in_blocks_at_some_positions_is_the_mean_over_them(name, by_layer, monkeypatch):
    """Texts of a batch one after the other, logits a few rows at a time: the losses of each position by itself."""
    case = BY_NAME[name]
    tokens = torch.stack([case.tokens, case.tokens.flip(0)])
    n = tokens.shape[1] - 1
    rows = torch.tensor([0, 2, n - 1, n, 2 * n - 1])
    alone = [recorded(dataclasses.replace(case, tokens=tokens[row // n, : row % n + 2])) for row in rows.tolist()]
    last = [torch.tensor([len(run.tokens) - 2]) for run in alone]
    each = [frozen_run(run) for run in alone]
    batch = frozen_run(run_weights(Model(name, case.weights), case.weights, tokens))
    monkeypatch.setattr(importance, "KEPT", 2 * case.spec.d_vocab)
    monkeypatch.setattr(importance, "BLOCK", case.spec.d_vocab)
    measures = (order_losses, direct_and_full_loss, lambda *a: [
        value for found in head_losses(a[0], by_layer, a[1]) for value in dataclasses.astuple(found)[1:]
    ])  # fmt: skip
    for measure in measures:
        expected = torch.tensor([list(measure(*one)) for one in zip(each, last, strict=True)], dtype=torch.float64)
        agree(torch.tensor(list(measure(batch, rows)), dtype=torch.float64), expected.mean(0), 1e-9)


def test_direct_and_full_loss_are_the_first_and_last_order():
    frozen = frozen_run(recorded(BY_NAME["llama"]))
    orders = order_losses(frozen)
    assert direct_and_full_loss(frozen) == pytest.approx((orders[1], orders[-1]), rel=1e-9)
