"""One head: what the readings say of it. Its tables around a token are in `token_tables`."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl

from pathsum.report.heads import COPYING, OWN_TOKEN_RANK, head_table
from pathsum.report.numbers import fixed
from pathsum.report.partners import composition_pairs
from pathsum.report.tables import roles
from pathsum.report.tokens import visible
from pathsum.study.result import Result

SCORES = {
    "copying_score": "copying score, by eigenvalues", "own_token_rank": "own-token rank (0: copies perfectly)",
    "own_token_top": "share of tokens that raise themselves most", "matching_score": "matching score",
    "previous_token": "attention to the token before, on the text",
    "prefix_matching": "prefix matching, on repeated random tokens",
    "copying": "copying on them, nats", "causal_effect": "their loss without it, nats more",
    "start_token": "rest on the first token", "gain_individual": "loss its own terms save, nats",
    "cost_without": "loss without its terms, nats more",
}  # fmt: skip
"""Columns of a head's row and what they are called."""
PARTNERS = 8
TRIGRAMS = 10
LONGEST = 40
"""Characters of a token."""


@dataclass(frozen=True)
class HeadPage:
    """What the readings that were made say of one head."""

    name: str
    roles: list[str]
    scores: dict[str, float | None]
    said: str
    """Where eigenvalues and own-token rank tell different stories."""
    eigenvalues: list[tuple[float, float, str]]
    """Real part, imaginary part, OV or QK."""
    partners: dict[str, list[dict[str, Any]]]
    """`writes_to` and `reads_from`: pairs with the largest effects, of both signs."""
    trigrams: list[dict[str, Any]]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def head_page(results: dict[str, Result], name: str) -> HeadPage:
    """The head's page, of the readings that `results` has."""
    row = head_table(results).row(by_predicate=pl.col("head") == name, named=True)
    scores = {words: _short(row[column]) for column, words in SCORES.items()}
    pairs = composition_pairs(results)
    partners = {"writes_to": _partners(pairs, "source", "destination", name),
                "reads_from": _partners(pairs, "destination", "source", name)}  # fmt: skip
    found = _of_head(results, "trigrams", name)[:TRIGRAMS]
    trigrams = [{key: visible(each[key], LONGEST) for key in ("source", "destination", "out")}
                | {key: _short(each[key]) for key in ("effect", "qk", "ov")} for each in found]  # fmt: skip
    return HeadPage(name, roles(row), scores, _disagreement(row), _eigenvalues(results, name), partners, trigrams)


def _disagreement(row: dict[str, Any]) -> str:
    if not row["disagrees"]:
        return ""
    score, rank = fixed(row["copying_score"]), fixed(row["own_token_rank"], 3)
    if row["is_copying"]:
        return (
            f"Its eigenvalues say that it copies (copying score {score} ≥ {COPYING}), its own-token rank does not "
            f"({rank} > {OWN_TOKEN_RANK}): many outputs are raised above the source's own token. Positive eigenvalues "
            "are no proof of copying."
        )
    return (
        f"Its own-token rank says that it copies ({rank} ≤ {OWN_TOKEN_RANK}), its eigenvalues do not (copying score "
        f"{score} < {COPYING}): tokens raise themselves above most others, though the circuit as a whole does not."
    )


def _eigenvalues(results: dict[str, Result], name: str) -> list[tuple[float, float, str]]:
    rows = _of_head(results, "eigenvalues", name)
    return [(_rounded(row["real"]), _rounded(row["imaginary"]), row["circuit"]) for row in rows]


def _partners(pairs: pl.DataFrame, own: str, other: str, name: str) -> list[dict[str, Any]]:
    found = pairs.filter(pl.col(own) == name).sort(pl.col("effect").abs(), descending=True).head(PARTNERS)
    numbers = ("effect", "z", "score", "baseline", "ceiling")
    return [{"head": row[other], "kind": row["kind"]} | {key: _short(row[key]) for key in numbers}
            for row in found.iter_rows(named=True)]  # fmt: skip


def _of_head(results: dict[str, Result], reading: str, name: str) -> list[dict[str, Any]]:
    if reading not in results or results[reading].frame.is_empty():
        return []
    return results[reading].frame.filter(pl.col("head") == name).to_dicts()


def _short(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else _rounded(value)


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
