"""A run that keeps few patterns or none makes them again, bit for bit, and so all that is read off it."""

import dataclasses
import json

import pytest
import torch
from torch import Tensor

import pathsum
from cases import BY_NAME, CASES, agree
from pathsum.errors import ExpansionTooLarge
from pathsum.paths.cross import cross
from pathsum.paths.lens import by_layer, by_order
from pathsum.paths.logits import Expansion, expand
from pathsum.paths.removal import removed
from pathsum.paths.scores import expand_scores, score_errors
from pathsum.paths.search import strongest_paths
from pathsum.paths.table import AXES
from pathsum.paths.target import logit
from pathsum.runs.run import Run, run_weights
from pathsum.study.prompt import prompt_run
from pathsum.weights.model import Model

FAST = "two-layer-small"
WITH_LAYERS = [case for case in CASES if case.spec.n_layers]
EVERY_LAYERED_CASE = pytest.mark.parametrize("case", WITH_LAYERS, ids=repr)
KEPT = pytest.mark.parametrize("kept", [0, 1])


def recorded(case, kept: int | None, tokens: Tensor | None = None) -> Run:
    tokens = case.tokens if tokens is None else tokens
    return run_weights(Model(case.name, case.weights), case.weights, tokens, patterns=kept)


def same(one: object, other: object) -> None:
    """Equal to the last bit, in every part."""
    assert type(one) is type(other)
    if isinstance(one, Tensor):
        assert torch.equal(one, other) and one.dtype == other.dtype  # type: ignore[arg-type]
    elif dataclasses.is_dataclass(one):
        for field in dataclasses.fields(one):
            same(getattr(one, field.name), getattr(other, field.name))
    elif isinstance(one, dict):
        assert list(one) == list(other)  # type: ignore[call-overload]
        same(tuple(one.values()), tuple(other.values()))  # type: ignore[attr-defined]
    elif isinstance(one, tuple | list):
        for mine, theirs in zip(one, other, strict=True):  # type: ignore[call-overload]
            same(mine, theirs)
    else:
        assert one == other


def both(case, kept: int, *, tokens: Tensor | None = None) -> tuple[Run, Run]:
    return recorded(case, kept, tokens), recorded(case, None, tokens)


@EVERY_LAYERED_CASE
@KEPT
def test_patterns_and_scores_are_made_again_bit_for_bit(case, kept):
    few, every = both(case, kept)
    n = case.spec.n_layers
    assert [layer.kept is not None for layer in few.frozen.layers] == [layer >= n - kept for layer in range(n)]
    assert all(layer.kept is not None for layer in every.frozen.layers)
    same(few.residual, every.residual)
    for mine, theirs in zip(few.frozen.layers, every.frozen.layers, strict=True):
        same(mine.pattern, theirs.kept)
        same(mine.scores, theirs.scores)
        for index in range(case.spec.n_heads):
            own = slice(index, index + 1)
            same(mine.patterns_of(own), theirs.pattern[own])
            same(mine.scores_of(own), theirs.scores[own])


