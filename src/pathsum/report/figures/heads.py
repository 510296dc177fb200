"""What single heads are like: eigenvalues, lag profiles, matching against copying, patterns on a text."""

import altair as alt
import polars as pl

from pathsum.report.figures.style import Figure, axis, by_number, finished, inline, strongest_heads
from pathsum.report.numbers import fixed

FAINT = 0.01
"""Attention below this is not drawn."""


def eigenvalue_scatter(eigenvalues: pl.DataFrame, heads: pl.DataFrame, circuit: str = "OV") -> Figure:
    """The circuit's eigenvalues in the complex plane, a panel a head.

    Directions are true; distances from the centre are square roots of moduli, over the head's largest. `eigenvalues` is
    the reading's table, `heads` has `head` and `copying_score` (OV) or `matching_score` (QK). Panels are sorted by that
    score: a copying head has its eigenvalues to the right.
    """
    score = "copying_score" if circuit == "OV" else "matching_score"
    modulus = (pl.col("real") ** 2 + pl.col("imaginary") ** 2).sqrt()
    frame = eigenvalues.filter(pl.col("circuit") == circuit).join(heads.select("head", score), on="head", how="left")
    frame = strongest_heads(frame, score).with_columns((modulus / modulus.max().over("head")).sqrt().alias("size"))
    frame = frame.with_columns(
        (pl.col(part) / modulus * pl.col("size")).fill_nan(0.0).alias(axis_name)
        for part, axis_name in (("real", "x"), ("imaginary", "y"))
    ).sort(score, descending=True, nulls_last=True, maintain_order=True)
    scores = [f"{head} · {fixed(value)}" for head, value in frame.select("head", score).iter_rows()]
    frame = frame.with_columns(pl.Series("panel", scores, pl.String))
    plane = alt.Scale(domain=[-1.05, 1.05], nice=False)
    points = alt.Chart().mark_point(filled=True, size=22, opacity=0.6).encode(
        x=alt.X("x:Q", scale=plane, axis=None), y=alt.Y("y:Q", scale=plane, axis=None),
        tooltip=["head:N", alt.Tooltip(f"{score}:Q", format=".3f", title=score.replace("_", " ")),
                 alt.Tooltip("real:Q", format=".4g"), alt.Tooltip("imaginary:Q", format=".4g")],
    )  # fmt: skip
    across = alt.Chart().mark_rule(style="guide").encode(y=alt.YDatum(0, scale=plane, axis=None))
    upright = alt.Chart().mark_rule(style="guide").encode(x=alt.XDatum(0, scale=plane, axis=None))
    order = frame["panel"].unique(maintain_order=True).to_list()
    chart = alt.layer(across, upright, points).properties(width=112, height=112).facet(
        alt.Facet("panel:N", sort=order, title=None, header=alt.Header(labelFontSize=11, labelPadding=2)),
        data=inline(frame.select("head", score, "real", "imaginary", "x", "y", "panel")), columns=8, spacing=10,
    )  # fmt: skip
    return finished(chart, f"Eigenvalues of every head's {circuit} circuit in the complex plane.")


def lag_profiles(attention: pl.DataFrame) -> Figure:
    """Mean attention to the token 0, 1, 2 … back, a row a head."""
    lags = [name for name in attention.columns if name.startswith("lag_")]
    frame = attention.select("head", *lags).unpivot(lags, index="head", variable_name="lag", value_name="attention")
    frame = frame.with_columns(
        pl.col("lag").str.strip_prefix("lag_").cast(pl.Int64), pl.col("attention").fill_nan(None)
    )
    frame = strongest_heads(frame.drop_nulls(), "attention")
    heads = by_number(frame["head"].to_list())
    cells = alt.Chart(inline(frame)).mark_rect(stroke=None).encode(
        x=alt.X("lag:O", title="tokens back", axis=axis(labelAngle=0)),
        y=alt.Y("head:N", sort=heads, title=None, axis=axis()),
        opacity=alt.Opacity("attention:Q", scale=alt.Scale(domain=[0, 1], range=[0.03, 1]), title="attention"),
        tooltip=["head:N", alt.Tooltip("lag:O", title="tokens back"), alt.Tooltip("attention:Q", format=".3f")],
    ).properties(width=22 * len(lags), height=16 * len(heads))  # fmt: skip
    return finished(cells, "Mean attention of every head to the tokens 0 to 15 back.")


