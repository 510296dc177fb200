"""What terms are worth, and what repeats are: losses in nats per token, with two standard errors over contexts."""

import altair as alt
import polars as pl

from pathsum.report.figures.panels import Measure, panels
from pathsum.report.figures.style import Figure, by_number, finished, inline, strongest_heads

MEASURES = (
    Measure("gain_individual", "alone, beside the direct path"),
    Measure("gain_ending", "all paths that end in it, beside the direct path"),
    Measure("cost_without", "lost without all paths that end in it"),
)
REMOVED = (
    Measure("cost_frozen", "lost by its removal, the rest frozen"),
    Measure("cost_live", "lost by its removal, the rest reacts"),
)
SEEN = 2e-3
"""Of the largest: what is smaller is not seen."""
MOST = 24
"""Paths or virtual heads drawn: the most costly to leave out."""


def order_bars(importance: pl.DataFrame, names: dict[int, str]) -> Figure:
    """What each order of terms saves; `names` says what to call an order. The last that save nothing are one bar."""
    frame = importance.filter(pl.col("order") >= 0)
    frame = frame.with_columns(pl.Series("name", [names[order] for order in frame["order"]], pl.String))
    frame = _end_as_one(frame)
    chart = panels(frame, "name", [Measure("gain", "", "loss saved, nats per token")], width=420)
    return finished(chart, "Loss saved by each order of terms, with two standard errors.")


def layer_bars(importance_layers: pl.DataFrame) -> Figure:
    """What each layer's terms are worth: alone, all that end in it, and when they are left out."""
    chart = panels(importance_layers, "layer", _measured(importance_layers))
    return finished(chart, "What each layer's terms are worth, by several measures, with two standard errors.")


def head_bars(importance_heads: pl.DataFrame) -> Figure:
    """The same of each head."""
    frame = strongest_heads(importance_heads, "cost_without")
    order = by_number(frame["head"].to_list())
    frame = frame.sort(pl.col("head").replace_strict(order, range(len(order)), return_dtype=pl.Int64))
    chart = panels(frame, "head", _measured(frame))
    return finished(chart, "What each head's terms are worth, by several measures, with two standard errors.")


def path_bars(importance_paths: pl.DataFrame) -> Figure:
    """What single paths are worth: the 24 that cost most to leave out."""
    frame = importance_paths.head(MOST)
    alone = Measure("gain_individual", "alone, beside the direct path")
    chart = panels(frame, "path", [alone, Measure("cost_without", "lost without it")])
    return finished(chart, "What single paths are worth, the most costly to leave out, with two standard errors.")


def virtual_bars(virtual: pl.DataFrame) -> Figure:
    """Virtual heads: the 24 whose terms cost most to leave out, with their size and what they do to tokens."""
    named = virtual.with_columns(pl.format("{} → {}", "source", "destination").alias("name"))
    measures = [
        Measure("cost_without", "lost without its terms"),
        Measure("size", "size of its logits", "nats"),
        Measure("copying_score", "copying score", "−1 to 1"),
        Measure("v_effect", "V-composition above chance", "score − baseline"),
    ]
    return finished(
        panels(named.head(MOST), "name", measures, width=180),
        "Virtual heads, the most costly to leave out: cost with two standard errors, size, copying and V-composition.",
    )


def carried_bars(carried: pl.DataFrame) -> Figure:
    """How much of the prediction paths carry, source by source, one below the other as the model is deep."""
    measures = [
        Measure("variance_share", "of the logits' variance", "share"),
        Measure("saved_share", "of the loss saved, added here", "share"),
        Measure("saved_share_up_to", "of the loss saved, up to here", "share"),
    ]
    return finished(panels(carried, "source", measures, width=220), "What paths from each source carry, three shares.")


def source_lines(importance_sources: pl.DataFrame) -> Figure:
    """What terms from each kind of source are worth, order by order: alone, and when left out."""
    titles = {"gain_alone": "saved by them alone", "cost_without": "lost without them"}
    sizes = importance_sources.with_columns(pl.max_horizontal(pl.col(name).abs() for name in titles).alias("size"))
    last = sizes.filter(pl.col("size") >= SEEN * pl.col("size").max())["order"].max()
    importance_sources = importance_sources.filter(pl.col("order") <= last)
    kinds = importance_sources["kind"].unique(maintain_order=True).to_list()
    charts = []
    for column, title in titles.items():
        ends = importance_sources.with_columns(
            (pl.col(column) + sign * 2 * pl.col(f"{column}_error")).alias(name)
            for sign, name in ((-1, "low"), (1, "high"))
        )
        base = alt.Chart(inline(ends.select("kind", "order", column, f"{column}_error", "low", "high"))).encode(
            x=alt.X("order:O", title="heads in a term", axis=alt.Axis(labelAngle=0, grid=False)),
            color=alt.Color("kind:N", scale=alt.Scale(domain=kinds), title="source",
                            legend=alt.Legend(symbolStrokeWidth=0)),
            tooltip=["kind:N", "order:O", *(alt.Tooltip(f"{c}:Q", format=".4f") for c in (column, f"{column}_error"))],
        )  # fmt: skip
        y = alt.Y(f"{column}:Q", title="nats per token")
        dash = alt.StrokeDash("kind:N", scale=alt.Scale(domain=kinds), title="source")
        shape = alt.Shape("kind:N", scale=alt.Scale(domain=kinds), title="source")
        lines, points = base.mark_line().encode(y=y, strokeDash=dash), base.mark_point(filled=True, size=60, opacity=1)
        whiskers = base.mark_rule().encode(y=alt.Y("low:Q", title="nats per token"), y2="high:Q")
        chart = alt.layer(lines, whiskers, points.encode(y=y, shape=shape))
        width = min(420, 60 + 40 * ends["order"].n_unique())
        charts.append(chart.properties(title=title, width=width, height=220))
    return finished(alt.hconcat(*charts), "What terms are worth by kind of source and order, with two standard errors.")


def repeat_losses(repeats: pl.DataFrame, uniform: float) -> Figure:
    """Loss in each copy of repeated random tokens, beside the uniform guess (the rule)."""
    frame = repeats.with_columns(pl.format("copy {}", "copy").alias("name"))
    measure = Measure("loss", "", "loss, nats per token; dashed: a uniform guess", uniform)
    chart = panels(frame, "name", [measure], width=420, digits=".2f")
    return finished(chart, "Loss in each copy of repeated random tokens.")


def _end_as_one(frame: pl.DataFrame) -> pl.DataFrame:
    """The last orders, each of which saves next to nothing, as one row; its error is not known."""
    gains = frame["gain"].fill_nan(None)
    seen = (gains.abs() >= SEEN * (gains.abs().max() or 0.0)).fill_null(True)  # type: ignore[operator]
    shown = int(seen.arg_true().max() or 0) + 1  # type: ignore[arg-type]
    rest = frame.slice(shown)
    if rest.height < 2:
        return frame
    name = f"orders {rest['order'][0]} to {rest['order'][-1]}"
    return pl.concat([frame.head(shown), pl.DataFrame({"name": name, "gain": rest["gain"].sum()})], how="diagonal")


def _measured(frame: pl.DataFrame) -> list[Measure]:
    return [measure for measure in (*MEASURES, *REMOVED) if measure.column in frame.columns]
