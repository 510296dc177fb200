"""Readings made from weights alone: no text, no run."""

import math
from itertools import product

import torch

from pathsum.circuits.composition import KINDS, Delta, Pairs, cyclic_score, layer_composition, sampled_baseline
from pathsum.circuits.positional import lag_curve, positional_scores
from pathsum.circuits.spectra import (
    ov_eigenvalues,
    own_token_ranks,
    pair_eigenvalues,
    positivity,
    qk_eigenvalues,
)
from pathsum.circuits.tables import layer_OV, layer_QK, ov_circuit, qk_circuit
from pathsum.circuits.trigrams import centred_ov, centred_qk, skip_trigrams
from pathsum.errors import ExpansionTooLarge, NotApplicable
from pathsum.paths.paths import path_counts
from pathsum.study.reading import Rows
from pathsum.study.subject import Subject
from pathsum.weights.positions import Alibi, LearnedQK, Rotary, Sinusoidal
from pathsum.weights.tokens import token_strings

MOST_PER_SOURCE = 100
"""Of trigrams: the work grows with its square."""
MOST_ROWS = 100_000
"""Of a table of entries or trigrams."""


def describe(subject: Subject) -> Rows:
    """Parameters by part, sizes of expanded circuits, and path counts by order."""
    spec, rows = subject.model.spec, []
    tensors = subject.model.weights.tensors()
    parts = {"embedding": 0, "positions": 0, "attention": 0, "MLP": 0, "norms": 0, "unembedding": 0}
    for name, tensor in tensors.items():
        parts[_part(name)] += tensor.numel()
    rows += [("parameters", part, count) for part, count in parts.items() if count]
    rows += [("parameters", "total", sum(parts.values()))]
    rows += [("shape", name, getattr(spec, name)) for name in ("n_layers", "n_heads", "d_model", "d_head", "d_vocab")]
    rows += [("shape", "n_ctx", spec.n_ctx)]
    rows += [("circuit", "rank of a head's QK and OV (at most)", min(spec.d_head, spec.d_model))]
    rows += [("circuit", "entries of an expanded circuit", spec.d_vocab**2)]
    counts = path_counts(spec.n_layers, spec.n_heads)
    rows += [("paths from the embedding", f"order {order}", count) for order, count in enumerate(counts)]
    rows += [("paths from the embedding", "total", sum(counts))]
    return [{"group": group, "name": name, "value": float(value)} for group, name, value in rows]


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


def composition(subject: Subject, *, delta: Delta = None, erratum: bool = False, sampled: bool = False) -> Rows:
    """Q-, K- and V-composition of all pairs of heads that can compose, beside baseline, ceiling and z; largest first.

    `erratum` adds the score with the cyclic permutation of the paper's first diagram, `sampled` the paper's own
    baseline (random matrices, seeded) with its standard error.
    """
    weights, spec, rows = subject.folded, subject.model.spec, []
    extra = {}
    if sampled:
        mean, error = sampled_baseline(spec.d_model, spec.d_head, seed=subject.seed)
        extra = {"sampled_baseline": mean, "sampled_error": error}
    for kind, (later, earlier) in product(KINDS, _layer_pairs(subject)):
        pairs = layer_composition(weights, kind, later, earlier, delta)
        cyclic = cyclic_score(weights, kind, later, earlier) if erratum and pairs is not None else None
        for destination, source in product(range(spec.n_heads), repeat=2):
            row = {"kind": kind, "source": f"L{earlier}H{source}", "destination": f"L{later}H{destination}"}
            row |= _pair_scores(pairs, destination, source, spec.d_model**-0.5) | extra
            rows.append(row if cyclic is None else row | {"cyclic_score": cyclic[destination, source].item()})
    return _largest_first(rows, "effect")


def matching(subject: Subject, *, delta: float | int | None = None) -> Rows:
    """Matching score of the induction circuit of every pair, beside the pair's K-composition, largest effect first."""
    weights, spec, rows = subject.folded, subject.model.spec, []
    for later, earlier in _layer_pairs(subject):
        if delta is None and _rotary(subject, later):
            continue
        QK, OV = layer_QK(weights, later, delta), layer_OV(weights, earlier)
        pairs = layer_composition(weights, "K", later, earlier, delta)
        for destination in range(spec.n_heads):
            score = positivity(pair_eigenvalues(weights, QK[destination], OV))
            for source in range(spec.n_heads):
                found = _pair_scores(pairs, destination, source, spec.d_model**-0.5)
                rows.append(
                    {
                        "source": f"L{earlier}H{source}",
                        "destination": f"L{later}H{destination}",
                        "matching_score": score[source].item(),
                        "k_effect": found["effect"],
                        "k_z": found["z"],
                    }
                )
    return _largest_first(rows, "k_effect")


def positional(subject: Subject, *, lags: int = 16) -> Rows:
    """What positions alone contribute to every head's scores, as a function of lag."""
    weights, spec, rows = subject.folded, subject.model.spec, []
    for layer in range(spec.n_layers):
        if not isinstance(spec.layers[layer].positions, Sinusoidal | LearnedQK | Alibi):
            continue
        scores = positional_scores(weights, layer, subject.context_length)
        shown = scores - scores.mean(-1, keepdim=True)
        mean, spread = lag_curve(shown, min(lags, subject.context_length))
        for index in range(spec.n_heads):
            for lag in range(mean.shape[-1]):
                row = {"head": f"L{layer}H{index}", "lag": lag, "score": mean[index, lag].item()}
                rows.append({**row, "spread": spread[index, lag].item()})
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


def _layer_pairs(subject: Subject) -> list[tuple[int, int]]:
    """(later, earlier) layers, the only ones that compose."""
    return [(later, earlier) for later in range(subject.model.spec.n_layers) for earlier in range(later)]


def _pair_scores(pairs: Pairs | None, destination: int, source: int, baseline: float) -> dict[str, float | None]:
    """One pair's numbers; None where they are undefined (rotary Q and K without a distance)."""
    if pairs is None:
        return {"score": None, "baseline": baseline, "ceiling": None, "z": None, "effect": None}
    at = (destination, source)
    score = pairs.score[at].item()
    found = {"score": score, "baseline": baseline, "ceiling": pairs.ceiling[at].item(), "z": pairs.z[at].item()}
    return {**found, "effect": score - baseline}


def _head_circuits(subject: Subject, delta: float | int | None):
    weights = subject.folded
    for layer in range(weights.spec.n_layers):
        known = delta is not None or not _rotary(subject, layer)
        qk = qk_circuit(weights, layer, delta).to(torch.float32) if known else None
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


def _part(name: str) -> str:
    if "norm." in name:
        return "norms"
    if name.startswith("L"):
        return "MLP" if ".mlp." in name else "attention"
    return {"W_E": "embedding", "W_pos": "positions"}.get(name, "unembedding")


def _bounded(count: int, tables: int) -> None:
    """Raises `ExpansionTooLarge` before a table is made that nobody could read, `NotApplicable` for none at all."""
    if count < 1:
        raise NotApplicable(f"count is {count}, must be at least 1")
    if count * tables > MOST_ROWS:
        raise ExpansionTooLarge(f"{count * tables:,} rows; pass a smaller count= (at most {MOST_ROWS:,} rows in all)")


def _largest_first(rows: Rows, column: str) -> Rows:
    """Sorted, undefined values last; equal values keep their order."""
    known = [row for row in rows if row[column] is not None and not math.isnan(row[column])]
    return sorted(known, key=lambda row: -row[column]) + [row for row in rows if row not in known]
