"""Readings of what terms are worth on a text, in nats per token, each with its standard error over contexts.

Contexts are run a block at a time and only losses are kept, so memory does not grow with how many there are.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from pathsum.behaviour.induction import removed_losses
from pathsum.behaviour.losses import run_losses
from pathsum.errors import ExpansionTooLarge
from pathsum.paths.importance import (
    direct_and_full_losses,
    head_losses,
    order_losses,
    path_losses,
    source_kinds,
    source_losses,
    with_heads,
)
from pathsum.runs.graded import FrozenRun
from pathsum.study.reading import Rows
from pathsum.study.subject import REMOVALS, Subject
from pathsum.weights.weights import head_index

RERUN = 5 * REMOVALS
"""Parameters × tokens that may be run where heads are removed from a text one by one: it is asked for, so that it may
take five times as long as what is not."""
Measure = Callable[[FrozenRun, Int[Tensor, " row"]], Mapping[Any, Tensor]]
"""Of one block of contexts: by name, numbers at the rows given, which are the last axis."""


def importance(subject: Subject, *, only: str | None = None, without: str | None = None) -> Rows:
    """Loss of the sum of all terms of order ≤ n on the text, and what each order adds; −1 is the uniform guess.

    `only` L0H3,L1H6: of the terms whose heads are all among these; `without` them: of those with none of these heads.
    Patterns and scales stay as recorded; a head that is left out takes its `W_O b_V` along. Raises `NotApplicable` for
    an unknown head.
    """
    every = set(_heads(subject, ",".join(subject.head_names)))
    kept = (every if only is None else _heads(subject, only)) - (set() if without is None else _heads(subject, without))

    def measure(frozen: FrozenRun, rows: Int[Tensor, " row"]) -> Mapping[int, Tensor]:
        found = order_losses(frozen if kept == every else with_heads(frozen, kept), rows)
        return dict(enumerate(found, start=-1))

    rows = subject.scored_rows
    losses = over_text(subject, measure, rows)
    gains = {-1: None} | {later: losses[earlier] - losses[later] for earlier, later in pairwise(losses)}
    average = averages(subject, rows)
    return [{"order": order, **average(loss=losses[order], gain=gains[order])} for order in losses]


def importance_layers(subject: Subject, *, live: bool = False) -> Rows:
    """What the terms of each layer are worth on the text: alone beside the direct path, and when left out.

    `live` runs the model again without each layer's heads, with all patterns, scales and MLP outputs as recorded
    (`cost_frozen`: all terms through them go, and their `W_O b_V`) and with the rest free to react (`cost_live`); then
    of fewer contexts where they would take long, unless `sequences` says how many. Raises `ExpansionTooLarge` where one
    context is too much.
    """
    return _set_importance(subject, "layer", [f"L{layer}" for layer in range(subject.model.spec.n_layers)], live)


def importance_heads(subject: Subject, *, live: bool = False) -> Rows:
    """What the terms of each head are worth on the text: alone beside the direct path, and when left out.

    `live` runs the model again without each head, with all patterns, scales and MLP outputs as recorded
    (`cost_frozen`: all terms through it go, and its `W_O b_V`) and with the rest free to react (`cost_live`); then
    of fewer contexts where they would take long, unless `sequences` says how many. Raises `ExpansionTooLarge` where one
    context is too much.
    """
    return _set_importance(subject, "head", subject.head_names, live)


def _set_importance(subject: Subject, by: str, names: list[str], live: bool) -> Rows:
    def measure(frozen: FrozenRun, rows: Int[Tensor, " row"]) -> Mapping[str, Tensor]:
        direct, full = direct_and_full_losses(frozen, rows)
        costs = _removal_costs(frozen, rows, by == "layer") if live else {}
        found = {}
        for each in head_losses(frozen, by == "layer", rows):
            values = [direct - each.individual, direct - each.ending, each.without - full]
            found[each.name] = torch.stack([*values, *costs.get(each.name, [])])
        return found

    subject = live_subject(subject, by == "layer") if live else subject
    rows = subject.scored_rows
    average, columns = averages(subject, rows), ["gain_individual", "gain_ending", "cost_without"]
    columns += ["cost_frozen", "cost_live"] * live
    found = over_text(subject, measure, rows)
    return [{by: name, **average(**dict(zip(columns, found[name], strict=True)))} for name in names]


def live_subject(subject: Subject, by_layer: bool) -> Subject:
    """What heads (or layers) are removed from: as many contexts as `RERUN` allows, or as the subject says.

    Raises `ExpansionTooLarge` where one is too much.
    """
    times = subject.model.spec.n_layers if by_layer else len(subject.head_names)
    length = subject.windows.shape[1]
    once = max(1, times * subject.parameters * length)
    fits = RERUN // once
    if subject.sequences is not None or fits >= len(subject.windows):
        return subject
    if fits:
        return replace(subject, sequences=fits)
    shorter = RERUN * length // once
    less = f"a context of at most {shorter} tokens (context=, --context), or " if shorter >= 2 else ""
    raise ExpansionTooLarge(
        f"removing {times:,} {'layers' if by_layer else 'heads'} one by one from one context of {length} tokens runs "
        f"{once:.1e} parameters × tokens, over {RERUN:.1e}; pass {less}sequences=1 (--sequences 1) to run it all the "
        "same"
    )


def _removal_costs(frozen: FrozenRun, rows: Int[Tensor, " row"], by_layer: bool) -> dict[str, Float[Tensor, "two row"]]:
    """By head or layer: what its removal adds to the losses of the model's own logits, frozen and live."""
    mask = torch.zeros(frozen.run.tokens[..., 1:].shape, dtype=torch.bool)
    mask.view(-1)[rows] = True
    whole = run_losses(frozen.run)[mask].double()
    both = [removed_losses(frozen.run, mask, replay, by_layer) for replay in (True, False)]
    return {name: torch.stack([part[name].double() - whole for part in both]) for name in both[0]}


