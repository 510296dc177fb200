"""Readings made from runs: on a text, and on random tokens repeated three times."""

import torch

from pathsum.behaviour.attention import lag_profile, prefix_matching, start_token_rest
from pathsum.behaviour.bigrams import compare_bigrams, frequent_pairs
from pathsum.behaviour.induction import copying_on_sequence, removal_losses, repeat_rows
from pathsum.behaviour.losses import in_context_score, in_context_tokens, run_losses
from pathsum.circuits.cut import compositions
from pathsum.errors import NotApplicable
from pathsum.paths.logits import expand
from pathsum.paths.scores import score_errors
from pathsum.runs.graded import FrozenRun
from pathsum.runs.run import run_weights
from pathsum.study.reading import Rows
from pathsum.study.subject import Subject
from pathsum.weights.tokens import token_strings

INDUCTION_THRESHOLDS = {"prefix_matching": 0.3, "copying": 0.5, "causal_effect": 0.1}
"""A head that reaches all three is called an induction head: attention, nats, nats."""
MOST_BIGRAMS = 100_000
PARTNER_Z = 10.0
"""K-composition z from which an earlier head counts as a partner."""


def reconstruction(subject: Subject) -> Rows:
    """Relative error of the expansion: sum of all terms against logits, and of score terms against scores.

    On the text's first 128 tokens, or on a sample that ships; `max|Σ terms − value| / max|value|`, the worst head's.
    """
    rows = []
    for dtype in (torch.float32, torch.float64):
        # Each layer is converted when it runs: the model is never in memory in float64.
        recorded = run_weights(subject.model, subject.raw.to(dtype), subject.sample_tokens)
        _ = recorded.uncapped_logits  # made now, before the folded weights are in memory beside the raw ones
        expansion = expand(recorded)
        errors = {"logits": expansion.check()}
        if subject.head_names:
            errors["attention scores"] = max(score_errors(expansion).values())
        name = str(dtype).removeprefix("torch.")
        rows += [{"quantity": quantity, "dtype": name, "error": error} for quantity, error in errors.items()]
    return rows


def bigrams(subject: Subject) -> Rows:
    """The direct path `W_U W_E` against the text's bigram table: loss of the path = entropy + KL.

    Counted in the whole text; nothing is run.
    """
    tokens = subject.text_tokens
    found = compare_bigrams(subject.raw, tokens[None, :])
    row = {
        "bigrams": found.tokens,
        "unigram_entropy": found.unigram_entropy,
        "bigram_entropy": found.entropy,
        "direct_path_loss": found.loss,
        "kl": found.kl,
        "rank_correlation": found.rank_correlation,
    }
    return [row]


def bigram_pairs(subject: Subject, *, count: int = 400) -> Rows:
    """The `count` most frequent bigrams of the text: what the direct path `W_U W_E` gives them, beside the text.

    Counted in the whole text; nothing is run. Raises `NotApplicable` for a count below 1 or over 100,000.
    """
    if not 1 <= count <= MOST_BIGRAMS:
        raise NotApplicable(f"count is {count}, must be from 1 to {MOST_BIGRAMS:,}")
    found = frequent_pairs(subject.raw, subject.text_tokens[None, :], count)
    first, second = token_strings(subject.model, found.first), token_strings(subject.model, found.second)
    numbers = (found.count.tolist(), found.text.tolist(), found.direct_path.tolist())
    names = ("first", "second", "count", "text_log_probability", "direct_log_probability")
    return [dict(zip(names, row, strict=True)) for row in zip(first, second, *numbers, strict=True)]


def attention(subject: Subject) -> Rows:
    """Previous-token score and lag profile of every head, on the text."""
    profile = _per_head(subject.text_run.frozen, lambda layer: lag_profile(layer.pattern))
    return [
        {
            "head": name,
            "previous_token": lags[1].item(),
            **{f"lag_{lag}": value.item() for lag, value in enumerate(lags)},
        }
        for name, lags in zip(subject.head_names, profile, strict=True)
    ]


