"""Which figures a page shows, in which section, and what is written under them."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import log

import polars as pl

from pathsum.report import figures
from pathsum.report.figures.composition import SURE
from pathsum.report.figures.heads import FAINT
from pathsum.report.figures.style import MOST_HEADS, Figure
from pathsum.report.heads import head_table
from pathsum.report.partners import circuit_pairs, composition_pairs
from pathsum.report.patterns import heads_to_show, pattern_table, sample_labels
from pathsum.report.story import order_name, spec_of
from pathsum.study.result import Result
from pathsum.study.subject import Subject


@dataclass(frozen=True)
class Drawing:
    """A figure in its place."""

    name: str
    section: str
    title: str
    caption: str
    figure: Figure


def drawings(subject: Subject, results: dict[str, Result]) -> list[Drawing]:
    """The figures for which there is something to draw, in the page's order."""
    heads = head_table(results)
    found = [*_of_heads(results, heads), *_of_composition(results, heads), *_of_induction(subject, results)]
    return [*found, *_of_terms(results)]


def _of_heads(results: dict[str, Result], heads: pl.DataFrame) -> Iterator[Drawing]:
    few = f" The {MOST_HEADS} heads with the largest values." if len(heads) > MOST_HEADS else ""
    if _has(results, "eigenvalues") and _has(results, "spectra"):
        yield Drawing(
            "eigenvalues", "heads", "Eigenvalues of the OV circuits",
            "A panel a head, titled with its copying score, highest first. To the right: a token raises itself; to the "
            "left: it lowers itself; up and down: tokens move round each other. Directions are true; distances are "
            f"square roots of moduli over the head's largest.{few}",
            figures.eigenvalue_scatter(results["eigenvalues"].frame, heads),
        )  # fmt: skip
    if _has(results, "attention"):
        yield Drawing(
            "lags", "heads", "How far back heads look",
            f"Mean attention to the token 0, 1, 2 … positions back, on the text.{few}",
            figures.lag_profiles(results["attention"].frame),
        )  # fmt: skip


def _of_composition(results: dict[str, Result], heads: pl.DataFrame) -> Iterator[Drawing]:
    pairs = composition_pairs(results)
    if pairs.is_empty():
        return
    shown, total = figures.pairs_shown(pairs)
    few = "" if shown == total else f" Of {total:,} pairs, the {shown:,} with the largest effects can be drawn."
    yield Drawing(
        "diagram", "composition", "Which heads read which",
        "Lines are pairs of heads; width is the effect: score less 1/√d_model, what chance gives. Hover a head to see "
        f"its pairs, a line for its numbers.{few}",
        figures.composition_diagram(pairs, heads),
    )  # fmt: skip
    yield Drawing(
        "effects", "composition", "Composition and avoidance of all pairs",
        f"Effects of both signs, shaded by size. + and − mark |z| ≥ {SURE:g} against a random relative rotation: "
        "− says that a head reads less of another's output than chance would have it.",
        figures.composition_heat_map(pairs),
    )  # fmt: skip


def _of_induction(subject: Subject, results: dict[str, Result]) -> Iterator[Drawing]:
    pairs = circuit_pairs(results)
    if len(pairs.drop_nulls(["copying_score", "matching_score"])):
        yield Drawing(
            "corner", "induction", "Matching against copying",
            "A dot for every head that makes its keys from earlier heads, with one of them: the previous-token head of "
            "its strongest sure K-composition, or else its strongest. Induction heads match (high) and copy (right).",
            figures.matching_against_copying(pairs),
        )  # fmt: skip
    shown = heads_to_show(results) if _has(results, "induction") else []
    if shown:
        yield Drawing(
            "patterns", "induction", "Where the heads look on a text",
            "A row is a token and looks at the columns. Stripes beside the diagonal that start where a phrase comes "
            f"again are induction. Attention below {FAINT} is not drawn.",
            figures.attention_patterns(pattern_table(subject, shown), sample_labels(subject)),
        )  # fmt: skip
    if _has(results, "repeats"):
        yield Drawing(
            "repeats", "induction", "Random tokens, three times over",
            "Loss in each copy; the dashed rule is a uniform guess.",
            figures.repeat_losses(results["repeats"].frame, log(spec_of(results)["d_vocab"])),
        )  # fmt: skip


def _of_terms(results: dict[str, Result]) -> Iterator[Drawing]:
    if _has(results, "importance"):
        frame = results["importance"].frame
        names = {int(order): order_name(int(order)) for order in frame["order"]}
        yield Drawing("orders", "terms", "By order", "Loss saved by each order of terms after the ones above it, from "
                      "a uniform guess on, with attention patterns as they were.",
                      figures.order_bars(frame, names))  # fmt: skip
    if _has(results, "importance_layers"):
        yield Drawing("layers", "terms", "By layer of the last head", "",
                      figures.layer_bars(results["importance_layers"].frame))  # fmt: skip
    if _has(results, "importance_heads"):
        yield Drawing("last_heads", "terms", "By last head", "",
                      figures.head_bars(results["importance_heads"].frame))  # fmt: skip


def _has(results: dict[str, Result], name: str) -> bool:
    return name in results and not results[name].frame.is_empty()
