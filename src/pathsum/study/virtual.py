"""The reading `virtual`: every virtual head of a model, by what it does on a text."""

from collections.abc import Mapping
from itertools import product
from typing import Any

from jaxtyping import Int
from torch import Tensor

from pathsum.circuits.cut import compositions
from pathsum.circuits.spectra import pair_eigenvalues, positivity, through_tokens
from pathsum.paths.importance import direct_and_full_losses
from pathsum.paths.virtual import Pair, head_pairs, pair_losses, pair_squares
from pathsum.runs.graded import FrozenRun
from pathsum.study.importance import averages, over_text
from pathsum.study.reading import Rows
from pathsum.study.subject import SCORED, Subject


def virtual(subject: Subject, *, pairs: int | None = None) -> Rows:
    """Virtual heads, (A^{h2} A^{h1}) ⊗ (W_OV^{h2} W_OV^{h1}): all terms whose last two heads are h1 and h2.

    Their size on the text is that of every pair; the loss without them, and the copying score, of the `pairs` largest
    in size: as many as keep within the logits that `importance_heads` may make, unless asked otherwise. These come
    first, the most costly on top, then the others by size.
    """
    every, v_composition = head_pairs(subject.model.spec), _v_composition(subject)
    subject.forget("folded")  # before anything is run
    rows = subject.scored_rows
    squares = over_text(subject, lambda frozen, some: {"all": pair_squares(frozen, some)}, rows)["all"]
    sizes = dict(zip(every, squares.double().mean(1).sqrt().tolist(), strict=True))
    every.sort(key=lambda pair: -sizes[pair])
    most = max(1, SCORED // (len(rows) * subject.model.spec.d_vocab)) if pairs is None else pairs
    costs = _costs(subject, every[:most], rows)
    every[:most] = sorted(costs, key=lambda pair: -abs(costs[pair]["cost_without"]))
    return [
        {**_names(pair), "size": sizes[pair], **costs.get(pair, NOT_SCORED), **v_composition[pair]} for pair in every
    ]


NOT_SCORED: dict[str, Any] = dict.fromkeys(("cost_without", "cost_without_error", "copying_score"))


def _names(pair: Pair) -> dict[str, Any]:
    source, destination = (f"L{layer}H{index}" for layer, index in pair)
    return {"source": source, "destination": destination}


def _costs(subject: Subject, pairs: list[Pair], rows: Tensor) -> dict[Pair, dict[str, Any]]:
    """What leaving each pair's terms out costs, and its copying score."""

    def measure(frozen: FrozenRun, some: Int[Tensor, " row"]) -> Mapping[Pair, Tensor]:
        full = direct_and_full_losses(frozen, some)[1]
        return dict(zip(pairs, pair_losses(frozen, pairs, some) - full, strict=True))

    costs = over_text(subject, measure, rows)
    average, weights = averages(subject, rows), subject.frozen_weights
    through, found = through_tokens(weights), {}
    for (earlier, later), cost in costs.items():
        first, second = (weights.attention(layer).head(index).OV for layer, index in (earlier, later))
        copying = positivity(pair_eigenvalues(weights, second, first, through)).item()
        found[earlier, later] = {**average(cost_without=cost), "copying_score": copying}
    return found


def _v_composition(subject: Subject) -> dict[Pair, dict[str, float]]:
    found: dict[Pair, dict[str, float]] = {}
    heads = range(subject.model.spec.n_heads)
    for reader, writer, pairs in compositions(subject.folded, ("V",)):
        if pairs is None or reader.layer is None or writer.layer is None:
            continue
        effects, zs = (pairs.score - pairs.baseline).tolist(), pairs.z.tolist()
        for later, earlier in product(heads, heads):
            pair = (writer.layer, earlier), (reader.layer, later)
            found[pair] = {"v_effect": effects[later][earlier], "v_z": zs[later][earlier]}
    return found
