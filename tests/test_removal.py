"""Targets, and paths taken out of the stream, frozen and live."""

from dataclasses import replace

import pytest
import torch

from cases import CASES, agree
from pathsum.errors import NotApplicable
from pathsum.paths.logits import expand
from pathsum.paths.paths import Path
from pathsum.paths.removal import removed
from pathsum.paths.target import log_probability, logit, logit_difference
from pathsum.runs.forward import logits as logits_of
from pathsum.runs.run import run_weights
from pathsum.weights.model import Model

EVERY_CASE = pytest.mark.parametrize("case", CASES, ids=repr)


def run_of(case):
    return run_weights(Model(case.name, case.weights), case.weights, case.tokens)


def without_bias(paths) -> list[Path]:
    return [path for path in paths if path.source != "unembed.bias"]


@EVERY_CASE
def test_targets_are_the_run_s_numbers(case):
    run = run_of(case)
    own = run.logits[2]
    one, two = logit(run, 1, 2), logit_difference(run, 1, 2, 2)
    agree(torch.tensor([one.value, two.value]).double(), torch.stack([own[1], own[1] - own[2]]).float().double(), 1e-6)
    chance = log_probability(run, 1, 2)
    assert chance.value == pytest.approx(run.log_probabilities[2, 1].item(), abs=1e-12)
    assert chance.start == pytest.approx(-torch.tensor(float(case.spec.d_vocab)).log().item(), abs=1e-6)
    for target in (one, two, chance):
        total = expand(run).toward(target.direction[None], 2).by_order.sum().item()
        assert total == pytest.approx(target.linear, abs=1e-10)
        assert target.left_out == pytest.approx(target.value - target.start - total, abs=1e-10)
    if case.spec.logit_cap is None:
        assert one.left_out == pytest.approx(0, abs=1e-12) and two.left_out == pytest.approx(0, abs=1e-12)


@EVERY_CASE
def test_a_log_probability_is_linearised_by_its_derivative(case):
    run = run_of(case)
    target = log_probability(run, 3)
    step = 1e-6 * torch.randn(case.spec.d_vocab, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    at = run.uncapped_logits[-1]
    slope = (target.of(at + step) - target.of(at - step)) / 2
    assert slope.item() == pytest.approx((target.direction @ step).item(), rel=1e-5, abs=1e-13)


@EVERY_CASE
def test_with_everything_replayed_the_live_change_is_the_frozen_one_and_that_of_all_paths_beyond(case):
    run = run_of(case)
    expansion = expand(run)
    target = logit(run, 3)
    target = replace(target, of=lambda x: x @ target.direction, value=target.linear)
    readout = expansion.toward(target.direction[None])
    terms = readout.terms(case.spec.n_layers)
    values = dict(zip(terms.paths, terms.values[:, 0].tolist(), strict=True))
    paths = without_bias(values)[:40]
    found = removed(readout, target, paths, replay=run.frozen)
    agree(found.live, found.frozen, 1e-9)
    beyond = [
        -sum(
            value
            for other, value in values.items()
            if other.source == path.source and other.heads[: path.order] == path.heads
        )
        for path in paths
    ]
    agree(found.frozen, torch.tensor(beyond, dtype=torch.float64), 1e-9)
    assert found.explained == pytest.approx(1)
    assert replace(found, frozen=0 * found.frozen).explained == 0


@EVERY_CASE
def test_live_everything_after_answers(case):
    """The last layer's path changes the final norm alone; the embedding's removal is another model's run."""
    run = run_of(case)
    readout, target = expand(run).toward(logit(run, 3).direction[None]), logit(run, 3)
    last = [Path(name) for name in readout.sources if name.startswith(f"L{case.spec.n_layers - 1}.")]
    if case.spec.n_layers:
        last.append(Path("embed", ((case.spec.n_layers - 1, 0),)))
    for path in last:
        x = run.residual - readout.frozen.carry(readout.sources[path.source], path.heads)
        scale = case.weights.ends.final_norm.scale(x)
        expected = target.of(logits_of(case.weights.ends, x, scale)[-1]) - target.value
        agree(removed(readout, target, [path]).live, expected.view(1), 1e-9)


def test_what_is_in_no_stream_is_refused():
    case = next(case for case in CASES if "b_U" in case.tensors)
    run = run_of(case)
    readout = expand(run).toward(logit(run, 3).direction[None])
    with pytest.raises(NotApplicable, match="no stream"):
        removed(readout, logit(run, 3), [Path("unembed.bias")])
