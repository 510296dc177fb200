"""Every figure once: a table in, a chart out, shown in a notebook by itself, in the report, or saved as SVG or PDF."""

from pathsum.report.figures.composition import composition_diagram, composition_heat_map, pairs_shown
from pathsum.report.figures.heads import (
    attention_patterns,
    eigenvalue_scatter,
    lag_profiles,
    matching_against_copying,
)
from pathsum.report.figures.terms import head_bars, layer_bars, order_bars, repeat_losses

__all__ = [
    "attention_patterns",
    "composition_diagram",
    "composition_heat_map",
    "eigenvalue_scatter",
    "head_bars",
    "lag_profiles",
    "layer_bars",
    "matching_against_copying",
    "order_bars",
    "pairs_shown",
    "repeat_losses",
]
