"""The logit lens drawn: what partial sums of terms say of one token, step by step."""

from typing import Any

import altair as alt
import polars as pl

from pathsum.report.figures.style import Figure, axis, finished, inline
from pathsum.report.tokens import visible

SCALES = ["frozen", "recomputed"]
TITLES = {"layer": "the stream before each layer", "order": "terms of at most so many heads"}
LONGEST = 14


def logit_lens(rows: list[dict[str, Any]], asked: dict[str, Any]) -> Figure:
    """Log-probability of the token asked for, by layer and by order, with both final scales, and what comes first.

    `rows` and `asked` are those of `prompt_lens`. Frozen (solid, circles): the run's own final scale; recomputed
    (dashed, squares): that of the partial sum.
    """
    word = visible(asked["token_string"], LONGEST)
    charts = [_panel([row for row in rows if row["part"] == part], title, word) for part, title in TITLES.items()]
    chart = alt.hconcat(*charts, spacing=30)
    return finished(chart, f"Log-probability of {word} in partial sums of terms, by layer and by order.")


def _panel(rows: list[dict[str, Any]], title: str, word: str) -> Any:
    steps = [row["step"] for row in rows]
    points = pl.DataFrame([
        {"step": row["step"], "place": place, "scale": how, "log_probability": row[f"{how}_log_probability"],
         "rank": row[f"{how}_rank"], "first": visible(row[f"{how}_first"], LONGEST)}
        for place, row in enumerate(rows) for how in SCALES
    ])  # fmt: skip
    y = alt.Y("step:N", sort=steps, title=None, axis=axis())
    base = alt.Chart(inline(points)).encode(
        x=alt.X("log_probability:Q", title=f"log-probability of {word}, nats", axis=alt.Axis(tickCount=5)), y=y,
        color=alt.Color("scale:N", scale=alt.Scale(domain=SCALES), title="final scale",
                        legend=alt.Legend(symbolStrokeWidth=0)),
        tooltip=["step:N", "scale:N", alt.Tooltip("log_probability:Q", format=".3f"),
                 alt.Tooltip("rank:Q", title="logits above it"), alt.Tooltip("first:N", title="first choice")],
    )  # fmt: skip
    dash = alt.StrokeDash("scale:N", scale=alt.Scale(domain=SCALES), title="final scale")
    shape = alt.Shape("scale:N", scale=alt.Scale(domain=SCALES, range=["circle", "square"]), title="final scale")
    lines = base.mark_line().encode(order="place:O", strokeDash=dash)
    marks = base.mark_point(filled=True, size=45, opacity=1).encode(shape=shape)
    first = alt.Chart(inline(points.filter(pl.col("scale") == "recomputed")))
    words = first.mark_text(align="left", dx=8, fontSize=11).encode(x=alt.value(270), y=y, text="first:N")
    size = {"width": 270, "height": 18 * max(1, len(steps))}
    return alt.layer(lines, marks, words).properties(title=[title, "right: first choice, recomputed"], **size)
