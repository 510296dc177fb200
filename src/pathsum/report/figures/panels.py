"""Bars side by side: several measures of the same rows, with their standard errors and thresholds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import polars as pl

from pathsum.report.figures.style import axis, inline

WHISKERS = 2
"""Standard errors on either side of a bar's end."""
LABELLED = 12
"""Up to this many rows each bar has its number beside it."""


@dataclass(frozen=True)
class Measure:
    """One column of a table as bars; its standard errors are in the column `NAME_error`, where there is one."""

    column: str
    title: str
    unit: str = "nats per token"
    threshold: float | None = None
    """Drawn as a dashed rule."""


def panels(
    frame: pl.DataFrame, name: str, measures: Sequence[Measure], width: int = 250, digits: str = "+.2f"
) -> alt.HConcatChart:
    """A panel a measure, a row a row of the table, in its order; `name` is the column with their names.

    Measures of one unit share their scale. Rows without a value have no bar. Titles of rows stand on the left alone.
    """
    step = 26 if len(frame) <= LABELLED else 15
    rows = frame[name].cast(pl.String).to_list()
    spans = [_span(frame, measure) for measure in measures]
    charts: list[Any] = []
    for measure, (low, high) in zip(measures, spans, strict=True):
        same = [span for other, span in zip(measures, spans, strict=True) if other.unit == measure.unit]
        low, high = min(span[0] for span in same), max(span[1] for span in same)
        room = 0.2 * (high - low) if len(frame) <= LABELLED else 0.02 * (high - low)
        scale = alt.Scale(domain=[low - room * (low < -room / 4), high + room * (high > room / 4)], nice=False)
        chart = _panel(_ends(frame, name, measure), measure, rows, scale, digits, not charts)
        charts.append(chart.properties(width=width, height=step * max(len(frame), 1), title=measure.title))
    return alt.hconcat(*charts, spacing=24)


def _ends(frame: pl.DataFrame, name: str, measure: Measure) -> pl.DataFrame:
    """`name`, the measure's column as `value`, and the ends of its whiskers."""
    error = f"{measure.column}_error"
    known = pl.col(error).cast(pl.Float64).fill_nan(None) if error in frame.columns else pl.lit(None, pl.Float64)
    value = pl.col(measure.column).cast(pl.Float64).fill_nan(None)
    ends = frame.select(pl.col(name).cast(pl.String).alias("name"), value.alias("value"), known.alias("error"))
    return ends.with_columns(
        (pl.col("value") - WHISKERS * pl.col("error")).alias("low"),
        (pl.col("value") + WHISKERS * pl.col("error")).alias("high"),
    )


def _span(frame: pl.DataFrame, measure: Measure) -> tuple[float, float]:
    """From the least to the greatest end, 0 and the threshold among them; never nothing."""
    ends = _ends(frame, frame.columns[0], measure)
    values = [x for column in ("value", "low", "high") for x in ends[column].drop_nulls()]
    every = [0.0, *values, *([] if measure.threshold is None else [measure.threshold])]
    return (min(every), max(every)) if any(every) else (0.0, 1.0)


def _panel(ends: pl.DataFrame, measure: Measure, rows: list[str], scale: alt.Scale, digits: str, named: bool) -> Any:
    data = inline(ends)
    base = alt.Chart(data).encode(
        y=alt.Y("name:N", sort=rows, title=None, axis=axis(labelLimit=320, labelPadding=5) if named else None),
        tooltip=[alt.Tooltip("name:N", title="of"), alt.Tooltip("value:Q", format=".4f", title=measure.title),
                 alt.Tooltip("error:Q", format=".4f", title="standard error")],
    )  # fmt: skip
    x = alt.X("value:Q", title=measure.unit, scale=scale, axis=alt.Axis(tickCount=4, labelFlush=False))
    layers: list[Any] = [base.mark_bar(height=16 if len(rows) <= LABELLED else 10).encode(x=x)]
    if ends["error"].count():
        whiskers = base.mark_rule(style="whisker", strokeWidth=1.3)
        layers.append(whiskers.encode(x=alt.X("low:Q", scale=scale), x2="high:Q"))
    if measure.threshold is not None:
        line = alt.Chart(inline(pl.DataFrame({"threshold": [measure.threshold]})))
        layers.append(line.mark_rule(strokeDash=[4, 3]).encode(x=alt.X("threshold:Q", scale=scale)))
    if len(rows) <= LABELLED:
        layers.append(_numbers(base, scale, digits))
    return alt.layer(*layers)


def _numbers(base: alt.Chart, scale: alt.Scale, digits: str) -> alt.Chart:
    """Beyond the ends of bars and whiskers, on the side the bar points to."""
    away = "datum.value < 0 ? (datum.low == null ? datum.value : min(datum.low, datum.value)) : "
    away += "(datum.high == null ? datum.value : max(datum.high, datum.value))"
    said = f"abs(datum.value) < 0.005 ? '0' : format(datum.value, '{digits}')"
    text = base.transform_filter("datum.value != null").transform_calculate(end=away, said=said)
    side, shift = alt.expr("datum.value < 0 ? 'right' : 'left'"), alt.expr("datum.value < 0 ? -5 : 5")
    mark = text.mark_text(align=side, dx=shift)
    return mark.encode(x=alt.X("end:Q", scale=scale), text="said:N")
