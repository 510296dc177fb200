"""Induction: its three tests over heads, pairs that match, and how loss falls along a context."""

import altair as alt
import polars as pl

from pathsum.report.figures.labels import names, room_for_names
from pathsum.report.figures.panels import Measure, panels
from pathsum.report.figures.style import MOST_HEADS, Figure, finished, inline
from pathsum.report.numbers import fixed

SMOOTH = 15
"""Tokens the line of loss by position is a mean over."""
SURE = ["z < 10", "z ≥ 10"]
NAMED = 8
"""Pairs named beside their points: those of the largest effect."""


def induction_tests(induction: pl.DataFrame, thresholds: dict[str, float]) -> Figure:
    """Prefix matching, copying and causal effect of every head beside their thresholds, those that pass all named so.

    The heads with the most prefix matching come first.
    """
    mark = pl.when("is_induction_head").then(pl.lit(" · induction")).otherwise(pl.lit(""))
    frame = induction.with_columns((pl.col("head") + mark).alias("name"))
    frame = frame.sort(pl.col("prefix_matching").fill_nan(None), descending=True, nulls_last=True).head(MOST_HEADS)
    measures = [
        Measure("prefix_matching", "prefix matching", "attention", thresholds["prefix_matching"]),
        Measure("copying", "copying", "nats", thresholds["copying"]),
        Measure("causal_effect", "causal effect", "nats on the repeats", thresholds["causal_effect"]),
    ]
    description = "Prefix matching, copying and causal effect of heads; those that pass all three say so."
    return finished(panels(frame, "name", measures, width=190), description)


def matching_pairs(matching: pl.DataFrame, sure: float) -> Figure:
    """Matching score of every pair's induction circuit against the pair's K-composition above chance."""
    known = matching.with_columns(pl.col("matching_score", "k_effect", "k_z").cast(pl.Float64).fill_nan(None))
    known = known.drop_nulls(["matching_score", "k_effect"]).sort("k_effect", descending=True)
    role = pl.when(pl.col("k_z") >= sure).then(pl.lit(SURE[1])).otherwise(pl.lit(SURE[0])).alias("K-composition")
    named = known.with_columns(role, pl.format("{} → {}", "source", "destination").alias("pair"))
    across, down, size = room_for_names(named["k_effect"]), (1.05, -1.05), (460, 320)
    base = alt.Chart(inline(named)).encode(
        x=alt.X("k_effect:Q", title="K-composition above chance", axis=alt.Axis(grid=False),
                scale=alt.Scale(domain=list(across), nice=False)),
        y=alt.Y("matching_score:Q", title="matching score of the pair", axis=alt.Axis(grid=False),
                scale=alt.Scale(domain=[-1.05, 1.05], nice=False)),
        tooltip=["pair:N", alt.Tooltip("matching_score:Q", format=".3f"), alt.Tooltip("k_effect:Q", format="+.4f"),
                 alt.Tooltip("k_z:Q", format="+.1f")],
    )  # fmt: skip
    points = base.mark_point(filled=True, opacity=0.8, size=55).encode(
        color=alt.Color("K-composition:N", scale=alt.Scale(domain=SURE)),
        shape=alt.Shape("K-composition:N", scale=alt.Scale(domain=SURE, range=["circle", "diamond"])),
    )
    best = named.filter(pl.col("K-composition") == SURE[1]).head(NAMED)
    zero = alt.Chart(inline(pl.DataFrame({"zero": [0]}))).mark_rule(style="guide")
    labels = names(best, "pair", ("k_effect", "matching_score"), across, down, size)
    chart = alt.layer(zero.encode(x="zero:Q"), zero.encode(y="zero:Q"), points, labels)
    return finished(chart.properties(width=size[0], height=size[1]), "Matching score of pairs against K-composition.")


def loss_by_position(losses: pl.DataFrame) -> Figure:
    """Loss of predicting each token of a context, and its mean over 15 tokens; ◆ marks the two that are compared.

    `losses` has `token`, `loss` and `compared`; the in-context score is the late loss less the early one.
    """
    mean = pl.col("loss").rolling_mean(SMOOTH, center=True, min_samples=1).alias("mean")
    frame = losses.with_columns(mean)
    marked = frame.filter(pl.col("compared") != "")
    compared = dict(marked.select("compared", "loss").iter_rows())
    labels = pl.Series([f"token {token}: {fixed(loss)}" for token, loss in marked.select("token", "loss").rows()],
                       dtype=pl.String)  # fmt: skip
    x = alt.X("token:Q", scale=alt.Scale(type="log", nice=False), title="token predicted, from 1 (logarithmic)",
              axis=alt.Axis(grid=False, values=[2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000]))  # fmt: skip
    y = alt.Y("loss:Q", scale=alt.Scale(zero=False), title="loss, nats")
    base = alt.Chart(inline(frame.select("token", "loss", "mean"))).encode(x=x)
    shown = [alt.Tooltip("token:Q"), alt.Tooltip("loss:Q", format=".3f"), alt.Tooltip("mean:Q", format=".3f")]
    points = base.mark_point(filled=True, size=14, opacity=0.35).encode(y=y, tooltip=shown)
    line = base.mark_line(strokeWidth=2).encode(y=alt.Y("mean:Q", scale=alt.Scale(zero=False), title="loss, nats"))
    two = alt.Chart(inline(marked.select("token", "loss").with_columns(labels.alias("label")))).encode(x=x, y=y)
    diamonds = two.mark_point(style="node", shape="diamond", size=110, opacity=1)
    words = two.mark_text(align="right", dx=-6, fontSize=12).encode(y=alt.value(8), text="label:N")
    rules = two.mark_rule(strokeDash=[4, 3]).encode(x=x, y=alt.value(0), y2=alt.value(300))
    score = f"in-context score {fixed(compared['late'] - compared['early'])} nats" if len(compared) == 2 else ""
    chart = alt.layer(rules, points, line, diamonds, words).properties(width=560, height=300, title=score)
    return finished(chart, "Loss by position in the context; the two tokens that are compared are marked.")
