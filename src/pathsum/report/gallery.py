"""Which figures a page shows, in which section, and what is written under them."""

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from pathsum.report import figures
from pathsum.report.figures.composition import SURE
from pathsum.report.figures.heads import FAINT
from pathsum.report.figures.style import MOST_HEADS, Figure
from pathsum.report.heads import head_table
from pathsum.report.partners import circuit_pairs, composition_pairs
from pathsum.report.patterns import heads_to_show, pattern_table, sample_labels
from pathsum.study.result import Result
from pathsum.study.subject import Subject

TERMS = {
    "bigram_pairs": "The direct path against bigrams",
    "importance": "By order",
    "importance_layers": "By layer of the last head",
    "importance_heads": "By last head",
}


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
    found = [*_of_heads(results, heads), *_of_composition(results, heads), *_of_induction(subject, results, heads)]
    return [*found, *_of_terms(results, heads)]


def _own(results: dict[str, Result], heads: pl.DataFrame, name: str, section: str, title: str) -> Iterator[Drawing]:
    """A reading's own figure, as every face of it shows it."""
    figure = figures.figure_of(results[name], heads) if name in results else None
    if figure is not None:
        yield Drawing(name, section, title, figures.caption_of(results[name]), figure)


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
    yield from _own(results, heads, "spectra", "heads", "Do heads copy? Two answers")
    if _has(results, "attention"):
        yield Drawing(
            "lags", "heads", "How far back heads look",
            f"Mean attention to the token 0, 1, 2 … positions back, on the text.{few}",
            figures.lag_profiles(results["attention"].frame),
        )  # fmt: skip
    yield from _own(results, heads, "positional", "heads", "What positions alone say")


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


def _of_induction(subject: Subject, results: dict[str, Result], heads: pl.DataFrame) -> Iterator[Drawing]:
    pairs = circuit_pairs(results)
    if len(pairs.drop_nulls(["copying_score", "matching_score"])):
        yield Drawing(
            "corner", "induction", "Matching against copying",
            "A dot for every head that makes its keys from earlier heads, with one of them: the previous-token head of "
            "its strongest sure K-composition, or else its strongest. Induction heads match (high) and copy (right).",
            figures.matching_against_copying(pairs),
        )  # fmt: skip
    yield from _own(results, heads, "induction", "induction", "The three tests of an induction head")
    shown = heads_to_show(results) if _has(results, "induction") else []
    if shown:
        yield Drawing(
            "patterns", "induction", "Where the heads look on a text",
            "A row is a token and looks at the columns. Stripes beside the diagonal that start where a phrase comes "
            f"again are induction. Attention below {FAINT} is not drawn.",
            figures.attention_patterns(pattern_table(subject, shown), sample_labels(subject)),
        )  # fmt: skip
    yield from _own(results, heads, "repeats", "induction", "Random tokens, three times over")
    yield from _own(results, heads, "loss_by_position", "induction", "Does context help?")


def _of_terms(results: dict[str, Result], heads: pl.DataFrame) -> Iterator[Drawing]:
    for name, title in TERMS.items():
        yield from _own(results, heads, name, "terms", title)


def _has(results: dict[str, Result], name: str) -> bool:
    return name in results and not results[name].frame.is_empty()