def matching_against_copying(pairs: pl.DataFrame) -> Figure:
    """For later heads: matching score of the pair with its K-partner against the head's copying score.

    `pairs` has `head`, `partner`, `copying_score`, `matching_score`, `k_effect`, `k_z`, `is_induction_head`: induction
    heads belong in the upper right corner.
    """
    role = pl.when(pl.col("is_induction_head").fill_null(False)).then(pl.lit("induction")).otherwise(pl.lit("head"))
    known = pairs.drop_nulls(["copying_score", "matching_score"]).with_columns(role.alias("role"))
    plane, quiet = alt.Scale(domain=[-1.05, 1.05], nice=False), alt.Axis(grid=False)
    base = alt.Chart(inline(known)).encode(
        x=alt.X("copying_score:Q", scale=plane, axis=quiet, title="copying score of the head's OV circuit"),
        y=alt.Y("matching_score:Q", scale=plane, axis=quiet, title="matching score with its K-partner"),
    )
    zero = alt.Chart(inline(pl.DataFrame({"zero": [0]}))).mark_rule(style="guide")
    roles = ["head", "induction"]
    points = base.mark_point(filled=True, opacity=0.85).encode(
        shape=alt.Shape("role:N", scale=alt.Scale(domain=roles, range=["circle", "diamond"]), title="role"),
        color=alt.Color("role:N", scale=alt.Scale(domain=roles), title="role"),
        size=alt.condition("datum.role == 'induction'", alt.value(130), alt.value(50)),
        tooltip=_pair_tooltip(),
    )
    # Induction heads crowd one corner: their names stand below each other, in the order of the points.
    ranked = known.filter(pl.col("role") == "induction").sort("matching_score", descending=True)["head"].to_list()
    names = [
        base.transform_filter(alt.datum.head == head).mark_text(align="right", dx=-10, dy=13 * place, fontSize=11)
        for place, head in enumerate(ranked)
    ]
    axes = (zero.encode(x="zero:Q"), zero.encode(y="zero:Q"))
    chart = alt.layer(*axes, points, *(name.encode(text="head:N") for name in names)).properties(width=360, height=360)
    return finished(chart, "Matching score of pairs against copying score, induction heads marked.")


def _pair_tooltip() -> list[alt.Tooltip]:
    numbers = {"copying_score": ".3f", "matching_score": ".3f", "k_effect": "+.4f", "k_z": "+.1f"}
    titles = {"k_effect": "K effect", "k_z": "K z"}
    names = [alt.Tooltip("head:N"), alt.Tooltip("partner:N", title="K-partner")]
    return names + [
        alt.Tooltip(f"{name}:Q", format=digits, title=titles.get(name, name.replace("_", " ")))
        for name, digits in numbers.items()
    ]


def attention_patterns(patterns: pl.DataFrame, tokens: list[str]) -> Figure:
    """Patterns of a few heads on a text, one at a time: a row looks at the columns.

    `patterns` has `head`, `destination`, `source` (positions) and `attention`, heads in order of interest; `tokens` are
    the text's tokens as they are to be shown. Nothing is drawn below 0.01.
    """
    heads = patterns["head"].unique(maintain_order=True).to_list()
    shown = patterns.filter(pl.col("attention") >= FAINT)
    step = max(8, min(16, 640 // max(len(tokens), 1)))
    scale = alt.Scale(domain=list(range(len(tokens))))
    label = {"labelExpr": "attention_tokens[datum.value]", "labelFontSize": min(step, 11), "labelOverlap": False,
             "labelLimit": 90}  # fmt: skip
    corner = alt.Legend(orient="top-right", offset=10)
    chart = (
        alt.Chart(inline(shown))
        .mark_rect(stroke=None)
        .transform_filter("datum.head == attention_head")
        .transform_calculate(
            looking="datum.destination + '  ' + attention_tokens[datum.destination]",
            seen="datum.source + '  ' + attention_tokens[datum.source]",
        )
        .encode(
            x=alt.X("source:O", scale=scale, title="looks at", axis=axis(**label, orient="top", labelAngle=-90)),
            y=alt.Y("destination:O", scale=scale, title="at token", axis=axis(**label)),
            opacity=alt.Opacity("attention:Q", scale=alt.Scale(domain=[0, 1], range=[0.04, 1]), legend=corner),
            tooltip=[alt.Tooltip("looking:N", title="at"), alt.Tooltip("seen:N", title="looks at"),
                     alt.Tooltip("attention:Q", format=".3f")],
        )
        .add_params(
            alt.param(name="attention_tokens", value=tokens),
            alt.param(name="attention_head", value=next(iter(heads), ""),
                      bind=alt.binding_radio(options=heads, name="Head ")),
        )
        .properties(width=step * len(tokens), height=step * len(tokens))
    )  # fmt: skip
    return finished(chart, "Attention patterns of chosen heads on the text, tokens on both axes.")
