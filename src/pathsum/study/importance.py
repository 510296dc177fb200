"""Readings of what terms are worth on a text, in nats per token, each with its standard error over contexts.

Contexts are run a block at a time and only losses are kept, so memory does not grow with how many there are.
"""

import math
from collections.abc import Callable, Iterator
from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor

from pathsum.paths.importance import direct_and_full_losses, head_losses, order_losses
from pathsum.runs.graded import FrozenRun
from pathsum.study.reading import Rows
from pathsum.study.subject import Subject

Measure = Callable[[FrozenRun, Int[Tensor, " row"]], Tensor]
"""Of one block of contexts: numbers at the rows given, which are the last axis."""


def importance(subject: Subject) -> Rows:
    """Loss of the sum of all terms of order ≤ n on the text, and what each order adds; −1 is the uniform guess."""
    rows = subject.scored_rows
    losses = over_text(subject, order_losses, rows)
    gains = [None, *(before - after for before, after in pairwise(losses))]
    average = averages(subject, rows)
    return [
        {"order": order, **average(loss=loss, gain=gain)}
        for order, (loss, gain) in enumerate(zip(losses, gains, strict=True), start=-1)
    ]


def importance_layers(subject: Subject) -> Rows:
    """What the terms of each layer are worth on the text: alone beside the direct path, and when left out."""
    return _set_importance(subject, "layer", [f"L{layer}" for layer in range(subject.model.spec.n_layers)])


def importance_heads(subject: Subject) -> Rows:
    """What the terms of each head are worth on the text: alone beside the direct path, and when left out."""
    return _set_importance(subject, "head", subject.head_names)


def _set_importance(subject: Subject, by: str, names: list[str]) -> Rows:
    def measure(frozen: FrozenRun, rows: Int[Tensor, " row"]) -> Tensor:
        found = head_losses(frozen, by == "layer", rows)
        sets = [losses for each in found for losses in (each.individual, each.ending, each.without)]
        return torch.stack([*direct_and_full_losses(frozen, rows), *sets])

    rows = subject.scored_rows
    direct, full, *sets = over_text(subject, measure, rows)
    average, table = averages(subject, rows), []
    for index, name in enumerate(names):
        individual, ending, without = sets[3 * index : 3 * index + 3]
        values = {"gain_individual": direct - individual, "gain_ending": direct - ending}
        table.append({by: name, **average(**values, cost_without=without - full)})
    return table


# ---- over the contexts of a text ----


def over_text(subject: Subject, measure: Measure, rows: Int[Tensor, " row"]) -> Float[Tensor, "*what row"]:
    """The measure at these rows of the text, its contexts run a block at a time."""
    return torch.cat([measure(frozen, some) for frozen, some in blocks(subject, rows)], dim=-1)


def blocks(subject: Subject, rows: Int[Tensor, " row"]) -> Iterator[tuple[FrozenRun, Int[Tensor, " row"]]]:
    """Frozen runs of some contexts after the other, with the rows that fall in them; `rows` rise."""
    for start, frozen in subject.frozen_blocks():
        first, count = start * (subject.windows.shape[1] - 1), frozen.run.tokens[:, 1:].numel()
        own = rows[(rows >= first) & (rows < first + count)] - first
        if len(own):
            yield frozen, own


def averages(subject: Subject, rows: Int[Tensor, " row"]) -> Callable[..., dict[str, float | None]]:
    """A function from named numbers at rows to columns: their means, and `NAME_error` for each."""
    contexts = rows // (subject.windows.shape[1] - 1)

    def average(**values: Tensor | None) -> dict[str, float | None]:
        found = [(None, None) if each is None else mean_and_error(each, contexts) for each in values.values()]
        means = {name: mean for name, (mean, _) in zip(values, found, strict=True)}
        return means | {f"{name}_error": error for name, (_, error) in zip(values, found, strict=True)}

    return average


def mean_and_error(values: Float[Tensor, " row"], contexts: Int[Tensor, " row"]) -> tuple[float, float | None]:
    """Mean over rows, and its standard error over contexts: positions of one context are not independent.

    `√(C/(C−1) Σ_c (Σ_{rows of c} (x − mean))²) / rows`; None for a single context.
    """
    # From the first one on, so that what is the same everywhere has no error.
    mean, n = values[0] + (values - values[0]).mean(), len(values)
    which, place = contexts.unique(return_inverse=True)
    if len(which) < 2:
        return mean.item(), None
    sums = torch.zeros(len(which), dtype=values.dtype).index_add(0, place, values - mean)
    return mean.item(), math.sqrt(len(which) / (len(which) - 1) * sums.square().sum().item()) / n
