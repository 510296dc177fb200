"""Every reading's figure, in one table: notebook, command line, report and explorer look here."""

from collections.abc import Callable
from dataclasses import dataclass
from math import log
from typing import Any

import polars as pl

from pathsum.report.figures import copying, cross, heads, induction, paths, scores, terms
from pathsum.report.figures.bigrams import direct_path_against_bigrams
from pathsum.report.figures.composition import composition_diagram, composition_heat_map
from pathsum.report.figures.lens import logit_lens
from pathsum.report.figures.panels import Measure, panels
from pathsum.report.figures.positional import positional_circuits
from pathsum.report.figures.style import KINDS, Figure, finished
from pathsum.report.heads import COPYING, OWN_TOKEN_RANK, head_table
from pathsum.report.story import order_name
from pathsum.study.on_tokens import INDUCTION_THRESHOLDS, PARTNER_Z
from pathsum.study.result import Result

MOST_PAIRS = 24


@dataclass(frozen=True)
class Drawn:
    """How a reading is drawn, and what is written under it."""

    caption: str
    draw: Callable[[Result, pl.DataFrame], Figure | None]
    """Of a result that has rows, and `head_table` of what else is known of the model's heads."""


def figure_of(result: Result, known: pl.DataFrame | None = None) -> Figure | None:
    """The figure of a reading's result; None for a reading that is better read than looked at, or has nothing to draw.

    `known` is `head_table` of several readings: roles of heads, where the figure shows them.

    >>> figure_of(pathsum.composition(pathsum.open("two-layer")))
    """
    drawn = FIGURES.get(result.reading.name)
    if drawn is None or result.frame.is_empty():
        return None
    return drawn.draw(result, head_table({result.reading.name: result}) if known is None else known)


def caption_of(result: Result) -> str:
    """What to write under the figure; "" where there is none."""
    return FIGURES[result.reading.name].caption if result.reading.name in FIGURES else ""


def _composition(result: Result, known: pl.DataFrame) -> Figure | None:
    frame = result.frame.with_columns(pl.col("effect").cast(pl.Float64).fill_nan(None)).drop_nulls("effect")
    if frame.is_empty():
        return None
    if not set(frame["kind"]) <= set(KINDS) or not frame["source"].str.contains(r"^L\d+H\d+$").all():
        return composition_heat_map(frame)
    # Of several distances, the one at which a pair composes or avoids each other most.
    strongest = frame.sort(pl.col("effect").abs(), descending=True, maintain_order=True)
    return composition_diagram(strongest.unique(["kind", "source", "destination"], keep="first"), known)


def _eigenvalues(result: Result, _: pl.DataFrame) -> Figure | None:
    frame = result.frame.filter(pl.col("circuit") == "OV")
    modulus = (pl.col("real") ** 2 + pl.col("imaginary") ** 2).sqrt()
    score = (pl.col("real").sum() / modulus.sum()).fill_nan(None).alias("copying_score")
    table = frame.group_by("head", maintain_order=True).agg(score)
    return None if frame.is_empty() else heads.eigenvalue_scatter(frame, table)


def _positional(result: Result, _: pl.DataFrame) -> Figure | None:
    return positional_circuits(result.frame)


def _spectra(result: Result, _: pl.DataFrame) -> Figure | None:
    return copying.own_token_ranks(result.frame, COPYING, OWN_TOKEN_RANK)


def _pointer(result: Result, _: pl.DataFrame) -> Figure | None:
    frame = result.frame.head(MOST_PAIRS).with_columns(pl.format("{} → {}", "source", "destination").alias("pair"))
    measures = [
        Measure("share_next", "looks one position on", "share of positions"),
        Measure("contrast", "next in standard deviations", "of the table's entries"),
        Measure("q_effect", "Q-composition above chance", "score − baseline"),
    ]
    return finished(panels(frame, "pair", measures, width=200), "Pointer arithmetic: pairs that look one position on.")


def _matching(result: Result, _: pl.DataFrame) -> Figure | None:
    return induction.matching_pairs(result.frame, PARTNER_Z)


def _induction(result: Result, _: pl.DataFrame) -> Figure | None:
    return induction.induction_tests(result.frame, INDUCTION_THRESHOLDS)


def _repeats(result: Result, _: pl.DataFrame) -> Figure | None:
    return terms.repeat_losses(result.frame, log(result.manifest["spec"]["d_vocab"]))


