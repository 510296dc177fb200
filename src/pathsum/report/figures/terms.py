"""What terms are worth, and what repeats are: losses in nats per token."""

from typing import Any

import altair as alt
import polars as pl

from pathsum.report.figures.style import Figure, axis, by_number, finished, inline, strongest_heads

MEASURES = {
    "gain_individual": "alone, beside the direct path",
    "gain_ending": "all paths that end in it, beside the direct path",
    "cost_without": "lost without all paths that end in it",
}


def order_bars(importance: pl.DataFrame, names: dict[int, str]) -> Figure:
    """What each order of terms saves; `names` says what to call an order."""
    frame = importance.filter(pl.col("order") >= 0)
    frame = frame.with_columns(pl.Series("name", [names[order] for order in frame["order"]], pl.String))
    chart = _bars(frame, "name", "gain", frame["name"].to_list(), "loss saved, nats per token", ["order:Q", "loss:Q"])
    return finished(chart.properties(width=420), "Loss saved by each order of terms.")


def layer_bars(importance_layers: pl.DataFrame) -> Figure:
    """What each layer's terms are worth: alone, all that end in it, and when they are left out."""
    return _measures(importance_layers, "layer", 30)


def head_bars(importance_heads: pl.DataFrame) -> Figure:
    """The same of each head."""
    return _measures(strongest_heads(importance_heads, "cost_without"), "head", 15)


def repeat_losses(repeats: pl.DataFrame, uniform: float) -> Figure:
    """Loss in each copy of repeated random tokens, beside the uniform guess (the rule)."""
    frame = repeats.with_columns(pl.format("copy {}", "copy").alias("name"))
    bars = _bars(frame, "name", "loss", frame["name"].to_list(), "loss, nats per token", [])
    guess = alt.Chart(inline(pl.DataFrame({"uniform": [uniform]})))
    rule = guess.mark_rule(strokeDash=[4, 3]).encode(
        x="uniform:Q", tooltip=[alt.Tooltip("uniform:Q", format=".2f", title="uniform guess")]
    )
    return finished(alt.layer(bars, rule).properties(width=420), "Loss in each copy of repeated random tokens.")


def _bars(frame: pl.DataFrame, name: str, value: str, order: list[str], title: str, more: list[str]) -> Any:
    base = alt.Chart(inline(frame)).encode(
        x=alt.X(f"{value}:Q", title=title, axis=alt.Axis(tickCount=6)),
        y=alt.Y(f"{name}:N", sort=order, title=None, axis=axis()),
        tooltip=[alt.Tooltip(f"{name}:N", title="terms"), alt.Tooltip(f"{value}:Q", format=".4f"), *more],
    )  # fmt: skip
    return alt.layer(base.mark_bar(height=16), _labels(base, value)).properties(height=28 * max(len(frame), 1))


def _labels(base: alt.Chart, value: str) -> alt.Chart:
    """Numbers at the ends of bars, on the side the bar points to."""
    text = alt.Text(f"{value}:Q", format="+.2f" if value != "loss" else ".2f")
    side = alt.expr(f"datum.{value} < 0 ? 'right' : 'left'")
    return base.mark_text(align=side, dx=alt.expr(f"datum.{value} < 0 ? -4 : 4")).encode(text=text)


def _measures(frame: pl.DataFrame, name: str, step: int) -> Figure:
    order = frame[name].to_list() if name == "layer" else by_number(frame[name].to_list())
    extremes = [0.0, *(value for column in MEASURES for value in frame[column].drop_nulls().drop_nans())]
    room = 0.16 * (max(extremes) - min(extremes))
    scale = alt.Scale(domain=[min(extremes) - room * (min(extremes) < 0), max(extremes) + room], nice=False)
    charts = []
    for column, title in MEASURES.items():
        base = alt.Chart(inline(frame.select(name, column))).encode(
            x=alt.X(f"{column}:Q", title="nats per token", scale=scale, axis=alt.Axis(tickCount=5)),
            y=alt.Y(f"{name}:N", sort=order, title=None, axis=axis()),
            tooltip=[f"{name}:N", alt.Tooltip(f"{column}:Q", format=".4f", title=title)],
        )
        labels = [_labels(base, column)] if name == "layer" else []
        bars = alt.layer(base.mark_bar(height=min(step - 4, 16)), *labels)
        charts.append(bars.properties(width=250, height=step * max(len(order), 1), title=title))
    return finished(alt.hconcat(*charts), f"What each {name}'s terms are worth, by three measures.")
