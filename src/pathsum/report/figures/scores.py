"""A head's score as heat maps: what the query's part and the key's part add together."""

from typing import Any

import altair as alt
import polars as pl

from pathsum.report.figures.style import Figure, axis, finished, inline

TITLES = {"order": "by order", "lag": "by lag", "source": "by source", "term": "strongest pairs of paths",
          "tap": "by tap"}  # fmt: skip
SIGNS = ["adds", "takes away"]
MOST = 12
"""Queries and keys of a panel: those that add or take away most."""
STEP = 34


def score_heat_maps(rows: list[dict[str, Any]]) -> Figure:
    """The centred score by order, lag, source and pair of paths: rows are the query's part, columns the key's.

    `rows` are those of `prompt_scores`; each cell carries its number and its sign.
    """
    frame = pl.DataFrame(rows).filter(~pl.col("query").is_in(["other pairs", "longer paths"]))
    there = {part: title for part, title in TITLES.items() if part != "tap" or part in frame["part"]}
    panels = [_panel(frame.filter(pl.col("part") == part), title) for part, title in there.items()]
    chart = alt.vconcat(alt.hconcat(*panels[:2]), alt.hconcat(*panels[2:])).resolve_scale(opacity="independent")
    return finished(chart, "The centred score by what the query's part and the key's part are.")


def _panel(frame: pl.DataFrame, title: str) -> Any:
    queries, keys = (_largest(frame, side) for side in ("query", "key"))
    shown = frame.filter(pl.col("query").is_in(queries), pl.col("key").is_in(keys)).with_columns(
        pl.when(pl.col("centred") < 0).then(pl.lit(SIGNS[1])).otherwise(pl.lit(SIGNS[0])).alias("sign"),
        pl.col("centred").abs().alias("size"),
    )
    top = float(shown["size"].max() or 1.0)  # type: ignore[arg-type]
    base = alt.Chart(inline(shown)).encode(
        x=alt.X("key:N", sort=keys, title="key", axis=axis(labelAngle=-45)),
        y=alt.Y("query:N", sort=queries, title="query", axis=axis()),
        tooltip=["query:N", "key:N", *(alt.Tooltip(f"{name}:Q", format="+.4f") for name in ("centred", "score"))],
    )
    cells = base.mark_rect().encode(
        color=alt.Color("sign:N", scale=alt.Scale(domain=SIGNS), title="centred score"),
        opacity=alt.Opacity("size:Q", scale=alt.Scale(domain=[0, top], range=[0.04, 0.9]), legend=None),
    )
    numbers = base.mark_text(fontSize=9).encode(text=alt.Text("centred:Q", format="+.2f"))
    size = {"width": STEP * max(1, len(keys)), "height": 22 * max(1, len(queries))}
    return alt.layer(cells, numbers).properties(title=title, **size)


def _largest(frame: pl.DataFrame, side: str) -> list[str]:
    """In the order of the table, those whose cells are largest."""
    size = frame.group_by(side, maintain_order=True).agg(pl.col("centred").abs().sum())
    kept = size.sort("centred", descending=True).head(MOST)[side].to_list()
    return [name for name in size[side].to_list() if name in kept]
