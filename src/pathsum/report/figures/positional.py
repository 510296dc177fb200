"""Positional circuits: what positions alone say to a head's scores, by distance."""

import altair as alt
import polars as pl

from pathsum.report.figures.style import Figure, by_number, finished, inline, strongest_heads

ACROSS = 8


def positional_circuits(positional: pl.DataFrame) -> Figure:
    """Score against distance Δ, a panel a head: the mean as a line, one standard deviation on either side as a band.

    All panels share one scale. `positional` has `head`, `lag`, `score` and `spread`.
    """
    frame = strongest_heads(positional.drop_nulls("score"), "score")
    frame = frame.with_columns(
        (pl.col("score") - pl.col("spread")).alias("low"), (pl.col("score") + pl.col("spread")).alias("high")
    )
    heads = by_number(frame["head"].to_list())
    # A band that is wider than all means would flatten them: it is cut at the edges of the plot.
    low, high = float(frame["score"].min() or 0), float(frame["score"].max() or 0)  # type: ignore[arg-type]
    room = 0.08 * (high - low) or 1.0
    scale = alt.Scale(domain=[low - room, high + room], nice=False, zero=False)
    x = alt.X("lag:Q", title=None, axis=alt.Axis(grid=False, tickCount=4, format="d"))
    y = alt.Y("score:Q", scale=scale, title=None, axis=alt.Axis(grid=False, tickCount=3))
    base = alt.Chart().encode(x=x, tooltip=[
        "head:N", alt.Tooltip("lag:Q", title="Δ"), alt.Tooltip("score:Q", format="+.3f"),
        alt.Tooltip("spread:Q", format=".3f"),
    ])  # fmt: skip
    band = base.mark_area(opacity=0.2, clip=True).encode(y=alt.Y("low:Q", scale=scale, title=None), y2="high:Q")
    zero = alt.Chart().mark_rule(style="guide").encode(y=alt.YDatum(0, scale=scale))
    line = base.mark_line(point=alt.OverlayMarkDef(size=14), strokeWidth=1.6).encode(y=y)
    chart = alt.layer(zero, band, line).properties(width=100, height=84).facet(
        alt.Facet("head:N", sort=heads, title=None, header=alt.Header(labelFontSize=11, labelPadding=2)),
        data=inline(frame.select("head", "lag", "score", "spread", "low", "high")), columns=ACROSS, spacing=12,
    )  # fmt: skip
    return finished(chart, "What positions alone add to every head's scores, by distance, a panel a head.")
