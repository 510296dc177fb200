"""Names beside points, moved apart so that none covers another."""

from typing import Any

import altair as alt
import polars as pl

from pathsum.report.figures.style import inline

LETTER, LINE = 6.2, 12.0
"""Pixels a letter is wide, and a line high, at 11 px."""
GAP = 8
ROOM = 0.3
"""Share of the width that names to the right of the last point may take."""

Span = tuple[float | int, float | int]


def room_for_names(values: pl.Series) -> Span:
    """A domain for these values with room to the right for the names of points."""
    low, high = float(values.min() or 0), float(values.max() or 0)  # type: ignore[arg-type]
    wide = (high - low) or 1.0
    return low - 0.04 * wide, high + ROOM * wide


def names(frame: pl.DataFrame, text: str, at: tuple[str, str], across: Span, down: Span, size: Span) -> Any:
    """The column `text` to the right of points; where it would cover one before it, up or down, with a line to it.

    `at` are the fields of the points; `across` is the domain of x from the left, `down` that of y from the top, `size`
    the width and height in pixels.
    """
    placed = _apart(frame.select(*at, text).rows(), across, down, size)
    pixel = [abs(span[1] - span[0]) / pixels for span, pixels in ((across, size[0]), (down, size[1]))]
    shown = frame.select(
        (pl.col(at[0]) + GAP * pixel[0]).alias("x"), pl.Series("y", placed, pl.Float64), pl.col(text).alias("name"),
        pl.col(at[0]).alias("x2"), pl.col(at[1]).alias("y2"),
    )  # fmt: skip
    x = alt.X("x:Q", scale=alt.Scale(domain=list(across), nice=False))
    y = alt.Y("y:Q", scale=alt.Scale(domain=[down[1], down[0]], nice=False))
    moved = shown.filter((pl.col("y") - pl.col("y2")).abs() > LINE / 2 * pixel[1])
    lines = alt.Chart(inline(moved)).mark_rule(strokeWidth=0.7).encode(x=x, y=y, x2="x2:Q", y2="y2:Q")
    words = alt.Chart(inline(shown)).mark_text(align="left", dx=2, fontSize=11)
    return alt.layer(lines, words.encode(x=x, y=y, text="name:N"))


def _apart(points: list[tuple[float, float, str]], across: Span, down: Span, size: Span) -> list[float]:
    """For each name a height, in the units of the data: its point's, or the nearest below or above that is free."""
    taken: list[tuple[float, float, float]] = []
    heights = []
    for x, y, text in points:
        left = (x - across[0]) / (across[1] - across[0]) * size[0]
        right, at = left + GAP + LETTER * len(text), (y - down[0]) / (down[1] - down[0]) * size[1]
        steps = sorted(range(-len(points), len(points) + 1), key=lambda step: (abs(step), -step))
        free = (at + step * LINE / 2 for step in steps if _is_free(left, right, at + step * LINE / 2, taken))
        place = next((place for place in free if 0 <= place <= size[1]), at)
        taken.append((left, right, place))
        heights.append(down[0] + place / size[1] * (down[1] - down[0]))
    return heights


def _is_free(left: float, right: float, at: float, taken: list[tuple[float, float, float]]) -> bool:
    return all(right < first or left > last or abs(at - other) >= LINE for first, last, other in taken)
