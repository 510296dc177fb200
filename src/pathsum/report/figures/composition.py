"""How heads compose: the diagram of pairs above (or below) chance, and the whole table as a heat map."""

from typing import Any

import altair as alt
import polars as pl

from pathsum.report.figures.style import KINDS, MOST_HEADS, Figure, axis, finished, in_place, inline

MOST_EDGES = 400
"""Edges of either sign in the diagram; those with the smallest effects are left out."""
START_EDGES = 16
"""The threshold starts where at least about this many edges of either sign are seen."""
SURE = 10.0
"""|z| from which a cell of the heat map carries its sign."""
COLUMN, BESIDE = 250, 125
"""Pixels between the columns of two layers, and for names beside the outer ones."""
NARROW, WIDEST = 36, 1000
"""Columns of a deep model stand closer, so that all are at most about this wide, but not closer than this."""
NAMED = WIDEST // COLUMN
"""Up to this many gaps between layers every head has its name; in a deeper model those with a role."""
ROLES = ["head", "previous token", "induction"]
PANEL = "indexof(['Q', 'K', 'V'], datum.value) < 0 ? datum.value : datum.value + '-composition'"
TOOLTIP = [
    alt.Tooltip("kind:N", title="composition"),
    alt.Tooltip("source:N", title="written by"),
    alt.Tooltip("destination:N", title="read by"),
    *(alt.Tooltip(f"{name}:Q", format="+.4f" if name == "effect" else ".4f")
      for name in ("score", "baseline", "ceiling", "effect")),
    alt.Tooltip("z:Q", format="+.1f"),
]  # fmt: skip


