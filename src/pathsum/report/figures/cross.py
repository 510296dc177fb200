"""What paths add to a prediction, by what they have in common; and a whole expansion of one logit."""

from typing import Any

import altair as alt
import polars as pl

from pathsum.report.figures.panels import Measure, panels
from pathsum.report.figures.style import Figure, finished
from pathsum.report.tokens import visible

MOST_CELLS = 16
"""Rows of a figure: those that add or take away most."""
APART = 3
"""Cells of the second axis with a panel of their own."""
PARTS = {"order": "by order", "source": "by source", "term": "strongest paths"}


def cross_figure(rows: list[dict[str, Any]], by: list[str], asked: dict[str, Any]) -> Figure:
    """What paths add by one axis, or by two: bars, with a panel for the largest cells of the second axis.

    `rows` and `asked` are those of `prompt_table`, `by` the axes it was asked for.
    """
    frame = pl.DataFrame(rows, schema_overrides={"second": pl.String}).with_columns(pl.col("second").fill_null(""))
    frame = frame.with_columns(
        (_named(pl.col(column), asked) if axis == "position" else pl.col(column)).alias(column)
        for column, axis in zip(("first", "second"), by, strict=False)
    )
    size = frame.group_by("second").agg(pl.col("value").abs().sum()).sort("value", "second", descending=[True, False])
    kept = size["second"].head(APART).to_list()
    part = pl.when(pl.col("second").is_in(kept)).then("second").otherwise(pl.lit("others")).alias("part")
    table = frame.with_columns(part).pivot("part", index="first", values="value", aggregate_function="sum")
    names = [*kept, *(["others"] if size.height > APART else [])]
    shown = _largest(table, pl.sum_horizontal(pl.col(name).abs() for name in names), by[0] in ("order", "layer"))
    what = by[1] if len(by) == 2 else ""
    measures = [Measure(name, f"{what} {name}".strip(), "adds to the target") for name in names]
    chart = panels(shown, "first", measures, width=420 if len(names) == 1 else 200)
    return finished(chart, f"What paths add to the prediction, by {' and '.join(by)}.")


def expansion_bars(expansion: pl.DataFrame) -> Figure:
    """What paths add to one token's logit beyond its mean over the vocabulary: by order, by source, one by one."""
    charts = []
    for part, title in PARTS.items():
        frame = expansion.filter(pl.col("part") == part)
        twice = pl.col("name").is_duplicated()
        label = pl.when(twice).then(pl.format("{}, order {}", "name", "order")).otherwise("name").alias("label")
        shown = _largest(frame.with_columns(label), pl.col("centred").abs(), in_order=True)
        charts.append(panels(shown, "label", [Measure("centred", title, "nats, centred")], width=420))
    return finished(alt.vconcat(*charts), "What paths add to one token's logit, by order, by source and one by one.")


def _largest(frame: pl.DataFrame, size: pl.Expr, in_order: bool) -> pl.DataFrame:
    """The `MOST_CELLS` largest rows of a size that can be seen, in the table's order or by size."""
    sized = frame.with_row_index("place").with_columns(size.alias("size"))
    kept = sized.filter(pl.col("size") >= 1e-3 * pl.col("size").max())
    kept = kept.sort("size", descending=True).head(MOST_CELLS)
    return (kept.sort("place") if in_order else kept).drop("place", "size")


def _named(positions: pl.Expr, asked: dict[str, Any]) -> pl.Expr:
    return positions.map_elements(
        lambda at: f"{visible(asked['token_strings'][int(at)], 8)} at {at}", return_dtype=pl.String
    )
