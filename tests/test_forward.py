"""The forward pass is the slow oracle's, live, recorded and replayed."""

import dataclasses
import math

import pytest
import torch
from torch import Tensor

from cases import BY_NAME, CASES, Case, agree, case
from pathsum.errors import TextError
from pathsum.runs.attention import soft_cap
from pathsum.runs.forward import Frozen, Pass, embed, forward, logits
from pathsum.weights.weights import Weights

WITH_LAYERS = [case for case in CASES if case.spec.n_layers]
FORMS = pytest.mark.parametrize("form", ["weights", "folded"])
EVERY_CASE = pytest.mark.parametrize("case", CASES, ids=repr)
EVERY_LAYERED_CASE = pytest.mark.parametrize("case", WITH_LAYERS, ids=repr)


def logits_of(weights: Weights, done: Pass) -> Tensor:
    return logits(weights.ends, done.residual, done.final_scale)


def run(weights: Weights, tokens: Tensor) -> Pass:
    return forward(weights, tokens, record=True)


def other_tokens(case: Case) -> Tensor:
    """A text that differs from the case's at every position."""
    return (case.tokens + 1) % case.spec.d_vocab


# ---- equal to the oracle ----


@FORMS
@EVERY_CASE
def test_logits_and_residuals_are_the_oracles(case, form):
    weights = getattr(case, form)
    done = run(weights, case.tokens)
    agree(logits_of(weights, done), case.recorded.logits)
    agree(done.final_scale, case.recorded.final_scale)
    for mine, theirs in zip([*done.residuals, done.residual], case.recorded.residuals, strict=True):
        agree(mine, theirs)


@FORMS
@EVERY_LAYERED_CASE
def test_what_is_frozen_is_the_oracles(case, form):
    for mine, theirs in zip(run(getattr(case, form), case.tokens).layers, case.recorded.layers, strict=True):
        for name in ("pattern", "scores", "attention_scale", "post_attention_scale", "query_scale", "key_scale"):
            agree(getattr(mine, name), getattr(theirs, name))
        assert (mine.mlp is None) == (theirs.mlp is None)
        if mine.mlp is not None:
            agree(mine.mlp, theirs.mlp)


@EVERY_CASE
def test_capped_logits_are_the_oracles(case):
    capped = soft_cap(logits_of(case.weights, run(case.weights, case.tokens)), case.spec.logit_cap)
    agree(capped, case.recorded.capped_logits)


@EVERY_CASE
def test_every_leading_axis_is_a_batch(case):
    texts = torch.stack([case.tokens, other_tokens(case), case.tokens.flip(0)])
    together = run(case.weights, texts.reshape(3, 1, -1))
    for index, text in enumerate(texts):
        alone = run(case.weights, text)
        agree(together.residual[index, 0], alone.residual)
        agree(together.final_scale[index, 0], alone.final_scale)
        for batch, single in zip(together.layers, alone.layers, strict=True):
            agree(batch.pattern[index, 0], single.pattern)
            agree(batch.key_scale[index, 0], single.key_scale)


@EVERY_CASE
def test_one_token_attends_to_itself_alone(case):
    done = run(case.weights, case.tokens[:1])
    agree(logits_of(case.weights, done), case.recorded.logits[:1])
    for index, layer in enumerate(done.layers):
        if f"L{index}.sinks" not in case.tensors:
            agree(layer.pattern, torch.ones_like(layer.pattern))


@EVERY_CASE
def test_the_residual_starts_as_the_embedding(case):
    start = embed(case.weights, case.weights.ends, case.tokens)
    expected = case.tensors["W_E"][:, case.tokens].T
    if case.spec.learned_positions:
        expected = expected + case.tensors["W_pos"][:, : len(case.tokens)].T
    agree(start, expected)


@EVERY_LAYERED_CASE
def test_gradients_reach_every_tensor(case):
    live = case.with_tensors(**{name: tensor.clone().requires_grad_() for name, tensor in case.tensors.items()})
    logits_of(live.weights, forward(live.weights, live.tokens)).square().sum().backward()
    for name, tensor in live.tensors.items():
        assert tensor.grad is not None, name
        assert tensor.grad.abs().max() > 0, name


# ---- recorded and replayed ----


