"""Every figure once: a table in, a chart out, shown in a notebook by itself, in the report, or saved as SVG or PDF."""

from pathsum.report.figures.composition import composition_diagram, composition_heat_map, pairs_shown
from pathsum.report.figures.heads import (
    attention_patterns,
    eigenvalue_scatter,
    lag_profiles,
    matching_against_copying,
)
from pathsum.report.figures.paths import cross_figure, path_diagram
from pathsum.report.figures.saving import check_figure_place, save_figure
from pathsum.report.figures.scores import score_heat_maps
from pathsum.report.figures.terms import head_bars, layer_bars, order_bars, repeat_losses

__all__ = [
    "attention_patterns",
    "check_figure_place",
    "composition_diagram",
    "composition_heat_map",
    "cross_figure",
    "eigenvalue_scatter",
    "head_bars",
    "lag_profiles",
    "layer_bars",
    "matching_against_copying",
    "order_bars",
    "pairs_shown",
    "path_diagram",
    "repeat_losses",
    "save_figure",
    "score_heat_maps",
]
