"""The direct path beside the text's bigrams."""

import re
from math import ceil

import altair as alt
import polars as pl

from pathsum.report.figures.labels import names
from pathsum.report.figures.style import Figure, finished, inline
from pathsum.report.tokens import visible

NAMED = 10
"""Bigrams named beside their points: frequent ones that the direct path has most wrong."""
LONGEST = 12


def direct_path_against_bigrams(pairs: pl.DataFrame) -> Figure:
    """What the direct path gives a text's frequent bigrams, against the text's own; on the dashed line they are equal.

    `pairs` has `first`, `second` (tokens), `count`, `text_log_probability` and `direct_log_probability`. A point's area
    is the count.
    """
    words = [f"{_short(a)} {_short(b)}" for a, b in pairs.select("first", "second").iter_rows()]
    gap = (pl.col("direct_log_probability") - pl.col("text_log_probability")).alias("gap")
    numbers = ("count", "text_log_probability", "direct_log_probability")
    frame = pairs.select(pl.Series("bigram", words, pl.String), *numbers, gap)
    low = min([-1.0, *frame["text_log_probability"], *frame["direct_log_probability"]]) - 0.3
    across, size = (low, 0.3 - 0.25 * low), (round(420 * (0.3 - 1.25 * low) / (0.3 - low)), 420)
    plane, beyond = (alt.Scale(domain=[low, high], nice=False) for high in (0.3, across[1]))
    x = alt.X("text_log_probability:Q", scale=beyond, axis=alt.Axis(grid=False, values=[*range(ceil(low), 1)]),
              title="log-probability in the text, nats")  # fmt: skip
    y = alt.Y("direct_log_probability:Q", scale=plane, axis=alt.Axis(grid=False),
              title="log-probability by the direct path, nats")  # fmt: skip
    points = alt.Chart(inline(frame)).mark_point(filled=True, opacity=0.45).encode(
        x=x, y=y, size=alt.Size("count:Q", title="in the text", legend=alt.Legend(tickCount=3)),
        tooltip=["bigram:N", "count:Q", *(alt.Tooltip(f"{name}:Q", format=".2f") for name in numbers[1:])],
    )  # fmt: skip
    most = frame.sort(pl.col("gap").abs() * pl.col("count"), descending=True).head(NAMED)
    labels = names(most, "bigram", ("text_log_probability", "direct_log_probability"), across, (0.3, low), size)
    ends = alt.Chart(inline(pl.DataFrame({"from": [low], "to": [0.3]}))).mark_rule(strokeDash=[4, 3])
    equal = ends.encode(x=alt.X("from:Q", scale=beyond), y=alt.Y("from:Q", scale=plane), x2="to:Q", y2="to:Q")
    chart = alt.layer(equal, points, labels).properties(width=size[0], height=size[1])
    return finished(chart, "Log-probability of frequent bigrams by the direct path, against the text's own.")


def _short(token: str) -> str:
    """Long runs of spaces by their number."""
    return re.sub("·{4,}", lambda run: f"·×{len(run[0])}", visible(token))[:LONGEST]