@FORMS
@EVERY_CASE
def test_replaying_what_was_recorded_gives_the_same_run(case, form):
    weights = getattr(case, form)
    done = run(weights, case.tokens)
    again = forward(weights, case.tokens, frozen=done.frozen)
    agree(again.residual, done.residual)
    agree(logits_of(weights, again), logits_of(weights, done))


@EVERY_CASE
def test_folded_and_raw_weights_replay_each_others_runs(case):
    replayed = forward(case.folded, case.tokens, frozen=run(case.weights, case.tokens).frozen)
    agree(logits_of(case.folded, replayed), case.recorded.logits)


@EVERY_LAYERED_CASE
def test_recording_a_replay_gives_back_what_was_frozen(case):
    done = run(case.weights, case.tokens)
    again = forward(case.weights, case.tokens, frozen=done.frozen, record=True)
    agree(torch.stack(again.residuals), torch.stack(done.residuals))
    for mine, theirs in zip(again.layers, done.layers, strict=True):
        for field in dataclasses.fields(mine):
            assert getattr(mine, field.name) is getattr(theirs, field.name)


@EVERY_CASE
def test_nothing_is_recorded_unless_asked_for(case):
    done = forward(case.weights, case.tokens)
    assert (done.layers, done.residuals) == ((), ())
    agree(done.residual, case.recorded.residuals[-1])


@EVERY_CASE
def test_a_frozen_run_is_affine_in_the_embedding(case):
    """`f(x) − f(0)` is linear: patterns, scales and MLP outputs are the recorded ones, whatever is embedded."""
    frozen, d = run(case.weights, case.tokens).frozen, case.tensors["W_E"]
    start = torch.randn(3, *d.shape, dtype=torch.float64)
    start[2] = 2 * start[0] - 3 * start[1]

    def frozen_logits(W_E: Tensor) -> Tensor:
        weights = case.with_tensors(W_E=W_E).weights
        return logits_of(weights, forward(weights, case.tokens, frozen=frozen))

    a, b, both = (frozen_logits(W_E) - frozen_logits(torch.zeros_like(d)) for W_E in start)
    agree(both, 2 * a - 3 * b)


@EVERY_LAYERED_CASE
def test_a_replay_uses_the_given_patterns(case):
    """With no attention at all, what remains of a layer is its bias and its MLP."""
    done = run(case.weights, case.tokens)
    blind = tuple(dataclasses.replace(layer, kept=torch.zeros_like(layer.pattern)) for layer in done.layers)
    replayed = forward(case.weights, case.tokens, frozen=Frozen(blind, done.final_scale))
    heads = frozenset((layer, head) for layer in range(case.spec.n_layers) for head in range(case.spec.n_heads))
    agree(replayed.residual, forward(case.weights, case.tokens, frozen=done.frozen, without=heads).residual)
    assert (replayed.residual - done.residual).abs().max() > 1e-3


# ---- heads left out ----


@EVERY_LAYERED_CASE
def test_leaving_a_head_out_is_setting_its_W_O_to_zero(case):
    done = run(case.weights, case.tokens)
    for name, skipped in (("L0.W_O", (0, 0)), (f"L{case.spec.n_layers - 1}.W_O", (case.spec.n_layers - 1, -1))):
        layer, head = skipped[0], skipped[1] % case.spec.n_heads
        W_O = case.tensors[name].clone()
        W_O[head] = 0
        removed = case.with_tensors(**{name: W_O}).weights
        for frozen in (None, done.frozen):
            without = forward(case.weights, case.tokens, frozen=frozen, without={(layer, head)})
            agree(without.residual, forward(removed, case.tokens, frozen=frozen).residual)
            agree(without.final_scale, forward(removed, case.tokens, frozen=frozen).final_scale)
            assert (without.residual - done.residual).abs().max() > 1e-3


@EVERY_LAYERED_CASE
def test_leaving_no_head_out_changes_nothing(case):
    agree(forward(case.weights, case.tokens, without=frozenset()).residual, case.recorded.residuals[-1])


# ---- what a position may see ----


@FORMS
@EVERY_CASE
def test_later_tokens_do_not_change_earlier_logits(case, form):
    weights, before = getattr(case, form), logits_of(getattr(case, form), run(getattr(case, form), case.tokens))
    for cut in range(1, len(case.tokens)):
        changed = torch.cat([case.tokens[:cut], other_tokens(case)[cut:]])
        after = logits_of(weights, run(weights, changed))
        agree(after[:cut], before[:cut], 1e-14)
        assert (after[cut:] - before[cut:]).abs().max() > 1e-3