def composition_diagram(composition: pl.DataFrame, heads: pl.DataFrame) -> Figure:
    """Heads as dots in columns by layer, pairs as lines: width is the effect, dashes and colour are the kind.

    `composition` is the reading's table; `heads` has `head`, `layer`, `index` and, where known, `lag`,
    `previous_token`, `prefix_matching`, `copying_score`, `is_previous_token`, `is_induction_head`. Avoidance, effects
    below zero, is the other choice of "Show".
    """
    edges, nodes = _edges(composition), _nodes(heads)
    layers, most = int(nodes["layer"].max() or 0), int(nodes["index"].max() or 0)  # type: ignore[arg-type]
    top = float(edges["size"].max() or 1.0)  # type: ignore[arg-type]
    width = BESIDE + max(1, layers) * max(NARROW, min(COLUMN, WIDEST // max(1, layers))) + BESIDE
    across = alt.Scale(domain=[0, max(layers, 1)], range=[BESIDE, width - BESIDE], nice=False, zero=False)
    x = alt.X("x:Q", axis=None, scale=across)
    y = alt.Y("y:Q", axis=None, scale=alt.Scale(domain=[most + 0.6, -1.1], nice=False, zero=False))
    hover = alt.selection_point(name="composition_head", fields=["head"], on="pointerover", clear="pointerout")
    chart = alt.layer(
        _lines(edges, x, y, top).add_params(*_controls(edges, top)),
        _dots(nodes, x, y).add_params(hover),
        _names(nodes, x, y, layers),
        _column_titles(layers, x, y),
    ).properties(width=width, height=round((27 if most > 5 else 36) * (most + 1.7)))
    return finished(chart, "Heads in columns by layer; lines join heads that compose, by kind and strength.")


def composition_heat_map(composition: pl.DataFrame) -> Figure:
    """Effects of all pairs, one panel a kind: orange above chance, blue below; + and − where |z| ≥ 10.

    Of heads, or of all that writes and reads (embedding, MLPs, unembedding).
    """
    frame = _bounded(_known(composition)).with_columns(
        pl.when(pl.col("effect") < 0).then(pl.lit("below chance")).otherwise(pl.lit("above chance")).alias("sign"),
        pl.col("effect").abs().alias("size"),
        pl.when(pl.col("z") >= SURE).then(pl.lit("+")).when(pl.col("z") <= -SURE).then(pl.lit("−")).alias("mark"),
    )
    top = float(frame["size"].max() or 1.0)  # type: ignore[arg-type]
    sources, destinations = in_place(frame["source"].to_list()), in_place(frame["destination"].to_list())
    kinds = [kind for kind in KINDS if kind in frame["kind"]]
    kinds += sorted(set(frame["kind"]) - set(KINDS))
    base = alt.Chart().encode(
        x=alt.X("source:N", sort=sources, title="written by", axis=axis(labelAngle=-90)),
        y=alt.Y("destination:N", sort=destinations, title="read by", axis=axis()),
        tooltip=TOOLTIP,
    )
    cells = base.mark_rect(stroke=None).encode(
        color=alt.Color("sign:N", scale=alt.Scale(domain=["below chance", "above chance"]), title="score is"),
        opacity=alt.Opacity(
            "size:Q",
            scale=alt.Scale(domain=[0, top], range=[0.04, 1]),
            title="|effect|",
            legend=alt.Legend(tickCount=4),
        ),
    )
    marks = base.transform_filter("datum.mark != null").mark_text(fontSize=12, fontWeight="bold").encode(text="mark:N")
    step = 18 if len(sources) <= 24 else 14
    panel = alt.layer(cells, marks).properties(width=step * len(sources), height=step * len(destinations))
    chart = panel.facet(
        alt.Facet("kind:N", sort=kinds, title=None, header=alt.Header(labelExpr=PANEL)),
        data=inline(frame), columns=3 if len(sources) <= 16 else 1,
    )  # fmt: skip
    return finished(chart, "Effect of every pair, a panel for each kind of composition.")


def pairs_shown(composition: pl.DataFrame) -> tuple[int, int]:
    """(pairs in the diagram, pairs there are): the diagram draws the strongest of a large model."""
    return len(_edges(composition)), len(_known(composition))


def _known(composition: pl.DataFrame) -> pl.DataFrame:
    """The pairs whose composition is defined: a head that reads or writes nothing has none."""
    numbers = pl.col("score", "baseline", "ceiling", "z", "effect").cast(pl.Float64).fill_nan(None)
    return composition.with_columns(numbers).drop_nulls("effect")


def _edges(composition: pl.DataFrame) -> pl.DataFrame:
    known = _known(composition).with_columns(pl.col("effect").abs().alias("size"))
    known = known.sort("size", descending=True)
    kept = pl.concat([known.filter(sign).head(MOST_EDGES) for sign in (pl.col("effect") >= 0, pl.col("effect") < 0)])
    aside = pl.col("kind").replace_strict({"Q": -0.1, "K": 0.0, "V": 0.1}, return_dtype=pl.Float64)
    places = [
        part
        for end, suffix in (("source", ""), ("destination", "2"))
        for part in (
            pl.col(end).str.extract(r"^L(\d+)", 1).cast(pl.Int64).alias(f"x{suffix}"),
            (pl.col(end).str.extract(r"H(\d+)$", 1).cast(pl.Float64) + aside).alias(f"y{suffix}"),
        )
    ]
    columns = ("kind", "source", "destination", "score", "baseline", "ceiling", "z", "effect", "size")
    return kept.select(*columns, *places)


def _nodes(heads: pl.DataFrame) -> pl.DataFrame:
    role = (
        pl.when(pl.col("is_induction_head").fill_null(False)).then(pl.lit(ROLES[2]))
        .when(pl.col("is_previous_token").fill_null(False)).then(pl.lit(ROLES[1]))
        .otherwise(pl.lit(ROLES[0]))
    )  # fmt: skip
    shown = ("previous_token", "prefix_matching", "copying_score")
    frame = heads.select("head", "layer", "index", "lag", *shown, role.alias("role"))
    back = (pl.col("role") == ROLES[0]) & (pl.col("lag") > 1)
    note = pl.when(back).then(pl.format("{} back", "lag")).when(pl.col("role") != ROLES[0]).then("role")
    label = pl.concat_str("head", note, separator=" · ", ignore_nulls=True)
    return frame.with_columns(label.alias("label"), pl.col("layer").alias("x"), pl.col("index").alias("y"))


def _controls(edges: pl.DataFrame, top: float) -> list[alt.Parameter]:
    signs = [edges.filter(sign)["size"] for sign in (pl.col("effect") > 0, pl.col("effect") < 0)]
    start = min((float(sizes[min(START_EDGES, len(sizes)) - 1]) for sizes in signs if len(sizes)), default=0.0)
    step = top / 100
    slider = alt.binding_range(min=0, max=top, step=step, name="Effect at least ")
    shown = alt.binding_radio(
        options=["above", "below"], labels=["composition (above chance)", "avoidance (below chance)"], name="Show "
    )
    kinds = alt.binding_radio(options=["all", *KINDS], name="Kind ")
    return [
        alt.param(name="composition_threshold", value=round(int(start / step) * step, 5), bind=slider),
        alt.param(name="composition_show", value="above", bind=shown),
        alt.param(name="composition_kind", value="all", bind=kinds),
    ]


def _lines(edges: pl.DataFrame, x: alt.X, y: alt.Y, top: float) -> alt.Chart:
    touched = (
        "!composition_head.head || indexof(composition_head.head, datum.source) >= 0"
        " || indexof(composition_head.head, datum.destination) >= 0"
    )
    return (
        alt.Chart(inline(edges))
        .mark_rule(strokeCap="butt")
        .encode(
            x=x, y=y, x2="x2:Q", y2="y2:Q",
            color=alt.Color("kind:N", scale=alt.Scale(domain=KINDS), title="composition"),
            strokeDash=alt.StrokeDash("kind:N", scale=alt.Scale(domain=KINDS, range=[[10, 4], [1, 0], [3, 3]]),
                                      title="composition"),
            strokeWidth=alt.StrokeWidth("size:Q", scale=alt.Scale(domain=[0, top], range=[0.5, 6]), title="|effect|",
                                        legend=alt.Legend(tickCount=4, symbolType="stroke", symbolSize=400)),
            opacity=alt.condition(touched, alt.value(0.85), alt.value(0.06)),
            tooltip=TOOLTIP,
        )
        .transform_filter("composition_show == 'above' ? datum.effect > 0 : datum.effect < 0")
        .transform_filter("datum.size >= composition_threshold")
        .transform_filter("composition_kind == 'all' || datum.kind == composition_kind")
    )  # fmt: skip


def _dots(nodes: pl.DataFrame, x: alt.X, y: alt.Y) -> alt.Chart:
    numbers = ("previous_token", "prefix_matching", "copying_score")
    shown = [alt.Tooltip(f"{name}:Q", format=".2f", title=name.replace("_", " ")) for name in numbers]
    shapes = alt.Scale(domain=ROLES, range=["circle", "square", "diamond"])
    dots = alt.Chart(inline(nodes)).mark_point(style="node", opacity=1, size=130)
    shape = alt.Shape("role:N", scale=shapes, title="role")
    return dots.encode(x=x, y=y, shape=shape, tooltip=["head:N", "role:N", *shown])


def _names(nodes: pl.DataFrame, x: alt.X, y: alt.Y, layers: int) -> Any:
    if layers > NAMED:
        nodes = nodes.filter(pl.col("role") != ROLES[0])
        return alt.Chart(inline(nodes)).mark_text(dy=-13, fontSize=11).encode(x=x, y=y, text="head:N")
    first, later = nodes.filter(pl.col("layer") == 0), nodes.filter(pl.col("layer") > 0)
    left = alt.Chart(inline(first)).mark_text(align="right", dx=-10, fontSize=11).encode(x=x, y=y, text="label:N")
    right = alt.Chart(inline(later)).mark_text(align="left", dx=10, fontSize=11).encode(x=x, y=y, text="label:N")
    return alt.layer(left, right)


def _column_titles(layers: int, x: alt.X, y: alt.Y) -> alt.Chart:
    places = pl.DataFrame({"x": list(range(layers + 1)), "y": [-0.8] * (layers + 1)})
    titled = places.with_columns(pl.format("layer {}" if layers <= NAMED else "{}", "x").alias("title"))
    return alt.Chart(inline(titled)).mark_text(fontSize=12, fontWeight="bold").encode(x=x, y=y, text="title:N")


def _bounded(frame: pl.DataFrame) -> pl.DataFrame:
    """Pairs among the sources and destinations with the largest |effect|, where there are too many to tell apart."""
    for end in ("source", "destination"):
        size = frame.group_by(end).agg(pl.col("effect").abs().max().alias("size")).sort("size", end, descending=True)
        frame = frame.filter(pl.col(end).is_in(size.head(MOST_HEADS)[end].implode()))
    return frame
