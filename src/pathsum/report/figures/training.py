"""How composition comes about: pairs of heads over training."""

from collections.abc import Mapping
from math import log10
from typing import Any

import altair as alt
import polars as pl

from pathsum.errors import StudyError
from pathsum.report.figures.labels import names, room_for_names
from pathsum.report.figures.style import KINDS, Figure, finished, inline

MOST_NAMED = 10
"""Pairs drawn in full and named: those of the largest effect at the end."""
FAINT = 40
"""Other pairs, drawn faintly."""
SIZE = 640, 340
TOKENS = "format(pow(10, datum.value), '~s')"


def composition_over_training(frames: Mapping[int, pl.DataFrame], seen: str = "tokens") -> Figure:
    """Effects of pairs of heads against tokens seen (or `seen` "step"); those strongest at the end are named.

    `frames` maps tokens seen to the table of the reading `composition` at that checkpoint. Raises `StudyError` for
    fewer than two.

    >>> composition_over_training({seen: pathsum.composition(pathsum.open(folder)).frame for seen, folder in saved})
    """
    if len(frames) < 2:
        raise StudyError(f"composition over training takes two checkpoints or more, got {len(frames)}")
    every = pl.concat([_known(frame, at) for at, frame in sorted(frames.items())])
    # A model that has seen nothing is drawn at the left edge, half as far as the first that has.
    least = min(at for at in frames if at > 0) / 2
    every = every.with_columns(pl.max_horizontal("tokens", pl.lit(least)).log10().alias("power"))
    last = every.filter(pl.col("tokens") == max(frames)).sort("effect", descending=True)
    named = last.filter(pl.col("effect") > 0).head(MOST_NAMED)
    others = last.filter(~pl.col("pair").is_in(named["pair"].implode())).head(FAINT)
    shown = every.filter(pl.col("pair").is_in([*named["pair"], *others["pair"]]))
    across, down = room_for_names(every["power"]), span(shown["effect"])
    title = "tokens seen (logarithmic)" if seen == "tokens" else "step (logarithmic)"
    x = alt.X("power:Q", title=title, scale=alt.Scale(domain=[*across], nice=False),
              axis=alt.Axis(grid=False, values=ticks(every["power"]), labelExpr=TOKENS))  # fmt: skip
    y = alt.Y("effect:Q", title="composition above chance", axis=alt.Axis(grid=False),
              scale=alt.Scale(domain=[down[1], down[0]], nice=False))  # fmt: skip
    color = alt.Color("kind:N", scale=alt.Scale(domain=KINDS), title="composition")
    dashes = alt.Scale(domain=KINDS, range=[[10, 4], [1, 0], [3, 3]])
    strong = alt.Chart(inline(_of(every, named))).mark_line(strokeWidth=2).encode(
        x=x, y=y, detail="pair:N", tooltip=_tooltip(), color=color,
        strokeDash=alt.StrokeDash("kind:N", scale=dashes, title="composition"),
    )  # fmt: skip
    faint = alt.Chart(inline(_of(every, others))).mark_line(style="guide", strokeWidth=1)
    zero = alt.Chart(inline(pl.DataFrame({"zero": [0]}))).mark_rule(style="guide").encode(y="zero:Q")
    labels = names(named, "pair", ("power", "effect"), across, down, SIZE)
    chart = alt.layer(zero, faint.encode(x=x, y=y, detail="pair:N", tooltip=_tooltip()), strong, labels)
    description = "Composition of pairs of heads against tokens seen in training, the strongest named."
    return finished(chart.properties(width=SIZE[0], height=SIZE[1]), description)


def span(effects: pl.Series) -> tuple[float, float]:
    """From the top down, 0 within, with a little room."""
    high, low = max(0.0, *effects), min(0.0, *effects)
    room = 0.04 * (high - low) or 1.0
    return high + room, low - room


def ticks(powers: pl.Series) -> list[float]:
    """1, 2 and 5 times the powers of ten that the run passes."""
    low, high = float(powers.min() or 0), float(powers.max() or 0)  # type: ignore[arg-type]
    every = [power + log10(step) for power in range(int(low), int(high) + 1) for step in (1, 2, 5)]
    return [place for place in every if low <= place <= high]


def _known(frame: pl.DataFrame, seen: int) -> pl.DataFrame:
    known = frame.filter(pl.col("kind").is_in(KINDS)).with_columns(pl.col("effect").cast(pl.Float64).fill_nan(None))
    pair = pl.format("{} {} → {}", "kind", "source", "destination").alias("pair")
    return known.drop_nulls("effect").select("kind", pair, "effect", pl.lit(seen).alias("tokens"))


def _of(every: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
    return every.filter(pl.col("pair").is_in(pairs["pair"].implode()))


def _tooltip() -> list[Any]:
    return [
        alt.Tooltip("pair:N"),
        alt.Tooltip("tokens:Q", format=","),
        alt.Tooltip("effect:Q", format="+.4f"),
    ]
