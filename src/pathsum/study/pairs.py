"""Readings of pairs of heads, the earlier of which the later one can read: weights alone."""

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, Literal

from pathsum.circuits.composition import (
    KINDS,
    Delta,
    Pairs,
    compositions,
    cyclic_score,
    distances,
    sampled_baseline,
)
from pathsum.circuits.pointers import pointer_circuit, pointers
from pathsum.circuits.spectra import embedding_gram, pair_eigenvalues, positivity
from pathsum.circuits.tables import layer_OV, layer_QK
from pathsum.errors import ExpansionTooLarge, NotApplicable
from pathsum.study.reading import Rows
from pathsum.study.subject import Subject
from pathsum.weights.positions import Rotary

MOST_PAIRS = 5_000_000
"""Rows of a table of composition at several distances."""


def composition(subject: Subject, *, delta: Delta = None, erratum: bool = False, sampled: bool = False) -> Rows:
    """Q-, K- and V-composition of all pairs of heads that can compose, beside baseline, ceiling and z; largest first.

    Where W_QK depends on the distance Δ (rotary), Q and K need `delta`: a number; several, each with rows of its own;
    or "rms", √(mean of score(Δ)²) over Δ = 0 … n_ctx − 1, with its own exact z and ceiling (one random rotation for all
    Δ together). A column `delta` then says which, null where nothing depends on it. Without it those rows are null.
    `erratum` adds the score with the cyclic permutation of the paper's first diagram, `sampled` the paper's own
    baseline (random matrices, seeded) with its standard error.
    """
    weights, spec, rows = subject.folded, subject.model.spec, []
    extra = {}
    if sampled:
        mean, error = sampled_baseline(spec.d_model, spec.d_head, seed=subject.seed)
        extra = {"sampled_baseline": mean, "sampled_error": error}
    for place, one in enumerate(_each(subject, delta)):
        for kind in KINDS:
            for later, earlier, pairs in compositions(weights, kind, one):
                turns = kind != "V" and _rotary(subject, later)
                if place and not turns:
                    continue  # the same at every distance
                own = extra if delta is None else {**extra, "delta": one if turns else None}
                cyclic = None
                if erratum and pairs is not None:
                    cyclic = cyclic_score(weights, kind, later, earlier, _single(one) if turns else None)
                for destination, source, found in _pair_rows(subject, pairs, later, earlier):
                    moved = {} if cyclic is None else {"cyclic_score": cyclic[destination, source].item()}
                    rows.append({"kind": kind, **found, **own, **moved})
    return _largest_first(rows, "effect")


def matching(subject: Subject, *, delta: float | int | None = None) -> Rows:
    """Matching score of the induction circuit of every pair, beside the pair's K-composition, largest effect first."""
    weights, rows = subject.folded, []
    gram = embedding_gram(weights)
    for later, earlier, pairs in compositions(weights, "K", delta):
        if pairs is None:
            continue
        QK, OV = layer_QK(weights, later, delta), layer_OV(weights, earlier)
        scores = [positivity(pair_eigenvalues(weights, QK[index], OV, gram)) for index in range(weights.spec.n_heads)]
        for destination, source, found in _pair_rows(subject, pairs, later, earlier):
            names = {"source": found["source"], "destination": found["destination"]}
            score = scores[destination][source].item()
            rows.append({**names, "matching_score": score, "k_effect": found["effect"], "k_z": found["z"]})
    return _largest_first(rows, "k_effect")


def pointer(subject: Subject, *, positions: int = 128) -> Rows:
    """Pointer arithmetic: where a later head looks by the position that an earlier head moved into its query.

    The table `T[p, k] = scale · (W_OV^{h1} w_p)ᵀ W_QK^{h2} w_k` over the first `positions` position vectors, rows and
    columns centred, of every pair, beside the pair's Q-composition; largest share first.
    Raises `NotApplicable` for a model without learned positions in the residual stream.
    """
    weights, rows = subject.folded, []
    if not weights.spec.learned_positions:
        raise NotApplicable(
            f"pointer arithmetic is of learned positions in the residual stream; {subject.model.name} has none"
        )
    n = min(positions, weights.spec.n_ctx)
    for later, earlier, pairs in compositions(weights, "Q"):
        circuit = pointer_circuit(weights, later, earlier, n)
        found = [pointers(circuit[reader]) for reader in range(weights.spec.n_heads)]
        for destination, source, pair in _pair_rows(subject, pairs, later, earlier):
            one = found[destination]
            row = {name: pair[name] for name in ("source", "destination")}
            row |= {name: getattr(one, name)[source].item() for name in ("share_next", "contrast", "next")}
            speaks = not math.isnan(row["contrast"])
            row |= {"offset": one.offset[source].item() if speaks else None, "q_effect": pair["effect"]}
            rows.append(row | {"q_z": pair["z"]})
    return _largest_first(rows, "share_next")


One = float | int | Literal["rms"] | None


def _each(subject: Subject, delta: Delta) -> Sequence[One]:
    """The distances one by one; "rms" and none are one. Raises `ExpansionTooLarge` for a table nobody could read."""
    spec = subject.model.spec
    if delta is None or isinstance(delta, float | int):
        return [delta]
    if delta == "rms":
        return ["rms"]
    several = distances(delta, spec.n_ctx).tolist()
    count = len(several) * 2 * math.comb(spec.n_layers, 2) * spec.n_heads**2
    if len(several) > 1 and count > MOST_PAIRS:
        raise ExpansionTooLarge(f"{count:,} rows; pass fewer distances (at most {MOST_PAIRS:,} rows in all), or 'rms'")
    return several


def _single(delta: One) -> float | int | None:
    """Raises `NotApplicable` for "rms": a cyclic score is of one distance."""
    if isinstance(delta, str):
        raise NotApplicable("the erratum's score is of one distance; pass delta= a number, or several")
    return delta


def _pair_rows(subject: Subject, pairs: Pairs | None, later: int, earlier: int) -> Iterator[tuple[int, int, Any]]:
    """Destination, source, and a pair's names and numbers; None where undefined (rotary Q and K without a distance)."""
    heads, baseline = range(subject.model.spec.n_heads), subject.model.spec.d_model**-0.5
    known = None if pairs is None else [numbers.tolist() for numbers in (pairs.score, pairs.ceiling, pairs.z)]
    for d, s in product(heads, repeat=2):
        score, ceiling, z = (None, None, None) if known is None else (numbers[d][s] for numbers in known)
        row = {"source": f"L{earlier}H{s}", "destination": f"L{later}H{d}", "score": score, "baseline": baseline}
        yield d, s, {**row, "ceiling": ceiling, "z": z, "effect": None if score is None else score - baseline}


def _rotary(subject: Subject, layer: int) -> bool:
    return isinstance(subject.model.spec.layers[layer].positions, Rotary)


def _largest_first(rows: Rows, column: str) -> Rows:
    """Sorted, undefined values last; equal values keep their order."""
    known, undefined = [], []
    for row in rows:
        (undefined if row[column] is None or math.isnan(row[column]) else known).append(row)
    return sorted(known, key=lambda row: -row[column]) + undefined