@EVERY_LAYERED_CASE
@KEPT
def test_expansions_are_the_same_to_the_last_bit(case, kept):
    few, every = (expand(run) for run in both(case, kept))
    directions = torch.randn(2, case.spec.d_vocab, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def parts(expansion: Expansion) -> list:
        readout = expansion.toward(directions)
        terms = readout.terms(2)
        last = terms.paths[-1]
        alone = [readout.value(last), readout.by_position(last), expansion.term(last).logits, expansion.pattern(last)]
        tables = [cross(readout, axis, other) for axis in AXES for other in ("source", "position") if axis != other]
        lens = [by_layer(expansion.frozen), by_order(expansion.frozen)]
        sums = [expansion.by_order(), expansion.by_head(), expansion.sources, readout.by_source]
        return [*sums, terms, *alone, *tables, *lens]

    same(parts(few), parts(every))


@EVERY_LAYERED_CASE
@KEPT
def test_scores_are_the_same_to_the_last_bit(case, kept):
    few, every = both(case, kept)

    def parts(run: Run) -> list:
        scores = expand_scores(run, f"L{case.spec.n_layers - 1}H{case.spec.n_heads - 1}")
        at = scores.at([(3, 2), (4, 4)])
        return [scores.by_order(), scores.by_source(), scores.pattern, score_errors(scores.expansion),
                at.by_order, at.by_source, at.by_lag(3), at.by_path()]  # fmt: skip

    same(parts(few), parts(every))


@EVERY_LAYERED_CASE
@KEPT
def test_the_strongest_paths_are_the_same_to_the_last_bit(case, kept):
    few, every = both(case, kept)

    def parts(run: Run) -> list:
        asked = logit(run, 1)
        readout = expand(run).toward(asked.direction[None])
        found = strongest_paths(readout, 12)
        streamed = [path for path in found.paths if path.source != "unembed.bias"]
        return [found, removed(readout, asked, streamed)]

    same(parts(few), parts(every))


@KEPT
@pytest.mark.parametrize("name", ["gpt2", "gpt_oss", "qwen3"])
def test_so_are_several_texts_and_a_run_in_half_precision(name, kept):
    case = BY_NAME[name]
    texts = torch.stack([case.tokens, case.tokens.flip(0)])
    same(*(expand(run).by_order() for run in both(case, kept, tokens=texts)))
    half = dataclasses.replace(case, tensors={key: tensor.bfloat16() for key, tensor in case.tensors.items()})
    few, every = both(half, kept)
    assert few.frozen.layers[0].pattern.dtype == torch.bfloat16
    few, every = expand(few), expand(every)
    assert few.run.frozen.layers[0].pattern.dtype == torch.float32
    same([few.by_order(), few.run.frozen.layers[0].scores], [every.by_order(), every.run.frozen.layers[0].scores])


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_covectors_may_pass_a_few_at_a_time(case, monkeypatch):
    """Two orders, readings or texts at once, or one: the same sums."""
    texts = torch.stack([case.tokens, case.tokens.flip(0)])
    directions = torch.randn(3, case.spec.d_vocab, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    whole = [expand(recorded(case, None, tokens)).toward(directions).by_source for tokens in (case.tokens, texts)]
    for size in (1, 2 * case.spec.d_model * len(case.tokens)):
        monkeypatch.setattr("pathsum.runs.linear.AT_ONCE", size)
        for tokens, wanted in zip((case.tokens, texts), whole, strict=True):
            found = expand(recorded(case, None, tokens)).toward(directions).by_source
            for name, values in wanted.items():
                agree(found[name], values)


# ---- the budget of a prompt ----


@pytest.mark.parametrize("layers, kept", [(1, [False, False]), (1.9, [False, False]), (2, [True, True])])
def test_a_prompt_holds_no_more_patterns_than_its_budget_and_says_the_same(monkeypatch, layers, kept):
    """With the one that is being made again: of two layers both, or none."""
    model, prompt, size = pathsum.open(FAST), list(range(12)), 4 * 4 * 12**2
    ask = (
        lambda: pathsum.prompt_paths(model, prompt, limit=5, live=True),
        lambda: pathsum.prompt_expansion(model, prompt),
        lambda: pathsum.prompt_table(model, prompt, ["head", "position"]),
        lambda: pathsum.prompt_lens(model, prompt),
        lambda: pathsum.prompt_scores(model, prompt, "L1H0"),
    )
    wanted = [json.loads(one().to_json()) for one in ask]
    monkeypatch.setattr("pathsum.study.prompt.PATTERNS", int(layers * size))
    assert [layer.kept is not None for layer in prompt_run(model, prompt).frozen.layers] == kept
    assert [json.loads(one().to_json()) for one in ask] == wanted


def test_a_prompt_is_refused_where_not_one_layers_patterns_fit(monkeypatch):
    model = pathsum.open(FAST)
    monkeypatch.setattr("pathsum.study.prompt.PATTERNS", 4 * 4 * 12**2 - 1)
    with pytest.raises(ExpansionTooLarge, match=r"one layer's 4 heads on 12 tokens .* of at most 11 tokens"):
        prompt_run(model, list(range(12)))
    assert len(prompt_run(model, list(range(11))).tokens) == 11
