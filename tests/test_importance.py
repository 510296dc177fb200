"""What terms are worth: every loss is that of a sum of explicitly listed terms."""

import math

import pytest
import torch

from cases import BY_NAME, CASES
from pathsum.behaviour.losses import next_token_losses
from pathsum.paths.importance import head_losses, order_losses
from pathsum.paths.logits import expand
from pathsum.runs.graded import frozen_run
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
