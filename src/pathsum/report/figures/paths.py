"""Paths to a prediction, drawn from the tokens they come from through their heads to the logit."""

from collections import defaultdict
from itertools import pairwise
from typing import Any

import altair as alt
import polars as pl

from pathsum.report.figures.style import Figure, finished, inline
from pathsum.report.tokens import visible

COLUMN, ROW = 110, 34
WIDEST = 1100
"""Columns of many layers stand closer, so that all are about this wide."""
STEPS = 4
"""Rows on which what MLPs write is drawn, one layer below the other."""
SIGNS = ["raises", "lowers"]


def path_diagram(rows: list[dict[str, Any]], asked: dict[str, Any]) -> Figure:
    """Paths as lines: tokens, what is written there, heads by layer, the logit.

    Width is what all listed paths along a line add, dashes are those that lower the target. `rows` and `asked` are
    those of `prompt_paths`.
    """
    walks = [(_stops(row, asked["target"]), row["value"]) for row in rows]
    columns = sorted({column for stops, _ in walks for column, _ in stops}, key=lambda one: one[0])
    across = {column: place for place, column in enumerate(columns)}
    sizes: defaultdict[tuple[Any, Any], float] = defaultdict(float)
    reach: defaultdict[Any, float] = defaultdict(float)
    for stops, value in walks:
        for stop in stops:
            reach[stop] += abs(value)
        for step in pairwise(stops):
            sizes[step] += value
    down = _heights(reach)
    nodes = pl.DataFrame([
        {"x": across[column], "y": down[column, name], "name": name, "size": size}
        for (column, name), size in reach.items()
    ])  # fmt: skip
    lines = pl.DataFrame([
        {"x": across[a[0]], "y": down[a], "x2": across[b[0]], "y2": down[b], "step": f"{a[1]} → {b[1]}",
         "value": value, "width": abs(value), "sign": SIGNS[value < 0]}
        for (a, b), value in sizes.items()
    ])  # fmt: skip
    x = alt.X("x:Q", axis=None, scale=alt.Scale(domain=[-0.3, len(columns) - 0.4], nice=False, zero=False))
    tallest = max(down.values(), default=0)
    y = alt.Y("y:Q", axis=None, scale=alt.Scale(domain=[tallest + 0.6, -1.2], nice=False, zero=False))
    chart = alt.layer(_lines(lines, x, y), _dots(nodes, x, y), *_names(nodes, x, y), _titles(columns, x, y))
    size = {"width": min(COLUMN * len(columns), WIDEST), "height": round(ROW * (tallest + 2))}
    return finished(chart.properties(**size), "Paths from tokens through heads to the prediction, by what they add.")


def _stops(row: dict[str, Any], target: str) -> list[tuple[tuple[float, str], str]]:
    """(column, name) of a path's token, of what an MLP or bias wrote there, of its heads, and of the target."""
    source, *heads = row["path"].split(" → ")
    stops = [((-1.0, "token"), f"{visible(row['token'], 12)} at {row['position']}")]
    if source.startswith("L"):
        layer = int(source[1 : source.index(".")])
        # An MLP writes after its layer's heads.
        stops.append(((layer + 0.5, f"L{layer} mlp"), source))
    elif source != "embed":
        stops.append(((-0.5, "other"), source))
    for head in heads:
        layer = int(head[1 : head.index("H")])
        stops.append(((float(layer), f"L{layer}"), head))
    return [*stops, ((1e9, ""), target)]


def _heights(reach: dict[Any, float]) -> dict[Any, float]:
    """Rows: tokens by position over the whole height; heads above, by size; below them, in steps, what MLPs write."""
    columns: defaultdict[Any, list[str]] = defaultdict(list)
    for (column, name), _ in sorted(reach.items(), key=lambda one: -one[1]):
        columns[column].append(name)
    heads = max((len(names) for (at, _), names in columns.items() if at == int(at) and 0 <= at < 1e9), default=0)
    written = sorted(column for column in columns if column[0] != int(column[0]))
    below = heads + min(STEPS, len(written))
    tallest = max(below, len(columns[-1.0, "token"]), 2)
    found: dict[tuple[Any, str], float] = {}
    for column, names in columns.items():
        if column in written:
            start = heads + written.index(column) % STEPS
            found |= {(column, name): start + place / 2 for place, name in enumerate(names)}
            continue
        is_token = column[0] == -1.0
        ordered = sorted(names, key=lambda name: int(name.rsplit(" ", 1)[1])) if is_token else names
        room = heads if 0 <= column[0] < 1e9 else tallest
        for place, name in enumerate(ordered):
            found[column, name] = (place + 0.5) * room / len(ordered) - 0.5
    return found


def _lines(lines: pl.DataFrame, x: alt.X, y: alt.Y) -> alt.Chart:
    top = float(lines["width"].max() or 1.0)  # type: ignore[arg-type]
    dashes = alt.Scale(domain=SIGNS, range=[[1, 0], [5, 3]])
    return alt.Chart(inline(lines)).mark_rule(opacity=0.7).encode(
        x=x, y=y, x2="x2:Q", y2="y2:Q",
        strokeWidth=alt.StrokeWidth("width:Q", scale=alt.Scale(domain=[0, top], range=[0.7, 9]), title="|adds|",
                                    legend=alt.Legend(tickCount=4, symbolType="stroke", symbolSize=400)),
        color=alt.Color("sign:N", scale=alt.Scale(domain=SIGNS), title="the target"),
        strokeDash=alt.StrokeDash("sign:N", scale=dashes, title="the target"),
        tooltip=[alt.Tooltip("step:N", title="along"), alt.Tooltip("value:Q", format="+.4f", title="adds")],
    )  # fmt: skip


def _dots(nodes: pl.DataFrame, x: alt.X, y: alt.Y) -> alt.Chart:
    dots = alt.Chart(inline(nodes)).mark_point(style="node", opacity=1, size=60)
    return dots.encode(x=x, y=y, tooltip=["name:N", alt.Tooltip("size:Q", format=".3f", title="Σ |adds|")])


def _names(nodes: pl.DataFrame, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    """Above their dots, those of tokens to the left."""
    tokens, others = (alt.Chart(inline(nodes.filter(some))) for some in (pl.col("x") == 0, pl.col("x") > 0))
    left, above = tokens.mark_text(align="right", dx=-8, fontSize=11), others.mark_text(dy=-10, fontSize=11)
    return [each.encode(x=x, y=y, text="name:N") for each in (left, above)]


def _titles(columns: list[tuple[float, str]], x: alt.X, y: alt.Y) -> alt.Chart:
    places = pl.DataFrame([{"x": place, "y": -1.0, "title": title} for place, (at, title) in enumerate(columns)
                           if at == int(at)])  # fmt: skip
    return alt.Chart(inline(places)).mark_text(fontSize=12, fontWeight="bold").encode(x=x, y=y, text="title:N")
