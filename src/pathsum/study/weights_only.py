"""Readings made from weights alone: no text, no run."""

from itertools import product

import torch

from pathsum.circuits.positional import lag_curve, matching_curve, positional_scores, rotary_curve
from pathsum.circuits.spectra import (
    embedding_gram,
    ov_eigenvalues,
    own_token_ranks,
    positivity,
    qk_eigenvalues,
)
from pathsum.circuits.tables import ov_circuit, score_circuit
from pathsum.circuits.trigrams import centred_ov, centred_qk, skip_trigrams
from pathsum.errors import ExpansionTooLarge, NotApplicable
from pathsum.study.reading import Rows
from pathsum.study.subject import Subject
from pathsum.weights.positions import Rotary
from pathsum.weights.tokens import token_strings

MOST_PER_SOURCE = 100
"""Of trigrams: the work grows with its square."""
MOST_ROWS = 100_000
"""Of a table of entries or trigrams."""


def spectra(subject: Subject, *, delta: float | int | None = None) -> Rows:
    """Copying and matching score, and copying by own-token rank, per head."""
    weights, rows = subject.folded, []
    for layer in range(weights.spec.n_layers):
        copying = positivity(ov_eigenvalues(weights, layer))
        matching = _matching(subject, layer, delta)
        ov = ov_circuit(weights, layer).to(torch.float32)
        for index in range(weights.spec.n_heads):
            ranks = own_token_ranks(ov[index])
            ranks = ranks[~ranks.isnan()]
            rows.append(
                {
                    "head": f"L{layer}H{index}",
                    "copying_score": copying[index].item(),
                    "matching_score": matching[index],
                    "own_token_rank": ranks.mean().item() / max(weights.spec.d_vocab - 1, 1),
                    "own_token_top": (ranks == 0).double().mean().item(),
                }
            )
    return rows


def eigenvalues(subject: Subject, *, delta: float | int | None = None) -> Rows:
    """The non-zero eigenvalues of every head's OV and QK circuits over tokens."""
    weights, rows = subject.folded, []
    for layer in range(weights.spec.n_layers):
        found = {"OV": ov_eigenvalues(weights, layer)}
        if delta is not None or not _rotary(subject, layer):
            found["QK"] = qk_eigenvalues(weights, layer, delta)
        for circuit, values in found.items():
            for index, head_values in enumerate(values):
                rows += [
                    {"head": f"L{layer}H{index}", "circuit": circuit, "real": v.real.item(), "imaginary": v.imag.item()}
                    for v in head_values
                ]
    return rows


def positional(subject: Subject, *, lags: int = 16) -> Rows:
    """What positions alone contribute to every head's scores, as a function of lag.

    Rotary: the mean over all pairs of tokens at that distance (embeddings as they are, each token counted once), and
    the matching score of W_QK at that distance.
    """
    weights, rows, n = subject.folded, [], subject.context_length
    gram = (
        embedding_gram(weights) if any(isinstance(facts.positions, Rotary) for facts in weights.spec.layers) else None
    )
    for layer, facts in enumerate(weights.spec.layers):
        matching: list[list[float | None]] = [[None] * lags] * weights.spec.n_heads
        if isinstance(facts.positions, Rotary):
            mean, spread = rotary_curve(weights, layer, torch.arange(n, dtype=torch.float64), gram)
            mean = mean - mean.mean(-1, keepdim=True)
            near = torch.arange(min(lags, n), dtype=torch.float64)
            matching = matching_curve(weights, layer, near, gram).tolist()
        elif facts.positions is not None or weights.spec.learned_positions:
            scores = positional_scores(weights, layer, n)
            mean, spread = lag_curve(scores - scores.mean(-1, keepdim=True), min(lags, n))
        else:
            continue
        for index, lag in product(range(weights.spec.n_heads), range(min(lags, n))):
            row = {"head": f"L{layer}H{index}", "lag": lag, "score": mean[index, lag].item()}
            rows.append({**row, "spread": spread[index, lag].item(), "matching_score": matching[index][lag]})
    return rows


def entries(subject: Subject, *, count: int = 10, delta: float | int | None = None) -> Rows:
    """The strongest entries of every head's QK and OV table, over the full vocabulary."""
    _bounded(count, 2 * len(subject.head_names))
    rows = []
    for layer, index, qk, ov in _head_circuits(subject, delta):
        for circuit, table in (("QK", qk), ("OV", ov)):
            if table is None:
                continue
            values, first, second = table.largest(count)
            left, right = token_strings(subject.model, first), token_strings(subject.model, second)
            for rank in range(len(values)):
                rows.append(
                    {
                        "head": f"L{layer}H{index}",
                        "circuit": circuit,
                        "rank": rank + 1,
                        "row": left[rank],
                        "source": right[rank],
                        "value": values[rank].item(),
                    }
                )
    return rows


def trigrams(subject: Subject, *, count: int = 10, per_source: int = 1, delta: float | int | None = None) -> Rows:
    """The strongest skip-trigrams `[source] … [destination] → [out]` of every head."""
    _bounded(count, len(subject.head_names))
    if not 1 <= per_source <= MOST_PER_SOURCE:
        raise ExpansionTooLarge(f"per_source is {per_source}; it may be 1 to {MOST_PER_SOURCE}")
    rows = []
    for layer, index, qk, ov in _head_circuits(subject, delta):
        if qk is None:
            continue
        found = skip_trigrams(qk, ov, count, per_source)
        names = [token_strings(subject.model, part) for part in (found.source, found.destination, found.out)]
        for rank in range(len(found.qk)):
            rows.append(
                {
                    "head": f"L{layer}H{index}",
                    "rank": rank + 1,
                    "source": names[0][rank],
                    "destination": names[1][rank],
                    "out": names[2][rank],
                    "effect": found.effect[rank].item(),
                    "qk": found.qk[rank].item(),
                    "ov": found.ov[rank].item(),
                }
            )
    return rows


def _head_circuits(subject: Subject, delta: float | int | None):
    weights = subject.folded
    for layer in range(weights.spec.n_layers):
        known = delta is not None or not _rotary(subject, layer)
        qk = score_circuit(weights, layer, delta).to(torch.float32) if known else None
        ov = ov_circuit(weights, layer).to(torch.float32)
        scale = weights.spec.layers[layer].score_scale
        for index in range(weights.spec.n_heads):
            yield layer, index, None if qk is None else centred_qk(qk[index], scale), centred_ov(ov[index])


def _matching(subject: Subject, layer: int, delta: float | int | None) -> list[float | None]:
    try:
        return positivity(qk_eigenvalues(subject.folded, layer, delta)).tolist()
    except NotApplicable:
        return [None] * subject.model.spec.n_heads


def _rotary(subject: Subject, layer: int) -> bool:
    return isinstance(subject.model.spec.layers[layer].positions, Rotary)


def _bounded(count: int, tables: int) -> None:
    """Raises `ExpansionTooLarge` before a table is made that nobody could read, `NotApplicable` for none at all."""
    if count < 1:
        raise NotApplicable(f"count is {count}, must be at least 1")
    if count * tables > MOST_ROWS:
        raise ExpansionTooLarge(f"{count * tables:,} rows; pass a smaller count= (at most {MOST_ROWS:,} rows in all)")
