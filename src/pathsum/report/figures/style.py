"""What all figures share: their data, their colours, their size on paper.

Colours are given by role. On paper they are fixed (Okabe and Ito's, told apart by the colour-blind); the page gives the
same roles as CSS variables, so that light, dark and print need no second drawing. No figure tells anything by colour
alone: kinds differ in dashes, signs in marks, roles of heads in shapes.
"""

import re
from dataclasses import dataclass
from typing import Any

import altair as alt
import polars as pl

Figure = alt.TopLevelMixin

KINDS = ["Q", "K", "V"]
MOST_HEADS = 48
"""Heads in one figure; larger models show those with the largest values, and the caption says so."""


@dataclass(frozen=True)
class Palette:
    """A colour for each role, in any CSS spelling."""

    ink: str
    muted: str
    line: str
    paper: str
    blue: str
    orange: str
    green: str

    @property
    def series(self) -> list[str]:
        """Q, K, V, and any other list of names, in this order."""
        return [self.blue, self.orange, self.green, self.muted]


PRINT = Palette("#1b1f24", "#5b6570", "#d5dae0", "#ffffff", "#0072b2", "#d55e00", "#009e73")
PAGE = Palette(*(f"var(--{role})" for role in ("ink", "muted", "line", "paper", "blue", "orange", "green")))


FILE_FONT = "Arial, 'Liberation Sans', Helvetica, sans-serif"
"""Of one width wherever a file is opened, so that no word is cut off where it was laid out."""


def theme(palette: Palette) -> dict[str, Any]:
    """A Vega configuration: quiet axes, the palette's colours, no background of its own."""
    text = {"labelColor": palette.ink, "titleColor": palette.ink, "titleFontWeight": "normal", "labelFontSize": 11}
    lines = {"gridColor": palette.line, "domainColor": palette.muted, "tickColor": palette.muted}
    return {
        "background": palette.paper if palette is PRINT else "transparent",
        "font": FILE_FONT if palette is PRINT else "system-ui, 'Liberation Sans', 'DejaVu Sans', sans-serif",
        "view": {"stroke": None},
        "axis": {**text, **lines, "titleFontSize": 12},
        "legend": {**text, "titleFontSize": 12, "symbolStrokeColor": palette.ink, "symbolBaseFillColor": palette.ink,
                   "symbolBaseStrokeColor": palette.ink},
        "header": {**text, "titleFontSize": 12},
        "title": {"color": palette.ink, "subtitleColor": palette.muted, "anchor": "start", "fontWeight": "normal"},
        "mark": {"color": palette.blue},
        "rule": {"color": palette.muted},
        "text": {"color": palette.ink},
        "style": {"node": {"color": palette.ink, "filled": True}, "whisker": {"color": palette.ink},
                  "guide": {"color": palette.line}},
        "range": {"category": palette.series},
    }  # fmt: skip


def finished(chart: Any, description: str) -> Figure:
    """The chart with its description for those who cannot see it, and the colours it has on paper."""
    return chart.properties(description=description, config=theme(PRINT))


def inline(frame: pl.DataFrame) -> alt.InlineData:
    """A table as the data of a chart: five significant digits, undefined as null."""
    floats = [name for name, kind in frame.schema.items() if kind.is_float()]
    rounded = frame.with_columns(pl.col(floats).fill_nan(None).round_sig_figs(5)) if floats else frame
    return alt.InlineData(values=rounded.to_dicts())


def axis(**facts: Any) -> alt.Axis:
    """An axis without ticks and grid unless asked for."""
    return alt.Axis(**{"grid": False, "ticks": False, "domain": False, **facts})


def strongest_heads(frame: pl.DataFrame, value: str, most: int = MOST_HEADS) -> pl.DataFrame:
    """The rows of the `most` heads that have the largest |value| anywhere; all of them in a small model."""
    size = frame.group_by("head").agg(pl.col(value).abs().max().alias("size"))
    kept = size.sort("size", "head", descending=[True, False], nulls_last=True).head(most)["head"]
    return frame.filter(pl.col("head").is_in(kept.implode()))


def in_place(names: list[str]) -> list[str]:
    """Writers and readers, each once, in the order of the model: embed, pos, L0H0 …, L0.mlp, L1H0 …, unembed."""

    def place(name: str) -> tuple[float, bool, int, str]:
        if not (match := re.fullmatch(r"L(\d+)(?:H(\d+)|\..*)", name)):
            return (float("inf") if name == "unembed" else -1.0, False, 0, name)
        return (float(match[1]), match[2] is None, int(match[2] or 0), name)

    return sorted(set(names), key=place)


def by_number(heads: list[str]) -> list[str]:
    """Head names in the order of layers and indices, each once: L0H9 before L0H10."""
    return sorted(set(heads), key=lambda name: [int(part) for part in name[1:].split("H")])