def induction(subject: Subject) -> Rows:
    """The three tests of an induction head, on random tokens repeated three times, and on the text."""
    if not subject.model.spec.n_layers:
        return []
    subject.forget("folded")  # before anything is run
    partners = k_partners(subject)
    repeats, text = _attention_scores(subject.frozen_repeats), _attention_scores(subject.frozen_text)
    start = subject.repeated_tokens.shape[1] - 3 * subject.block_length
    removal = subject.removal_run
    rows_mask = repeat_rows(removal.tokens, subject.block_length, start)
    base = run_losses(removal)[rows_mask].mean().item()
    live = removal_losses(removal, rows_mask, frozen=False)
    frozen = removal_losses(removal, rows_mask, frozen=True)
    rows = []
    for index, name in enumerate(subject.head_names):
        scores = {key: values[index] for key, values in repeats.items()}
        scores |= {"causal_effect": live[name] - base, "causal_effect_frozen": frozen[name] - base}
        passed = all(scores[key] >= low for key, low in INDUCTION_THRESHOLDS.items())
        scores |= {f"{key}_text": values[index] for key, values in text.items()}
        rows.append({"head": name, "partner": partners.get(name), "is_induction_head": passed, **scores})
    return rows


def k_partners(subject: Subject) -> dict[str, str]:
    """For each head the earlier head of the largest K-composition above baseline with z ≥ 10, where there is one.

    Of rotary heads: the root mean square over the distances of the context.
    """
    best: dict[str, tuple[float, str]] = {}
    for reader, writer, pairs in compositions(subject.frozen_weights, ("K",), ("rms",)):
        if pairs is None:
            continue
        sure = torch.where(pairs.z >= PARTNER_Z, pairs.score - pairs.baseline, 0.0)
        effects, places = (found.tolist() for found in sure.max(1))
        for head, effect, place in zip(reader.names, effects, places, strict=True):
            if effect > best.get(head, (0.0, ""))[0]:
                best[head] = effect, writer.names[place]
    return {head: partner for head, (_, partner) in best.items()}


def repeats(subject: Subject) -> Rows:
    """Loss in the first, second and third copy of the repeated random tokens."""
    losses = run_losses(subject.repeats)
    block = subject.block_length
    start = subject.repeated_tokens.shape[1] - 3 * block
    rows = []
    for copy in range(3):
        # Predicting the first token of a copy is no repeat of anything: a copy's losses start at its second token.
        first = start + copy * block
        rows.append({"copy": copy + 1, "loss": losses[:, first : first + block - 1].mean().item()})
    return rows


def in_context(subject: Subject) -> Rows:
    """The in-context score on the text: the late token's loss less the early token's.

    Over up to eight times `sequences` contexts. Raises `NotApplicable` for contexts too short to have two such tokens.
    """
    losses, (early, late) = subject.position_losses, _compared(subject)
    scores = in_context_score(losses, early, late)
    count = len(scores)
    row = {
        "sequences": count,
        "early_token": early,
        "late_token": late,
        "early_loss": losses[:, early - 2].mean().item(),
        "late_loss": losses[:, late - 2].mean().item(),
        "score": scores.mean().item(),
        "error": scores.std().item() / count**0.5 if count > 1 else None,
        "mean_loss": losses.mean().item(),
    }
    return [row]


def loss_by_position(subject: Subject) -> Rows:
    """Loss of predicting each token of a context, over the contexts of the in-context score, whose two are marked.

    Raises `NotApplicable` where a context is too short for two such tokens.
    """
    losses, (early, late) = subject.position_losses, _compared(subject)
    count, marks = len(losses), {early: "early", late: "late"}
    errors = losses.std(0) / count**0.5 if count > 1 else None
    return [
        {
            "token": token,
            "loss": loss,
            "loss_error": None if errors is None else errors[token - 2].item(),
            "compared": marks.get(token, ""),
        }
        for token, loss in enumerate(losses.mean(0).tolist(), start=2)
    ]


def _compared(subject: Subject) -> tuple[int, int]:
    """The early and the late token, counted from 1. Raises `NotApplicable` for a context that has no two such."""
    length = subject.position_losses.shape[1] + 1
    early, late = in_context_tokens(subject.model.spec, length)
    if late <= early:
        raise NotApplicable(f"a context of {length} tokens is too short to compare a late with an early one")
    return early, late


def _attention_scores(frozen: FrozenRun) -> dict[str, list[float]]:
    tokens = frozen.run.tokens
    return {
        "prefix_matching": _per_head(frozen.run.frozen, lambda x: prefix_matching(x.pattern, tokens)).tolist(),
        "start_token": _per_head(frozen.run.frozen, lambda x: start_token_rest(x.pattern, tokens)).tolist(),
        "copying": torch.cat(copying_on_sequence(frozen)).tolist(),
    }


def _per_head(frozen, measure) -> torch.Tensor:
    parts = [measure(layer) for layer in frozen.layers]
    return torch.cat(parts) if parts else torch.empty(0)
