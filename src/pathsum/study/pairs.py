"""Readings of pairs of heads, the earlier of which the later one can read: weights alone."""

import math
from collections.abc import Iterator
from itertools import product
from typing import Any

import torch

from pathsum.circuits.composition import Pairs
from pathsum.circuits.cut import compositions
from pathsum.circuits.pointers import pointer_circuit, pointers
from pathsum.circuits.spectra import embedding_gram, pair_eigenvalues, positivity
from pathsum.circuits.stream import Site
from pathsum.circuits.tables import layer_OV, layer_QK
from pathsum.errors import NotApplicable
from pathsum.study.reading import Rows
from pathsum.study.subject import Subject


def matching(subject: Subject, *, delta: float | int | None = None, z: int | None = None) -> Rows:
    """Matching score of the induction circuit of every pair, beside the pair's K-composition, largest effect first.

    `z`: only of pairs whose K-composition has at least this z; the others' eigenvalues are not computed. Of rotary
    heads there are rows with a distance `delta` alone.
    """
    weights, rows = subject.folded, []
    gram = embedding_gram(weights)
    for reader, writer, pairs in compositions(weights, ("K",), (delta,)):
        later, earlier = _layers(reader, writer)
        if pairs is None:
            continue
        QK, OV = layer_QK(weights, later, delta), layer_OV(weights, earlier)
        asked = pairs.z >= z if z is not None else torch.ones_like(pairs.z, dtype=torch.bool)
        scores = torch.full_like(pairs.score, torch.nan, dtype=torch.float64)
        for index in asked.any(1).nonzero()[:, 0].tolist():
            scores[index, asked[index]] = positivity(
                pair_eigenvalues(weights, QK[index], OV[asked[index].nonzero()[:, 0]], gram)
            )
        for destination, source, found in _pair_rows(subject, pairs, later, earlier):
            if asked[destination, source]:
                names = {"source": found["source"], "destination": found["destination"]}
                score = scores[destination, source].item()
                rows.append({**names, "matching_score": score, "k_effect": found["effect"], "k_z": found["z"]})
    return _largest_first(rows, "k_effect")


def pointer(subject: Subject, *, positions: int = 128) -> Rows:
    """Pointer arithmetic: where a later head looks by the position that an earlier head moved into its query.

    The table `T[p, k] = scale · (W_OV^{h1} w_p)ᵀ W_QK^{h2} w_k` over the first `positions` position vectors, rows and
    columns centred, of every pair, beside the pair's Q-composition; largest share first.
    Raises `NotApplicable` for a model without learned positions in the residual stream, or fewer than 2 `positions`.
    """
    weights, rows = subject.folded, []
    if not weights.spec.learned_positions:
        raise NotApplicable(
            f"pointer arithmetic is of learned positions in the residual stream; {subject.model.name} has none"
        )
    if positions < 2:
        raise NotApplicable(f"positions is {positions}; a step from one to the next takes at least 2")
    n = min(positions, weights.spec.n_ctx)
    for reader, writer, pairs in compositions(weights, ("Q",)):
        later, earlier = _layers(reader, writer)
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


def _layers(reader: Site, writer: Site) -> tuple[int, int]:
    """Of two sites of heads: the later layer and the earlier one."""
    return reader.layer or 0, writer.layer or 0


def _pair_rows(subject: Subject, pairs: Pairs | None, later: int, earlier: int) -> Iterator[tuple[int, int, Any]]:
    """Destination, source, and a pair's names and numbers; None where undefined (rotary Q and K without a distance)."""
    heads, baseline = range(subject.model.spec.n_heads), subject.model.spec.d_model**-0.5
    known = None if pairs is None else [numbers.tolist() for numbers in (pairs.score, pairs.ceiling, pairs.z)]
    for d, s in product(heads, repeat=2):
        score, ceiling, z = (None, None, None) if known is None else (numbers[d][s] for numbers in known)
        row = {"source": f"L{earlier}H{s}", "destination": f"L{later}H{d}", "score": score, "baseline": baseline}
        yield d, s, {**row, "ceiling": ceiling, "z": z, "effect": None if score is None else score - baseline}


def _largest_first(rows: Rows, column: str) -> Rows:
    """Sorted, undefined values last; equal values keep their order."""
    known: Rows = []
    undefined: Rows = []
    for row in rows:
        (undefined if row[column] is None or math.isnan(row[column]) else known).append(row)
    return sorted(known, key=lambda row: -row[column]) + undefined
