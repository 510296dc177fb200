"""Composition over training, on the page of a model whose folder has the checkpoints of its run (`step-…`).

The page has few of them, within a stated amount of work, evenly spread in their order; a sweep reads all.
"""

from dataclasses import dataclass
from math import comb
from typing import Any

import polars as pl

from pathsum.errors import PathsumError
from pathsum.report.figures import composition_over_training
from pathsum.report.gallery import Drawing
from pathsum.report.numbers import count
from pathsum.report.partners import composition_pairs
from pathsum.report.tokens import printable
from pathsum.study.result import Result, read_one, report_options
from pathsum.study.series import Checkpoint, checkpoints
from pathsum.study.subject import Subject
from pathsum.weights.checkpoint import open_model
from pathsum.weights.model import Model
from pathsum.weights.spec import Spec

MOST = 12
"""Checkpoints that are read."""
WORK = 50_000_000_000
"""Pairs × d_model² of all checkpoints together: half a minute or so (3.5e10 took 18 s on two busy cores)."""


@dataclass(frozen=True)
class OnTheWay:
    """The figure, and what its numbers stand on."""

    drawing: Drawing
    checkpoints: list[dict[str, Any]]
    """`name`, `tokens` and `weights_sha256` of each."""


def on_the_way(model: Model, results: dict[str, Result]) -> OnTheWay | None:
    """Composition at some checkpoints of the model's run; None where there are no two, or nothing composes."""
    saved = saved_on_the_way(model)
    chosen = evenly(saved, min(MOST, WORK // max(1, work_of(model.spec))))
    if len(chosen) < 2 or composition_pairs(results).is_empty():
        return None
    frames: dict[int, pl.DataFrame] = {}
    facts, refused = [], []
    for one in chosen:
        try:
            there = Subject(open_model(one.place))
            found = read_one("composition", there, **report_options("composition", there.model.spec))
        except PathsumError:
            refused.append(one.name)
            continue
        frames[one.tokens or 0] = found.frame
        facts.append({"name": one.name, "tokens": one.tokens, "weights_sha256": there.digest})
    if len(frames) < 2:
        return None
    caption = (
        f"Effects of the pairs of heads at {count(len(frames))} of the {count(len(saved))} checkpoints in the model's "
        "folder; named are those strongest at the end."
    )
    if refused:
        caption += f" Not readable: {', '.join(map(printable, refused))}."
    figure = composition_over_training(frames)
    return OnTheWay(Drawing("over_training", "composition", "Composition over training", caption, figure), facts)


def saved_on_the_way(model: Model) -> list[Checkpoint]:
    """The checkpoints in the model's folder that say how many tokens they had seen, each number once, in order."""
    if model.path is None or not any(model.path.glob("step-*/config.json")):
        return []
    found = [one for one in checkpoints(str(model.path)) if one.name.startswith("step-") and one.tokens is not None]
    return list({one.tokens: one for one in found}.values())


def work_of(spec: Spec) -> int:
    """Of one checkpoint's composition."""
    return 3 * comb(spec.n_layers, 2) * spec.n_heads**2 * spec.d_model**2


def evenly(saved: list[Checkpoint], most: int) -> list[Checkpoint]:
    """Up to `most`, the first and the last among them."""
    if len(saved) <= most:
        return saved
    return [saved[round(place * (len(saved) - 1) / (most - 1))] for place in range(most)] if most > 1 else []
