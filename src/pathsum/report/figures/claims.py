"""Figures of the claims: single models as points, means with their intervals, and series over training."""

import altair as alt
import polars as pl

from pathsum.report.figures.style import Figure, axis, finished, inline
from pathsum.report.figures.training import TOKENS, ticks
from pathsum.report.gallery import Drawing
from pathsum.study.claim_models import DEPTHS, depth_experiment
from pathsum.study.estimates import estimate

SERIES = {
    "K-composition": "strongest K-composition, above chance", "prefix matching": "best prefix matching",
    "saved by repeats": "saved by repeats of random tokens, nats", "in-context score": "in-context score, nats",
}  # fmt: skip
"""Above what is read off weights, below what the model does."""


def claim_figures(measurements: pl.DataFrame) -> dict[str, list[Drawing]]:
    """By claim, what there is to look at."""
    last, series = (measurements.filter(pl.col("tokens").is_null() == end) for end in (True, False))
    found: dict[str, list[Drawing]] = {}

    def add(claim: str, name: str, title: str, caption: str, figure: Figure | None) -> None:
        if figure is not None:
            found.setdefault(claim, []).append(Drawing(name, "", title, caption, figure))

    points = "A point is a model, the bar the 95 % interval of their mean."
    add("bigrams", "bigram-share", "Of what bigrams say, the share that a model without layers says",
        f"{points} Names: vocabulary and steps.", dots(last, "bigram_share", "share"))  # fmt: skip
    add("copying", "copying-heads", "Heads of twelve that copy, by their eigenvalues", points,
        dots(last, "copying_by_eigenvalues", "heads of 12"))  # fmt: skip
    add("induction", "k-effect", "K-composition of the induction head with its partner", points,
        dots(last, "k_effect", "above chance"))  # fmt: skip
    add("second order", "second-order", "Share of what is saved that terms of second order save", points,
        dots(last, "second_order_share", "share"))  # fmt: skip
    add("second order", "second-order-training", "The same over training", "A line is a seed.",
        lines(series, {"second-order share": "share of what is saved"}))  # fmt: skip
    add("in-context", "over-training", "What comes when", "A line is a seed; tokens are on a logarithmic scale.",
        lines(series, SERIES))  # fmt: skip
    one_layer = last.filter(pl.col("experiment").str.starts_with("one-layer"))
    add("one layer", "one-layer-prefix", "Prefix matching of the best head of a one-layer model", points,
        dots(one_layer, "best_prefix_matching", "attention"))  # fmt: skip
    add("virtual heads", "by-depth", "Share of what is saved that terms of two heads and more save",
        "A point is a model.", by_depth(last))  # fmt: skip
    return found


def dots(last: pl.DataFrame, quantity: str, unit: str) -> Figure | None:
    """A row an experiment."""
    frame = last.filter(pl.col("quantity") == quantity)
    if frame.is_empty():
        return None
    names = frame["experiment"].unique(maintain_order=True).to_list()
    every = {name: estimate(frame.filter(pl.col("experiment") == name)["value"].to_list()) for name in names}
    bars = pl.DataFrame([
        {"experiment": name, "mean": one.mean, "low": one.least, "high": one.most} for name, one in every.items() if one
    ])  # fmt: skip
    y = alt.Y("experiment:N", sort=names, title=None, axis=axis(labelLimit=220))
    scale = alt.Scale(zero=True)
    x = alt.X("value:Q", title=unit, scale=scale)
    points = alt.Chart(inline(frame.select("experiment", "seed", "value"))).mark_point(
        filled=True, opacity=0.45, size=45
    )
    rule = alt.Chart(inline(bars)).mark_rule(style="whisker", strokeWidth=2)
    tick = alt.Chart(inline(bars)).mark_tick(style="whisker", thickness=2)
    tips = [
        "experiment:N",
        alt.Tooltip("mean:Q", format=".4f"),
        alt.Tooltip("low:Q", format=".4f"),
        alt.Tooltip("high:Q", format=".4f"),
    ]
    chart = alt.layer(
        rule.encode(x=alt.X("low:Q", title=unit, scale=scale), x2="high:Q", y=y, tooltip=tips),
        tick.encode(x=alt.X("mean:Q", title=unit, scale=scale), y=y, tooltip=tips),
        points.encode(x=x, y=y, tooltip=["experiment:N", "seed:Q", alt.Tooltip("value:Q", format=".4f")]),
    )
    return finished(chart.properties(width=420, height=26 * len(names)), f"{unit} of each model, by experiment.")


def lines(series: pl.DataFrame, names: dict[str, str]) -> Figure | None:
    """A panel a quantity, one below the other, with a line a seed."""
    charts = []
    for quantity, title in names.items():
        frame = series.filter(pl.col("quantity") == quantity).sort("model", "tokens")
        if frame.is_empty():
            continue
        frame = frame.with_columns(pl.col("tokens").log10().alias("power"))
        x = alt.X("power:Q", title="tokens seen", scale=alt.Scale(nice=False, zero=False),
                  axis=alt.Axis(grid=False, values=ticks(frame["power"]), labelExpr=TOKENS))  # fmt: skip
        line = alt.Chart(inline(frame.select("model", "seed", "tokens", "power", "value"))).mark_line(opacity=0.6)
        tips = ["model:N", alt.Tooltip("tokens:Q", format=","), alt.Tooltip("value:Q", format=".4f")]
        y = alt.Y("value:Q", title=None, axis=alt.Axis(grid=False, tickCount=4))
        charts.append(
            line.encode(x=x, y=y, detail="model:N", tooltip=tips).properties(width=520, height=120, title=title)
        )
    return finished(alt.vconcat(*charts), "Series over training, a line a seed.") if charts else None


def by_depth(last: pl.DataFrame) -> Figure | None:
    """Virtual heads' share against layers, at equal width and at equal parameters."""
    shares = last.filter(pl.col("quantity") == "virtual_share")
    rows = [
        {"depths": name, "layers": layers, **row}
        for name, depths in DEPTHS.items()
        for layers, d_model in depths
        for row in shares.filter(pl.col("experiment") == depth_experiment(layers, d_model)).iter_rows(named=True)
    ]
    frame = pl.DataFrame(rows)
    if frame.is_empty() or frame["layers"].n_unique() < 2:
        return None
    chart = alt.Chart(inline(frame.select("depths", "layers", "seed", "value"))).mark_point(
        filled=True, size=60, opacity=0.7
    )
    x = alt.X("layers:Q", axis=alt.Axis(grid=False, tickMinStep=1, format="d"), scale=alt.Scale(zero=False))
    y = alt.Y("value:Q", title="share", axis=alt.Axis(grid=False))
    chart = chart.encode(x=x, y=y, color=alt.Color("depths:N", title="at"), shape=alt.Shape("depths:N", title="at"),
                         tooltip=["depths:N", "layers:Q", "seed:Q", alt.Tooltip("value:Q", format=".4f")])  # fmt: skip
    return finished(chart.properties(width=420, height=240), "Share of virtual heads against layers.")