def importance_sources(subject: Subject) -> Rows:
    """What terms are worth on the text by kind of source (embed, pos, bias, mlp) and order: alone, and when left out.

    The final bias is of kind bias and order 0.
    """

    def measure(frozen: FrozenRun, rows: Int[Tensor, " row"]) -> Mapping[tuple[str, int], Tensor]:
        full, uniform = direct_and_full_losses(frozen, rows)[1], math.log(subject.model.spec.d_vocab)
        return {
            (kind, order): torch.stack([uniform - alone, without - full])
            for kind in source_kinds(frozen)
            for order, (alone, without) in enumerate(source_losses(frozen, kind, rows))
        }

    rows = subject.scored_rows
    average = averages(subject, rows)
    return [
        {"kind": kind, "order": order, **average(gain_alone=alone, cost_without=without)}
        for (kind, order), (alone, without) in over_text(subject, measure, rows).items()
    ]


def importance_paths(subject: Subject, *, max_order: int = 2, source: str | None = None, most: int = 1000) -> Rows:
    """What each single path of up to `max_order` heads is worth on the text; the most costly to leave out first.

    Of paths from one `source` (embed, L0.mlp, …) or from all. Raises `ExpansionTooLarge` for more than `most`,
    `NotApplicable` for an unknown source.
    """

    def measure(frozen: FrozenRun, rows: Int[Tensor, " row"]) -> Mapping[Any, Tensor]:
        direct, full = direct_and_full_losses(frozen, rows)
        found = path_losses(frozen, max_order, source, rows, most)
        return {path: torch.stack([direct - added, without - full]) for path, (added, without) in found.items()}

    rows = subject.scored_rows
    average, table = averages(subject, rows), []
    for path, (gain, cost) in over_text(subject, measure, rows).items():
        worth = average(gain_individual=gain if path.order else None, cost_without=cost)
        table.append({"path": path.name, "order": path.order, **worth})
    return sorted(table, key=lambda row: -abs(row["cost_without"]))


def _heads(subject: Subject, names: str) -> set[tuple[int, int]]:
    return {head_index(name.strip(), subject.model.spec) for name in names.split(",") if name.strip()}


# ---- over the contexts of a text ----


def over_text(subject: Subject, measure: Measure, rows: Int[Tensor, " row"]) -> dict[Any, Tensor]:
    """The measure at these rows of the text, its contexts run a block at a time."""
    found = [measure(frozen, some) for frozen, some in blocks(subject, rows)]
    return {name: torch.cat([part[name] for part in found], dim=-1) for name in found[0]}


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