@EVERY_LAYERED_CASE
def test_no_attention_goes_to_what_is_later_or_outside_the_window(case):
    n = len(case.tokens)
    lag = torch.arange(n)[:, None] - torch.arange(n)
    for facts, layer in zip(case.spec.layers, run(case.weights, case.tokens).layers, strict=True):
        seen = (lag >= 0) & (lag < (facts.window or n))
        assert (layer.pattern[:, ~seen] == 0).all()
        assert (layer.pattern[:, seen] > 0).all()


@EVERY_LAYERED_CASE
def test_rows_of_a_pattern_sum_to_one_where_there_is_no_sink(case):
    for index, layer in enumerate(run(case.weights, case.tokens).layers):
        total = layer.pattern.sum(-1)
        if f"L{index}.sinks" in case.tensors:
            assert (total < 1 - 1e-6).all()
        else:
            agree(total, torch.ones_like(total))


@pytest.mark.parametrize("window", [None, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_mask_is_minus_infinity_and_no_finite_number(dtype, window):
    """Token 1 is scored +0.6 of the largest number there is, token 0 minus that: hidden ones must not leak even so."""
    model, n = case("steep", None, window=(window,)), 6
    tokens, high = torch.tensor([0, 1, 0, 0, 0, 0]), (0.6 / 4 / 0.35 * torch.finfo(dtype).max) ** 0.5
    W_E = -torch.ones_like(model.tensors["W_E"])
    W_E[:, 1] = 1
    query = {"L0.W_Q": torch.zeros(3, 4, 8).double(), "L0.b_Q": torch.full((3, 4), high, dtype=torch.float64)}
    key = {"L0.W_K": torch.full((3, 4, 8), high / 8, dtype=torch.float64)}
    layer = run(model.with_tensors(W_E=W_E, **query, **key).weights.to(dtype), tokens).layers[0]
    lag = torch.arange(n)[:, None] - torch.arange(n)
    assert (layer.scores[..., 1] > 0.59 * torch.finfo(dtype).max).all()
    assert (layer.pattern[:, (lag < 0) | (lag >= (window or n))] == 0).all()
    agree(layer.pattern.sum(-1), torch.ones(3, n), 1e-6)


def test_a_window_of_one_sees_itself_alone():
    narrow = case("narrow", None, window=(1,))
    layer = run(narrow.weights, narrow.tokens).layers[0]
    agree(layer.pattern, torch.eye(len(narrow.tokens)).expand(3, -1, -1))


def test_a_sink_takes_the_share_of_one_more_score():
    gpt_oss = BY_NAME["gpt_oss"]
    layer = run(gpt_oss.weights, gpt_oss.tokens).layers[1]
    visible = layer.scores.masked_fill(torch.ones_like(layer.scores).triu(1).bool(), -math.inf).exp()
    total = visible.sum(-1) + gpt_oss.tensors["L1.sinks"].exp()[:, None]
    agree(layer.pattern.sum(-1), visible.sum(-1) / total)


# ---- other dtypes, and errors ----


@EVERY_CASE
def test_bfloat16_weights_run_and_stay_near(case):
    narrow = case.weights.to(torch.bfloat16)
    done = run(narrow, case.tokens)
    assert done.residual.dtype == torch.bfloat16
    agree(done.residual.double(), case.recorded.residuals[-1], 0.1)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_a_text_longer_than_the_context_is_refused_with_both_lengths(name):
    model = BY_NAME[name]
    with pytest.raises(TextError, match=r"the text has 10 tokens, the model's context is 9; shorten it to that"):
        forward(model.weights, torch.zeros(10, dtype=torch.long))
    assert forward(model.weights, torch.zeros(9, dtype=torch.long)).residual.shape == (9, model.spec.d_model)


@pytest.mark.parametrize("tokens", [[0, 11], [-1, 3]], ids=str)
def test_tokens_outside_the_vocabulary_are_refused(tokens):
    with pytest.raises(TextError, match=rf"must be from 0 to 10, got {min(tokens)} to {max(tokens)}"):
        forward(BY_NAME["gpt2"].weights, torch.tensor(tokens))


@EVERY_CASE
def test_no_tokens_give_no_logits(case):
    done = run(case.weights, torch.empty(0, dtype=torch.long))
    assert logits_of(case.weights, done).shape == (0, case.spec.d_vocab)