def _importance(result: Result, _: pl.DataFrame) -> Figure | None:
    orders = [int(order) for order in result.frame["order"]]
    return terms.order_bars(result.frame, {order: order_name(order) for order in orders})


def _expand(result: Result, _: pl.DataFrame) -> Figure | None:
    asked: dict[str, Any] = result.manifest["prompt"]
    if "first" in result.frame.columns:
        return cross.cross_figure(result.rows(), result.manifest["options"]["by"], asked)
    return cross.expansion_bars(result.frame)


def _of_rows(draw: Callable[[list[dict[str, Any]], dict[str, Any]], Figure]) -> Callable[..., Figure | None]:
    return lambda result, _: draw(result.rows(), result.manifest["prompt"])


def _of_frame(draw: Callable[[pl.DataFrame], Figure]) -> Callable[..., Figure | None]:
    return lambda result, _: draw(result.frame)


ERRORS = "Whiskers are two standard errors over contexts."
FIGURES: dict[str, Drawn] = {
    "bigram_pairs": Drawn(
        "A point is one of the text's most frequent bigrams, its area the count; on the dashed line the direct path "
        "says what the text says. Named are frequent ones that it has most wrong.",
        _of_frame(direct_path_against_bigrams),
    ),
    "spectra": Drawn(
        "Copying score (right: copies) against own-token rank (top: copies), dashed where each begins to say so. "
        "Diamonds are heads of which the two tell different stories. Whiskers: two standard errors of sampled ranks.",
        _spectra,
    ),
    "eigenvalues": Drawn(
        "OV circuits, a panel a head, titled with its copying score, highest first. To the right: a token raises "
        "itself; to the left: it lowers itself. Directions are true; distances are square roots of moduli over the "
        "head's largest.",
        _eigenvalues,
    ),
    "composition": Drawn(
        "Lines are pairs; width is the effect: score less 1/√d_model, what chance gives.", _composition
    ),
    "matching": Drawn(
        "A point is a pair of heads: an induction circuit matches (high) and K-composes (right).", _matching
    ),
    "attention": Drawn("Mean attention to the token 0, 1, 2 … positions back.", _of_frame(heads.lag_profiles)),
    "positional": Drawn(
        "What positions alone add to a head's scores at distance Δ; the band is one standard deviation.", _positional
    ),
    "pointer": Drawn("The pairs that look most surely one position after the one they were told of.", _pointer),
    "induction": Drawn(
        "The three tests of an induction head, dashed where each is passed; ◆ passes all. Heads with the most prefix "
        "matching first.",
        _induction,
    ),
    "repeats": Drawn("Loss in each copy of random tokens; dashed: a uniform guess.", _repeats),
    "loss_by_position": Drawn(
        "Points are means over contexts, the line is their mean over 15 tokens; ◆ marks the two tokens that the "
        "in-context score compares.",
        _of_frame(induction.loss_by_position),
    ),
    "importance": Drawn(f"Loss saved by each order of terms after the ones above it. {ERRORS}", _importance),
    "importance_layers": Drawn(ERRORS, _of_frame(terms.layer_bars)),
    "importance_heads": Drawn(ERRORS, _of_frame(terms.head_bars)),
    "importance_sources": Drawn(ERRORS, _of_frame(terms.source_lines)),
    "importance_paths": Drawn(f"The {terms.MOST} that cost most to leave out. {ERRORS}", _of_frame(terms.path_bars)),
    "virtual": Drawn(f"The {terms.MOST} that cost most to leave out. {ERRORS}", _of_frame(terms.virtual_bars)),
    "carried": Drawn("Sources as the model is deep, embeddings first.", _of_frame(terms.carried_bars)),
    "expand": Drawn("What paths add to the logit.", _expand),
    "lens": Drawn(
        "Solid, circles: the run's final scale; dashed, squares: that of the partial sum. The words are what it would "
        "say first.",
        _of_rows(logit_lens),
    ),
    "paths": Drawn(
        "Width is what paths along a line add; dashed lines lower the target.", _of_rows(paths.path_diagram)
    ),
    "scores": Drawn(
        "The centred score: rows are the query's part, columns the key's.",
        lambda result, _: scores.score_heat_maps(result.rows()),
    ),
}
"""The readings that have a figure, by name, and what is asked of one prompt."""
