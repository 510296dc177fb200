"""Every figure once: a table in, a chart out, shown in a notebook by itself, in the report, or saved as SVG or PDF."""

from pathsum.report.figures.bigrams import direct_path_against_bigrams
from pathsum.report.figures.composition import composition_diagram, composition_heat_map, pairs_shown
from pathsum.report.figures.copying import own_token_ranks
from pathsum.report.figures.cross import cross_figure, expansion_bars
from pathsum.report.figures.heads import (
    attention_patterns,
    eigenvalue_scatter,
    lag_profiles,
    matching_against_copying,
)
from pathsum.report.figures.induction import induction_tests, loss_by_position, matching_pairs
from pathsum.report.figures.lens import logit_lens
from pathsum.report.figures.of import FIGURES, caption_of, figure_of
from pathsum.report.figures.paths import path_diagram
from pathsum.report.figures.positional import positional_circuits
from pathsum.report.figures.saving import check_figure_place, save_figure
from pathsum.report.figures.scores import score_heat_maps
from pathsum.report.figures.terms import (
    carried_bars,
    head_bars,
    layer_bars,
    order_bars,
    path_bars,
    repeat_losses,
    source_lines,
    virtual_bars,
)
from pathsum.report.figures.training import composition_over_training

__all__ = [
    "FIGURES",
    "attention_patterns",
    "caption_of",
    "carried_bars",
    "check_figure_place",
    "composition_diagram",
    "composition_heat_map",
    "composition_over_training",
    "cross_figure",
    "direct_path_against_bigrams",
    "eigenvalue_scatter",
    "expansion_bars",
    "figure_of",
    "head_bars",
    "induction_tests",
    "lag_profiles",
    "layer_bars",
    "logit_lens",
    "loss_by_position",
    "matching_against_copying",
    "matching_pairs",
    "order_bars",
    "own_token_ranks",
    "pairs_shown",
    "path_bars",
    "path_diagram",
    "positional_circuits",
    "repeat_losses",
    "save_figure",
    "score_heat_maps",
    "source_lines",
    "virtual_bars",
]
