"""What terms are worth: every loss is that of a sum of explicitly listed terms."""

import dataclasses
import math

import pytest
import torch

from cases import BY_NAME, CASES, agree
from pathsum.behaviour.losses import next_token_losses
from pathsum.paths import importance, scored
from pathsum.paths.importance import direct_and_full_losses, head_losses, order_losses
from pathsum.paths.logits import expand
from pathsum.runs.graded import frozen_run
from pathsum.runs.run import run_weights
from pathsum.study.importance import mean_and_error
from pathsum.study.result import read_one
from pathsum.study.subject import Subject
from pathsum.weights.model import Model
from test_paths import recorded
from test_symmetries import gap, numbers

UNCAPPED = [case for case in CASES if case.spec.logit_cap is None]


def loss(logits, tokens) -> float:
    return next_token_losses(logits, tokens).mean().item()


@pytest.mark.parametrize("case", UNCAPPED, ids=repr)
def test_losses_by_order_are_those_of_the_terms_up_to_it(case):
    run = recorded(case)
    found = order_losses(frozen_run(run)).mean(1)
    assert found[0].item() == pytest.approx(math.log(case.spec.d_vocab))
    terms = list(expand(run).terms())
    for order in range(case.spec.n_layers + 1):
        kept = sum(term.logits for term in terms if term.path.order <= order)
        assert found[order + 1].item() == pytest.approx(loss(kept, case.tokens), rel=1e-9)
    assert found[-1].item() == pytest.approx(loss(run.logits, case.tokens))


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
        assert found.individual.mean().item() == pytest.approx(loss(direct + individual, case.tokens), rel=1e-9)
        assert found.ending.mean().item() == pytest.approx(loss(direct + ending, case.tokens), rel=1e-9)
        assert found.without.mean().item() == pytest.approx(loss(everything - ending, case.tokens), rel=1e-9)


@pytest.mark.parametrize("name", ["gpt2", "gemma2", "post_layer_norm"])
@pytest.mark.parametrize("by_layer", [False, True])
def test_a_batch_in_blocks_has_the_losses_of_each_position_by_itself(name, by_layer, monkeypatch):
    """Texts of a batch one after the other, logits a few rows at a time."""
    case = BY_NAME[name]
    tokens = torch.stack([case.tokens, case.tokens.flip(0)])
    n = tokens.shape[1] - 1
    rows = torch.tensor([0, 2, n - 1, n, 2 * n - 1])
    alone = [recorded(dataclasses.replace(case, tokens=tokens[row // n, : row % n + 2])) for row in rows.tolist()]
    last = [torch.tensor([len(run.tokens) - 2]) for run in alone]
    each = [frozen_run(run) for run in alone]
    batch = frozen_run(run_weights(Model(name, case.weights), case.weights, tokens))
    monkeypatch.setattr(importance, "KEPT", 2 * case.spec.d_vocab)
    for module in (importance, scored):
        monkeypatch.setattr(module, "BLOCK", case.spec.d_vocab)

    def by_set(*arguments):
        found = head_losses(arguments[0], by_layer, arguments[1])
        return torch.stack([value for each in found for value in dataclasses.astuple(each)[1:]])

    for measure in (order_losses, direct_and_full_losses, by_set):
        expected = torch.cat([measure(*one) for one in zip(each, last, strict=True)], dim=1)
        agree(measure(batch, rows), expected, 1e-9)


def test_direct_and_full_losses_are_the_first_and_last_order():
    frozen = frozen_run(recorded(BY_NAME["llama"]))
    agree(direct_and_full_losses(frozen), order_losses(frozen)[[1, -1]], 1e-9)


# ---- means over a text, and their errors ----


def test_the_error_is_that_of_the_means_of_contexts():
    values, contexts = torch.randn(12, generator=torch.Generator().manual_seed(1)).double(), torch.arange(12) // 3
    mean, error = mean_and_error(values, contexts)
    of_contexts = values.view(4, 3).mean(1)
    assert mean == pytest.approx(of_contexts.mean().item())
    assert error == pytest.approx((of_contexts.std() / 2).item())


def test_contexts_with_more_rows_weigh_more():
    """Two contexts, of one and three rows: the ratio estimator's linearised error, by hand."""
    mean, error = mean_and_error(torch.tensor([4.0, 0.0, 0.0, 0.0]).double(), torch.tensor([0, 7, 7, 7]))
    assert mean == 1
    assert error == pytest.approx(math.sqrt(2 * (3**2 + 3**2)) / 4)


def test_a_single_context_has_no_error():
    assert mean_and_error(torch.tensor([1.0, 2.0]).double(), torch.tensor([3, 3])) == (1.5, None)


@pytest.mark.parametrize("name", ["importance", "importance_layers", "importance_heads"])
def test_contexts_run_a_block_at_a_time_give_the_same_numbers(name, monkeypatch):
    case = BY_NAME["gpt2"]
    text = torch.randint(case.spec.d_vocab, (60,), generator=torch.Generator().manual_seed(3)).tolist()
    subject = Subject(Model("m", case.weights), text, sequences=5)
    whole = read_one(name, subject).frame.drop_nulls()
    length, spec = subject.context_length, case.spec
    monkeypatch.setattr("pathsum.study.subject.RECORDED", 2 * spec.n_layers * spec.n_heads * length**2)
    fresh = Subject(subject.model, text, sequences=5)
    assert [start for start, _ in fresh.frozen_blocks()] == [0, 2, 4]
    parts = read_one(name, fresh).frame.drop_nulls()
    assert whole.height == parts.height > 1
    for column in numbers(whole):
        assert gap(whole, parts, column) < 1e-5, column
