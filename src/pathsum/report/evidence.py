"""The induction circuit, step by step: what speaks for it and what against, each with its number and its threshold."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl

from pathsum.report.heads import COPYING, PREVIOUS_TOKEN, head_table, looks
from pathsum.report.numbers import fixed, signed
from pathsum.report.partners import composition_pairs, partners, partners_of
from pathsum.study.on_tokens import INDUCTION_THRESHOLDS, PARTNER_Z
from pathsum.study.result import Result

Verdict = Literal["for", "against", "unknown"]
MATCHING = 0.9
"""A pair's circuit matches equal tokens if its matching score reaches this."""

EASIER = 0.5
"""Random tokens are easier the second time if their loss falls by at least this many nats."""
OTHERS = 5
"""Other heads named that the head reads."""


@dataclass(frozen=True)
class Evidence:
    """One step of the argument."""

    claim: str
    found: str
    verdict: Verdict


@dataclass(frozen=True)
class Circuit:
    """One head with its strongest K-partner, and every step of the argument."""

    head: str
    partner: str | None
    accepted: bool
    """The head passes all three tests of `INDUCTION_THRESHOLDS`."""
    steps: tuple[Evidence, ...]


def circuits(results: dict[str, Result], most: int = 4) -> list[Circuit]:
    """The induction heads, those with the most prefix matching first; where there are none, the nearest head."""
    table = head_table(results).drop_nulls("prefix_matching").sort("prefix_matching", descending=True)
    found = table.filter(pl.col("is_induction_head").fill_null(False)).head(most)
    return [_circuit(results, row) for row in (table.head(1) if found.is_empty() else found).iter_rows(named=True)]


def _circuit(results: dict[str, Result], head: dict[str, Any]) -> Circuit:
    name = head["head"]
    first = partners_of(results, name).head(1).to_dicts()
    before = [*_pair_steps(results, name, first[0]), *_others(results, name, first[0])] if first else []
    return Circuit(
        name,
        first[0]["source"] if first else None,
        bool(head["is_induction_head"]),
        (*(before or _no_partner(results, name)), *_head_steps(head), *_repeat_step(results)),
    )


def _pair_steps(results: dict[str, Result], head: str, pair: dict[str, Any]) -> list[Evidence]:
    source = pair["source"]
    kinds = composition_pairs(results).filter((pl.col("source") == source) & (pl.col("destination") == head))
    effects = dict(kinds.select("kind", "effect").iter_rows())
    others = [effects[kind] for kind in "QV" if kind in effects]
    return [
        Evidence(
            f"{source} attends to the token before",
            f"mean attention {fixed(pair['previous_token'])} on the text (threshold {PREVIOUS_TOKEN})",
            _at_least(pair["previous_token"], PREVIOUS_TOKEN),
        ),
        Evidence(
            f"{head} makes its keys from what {source} wrote",
            f"K-composition {signed(pair['effect'])} above chance, z {fixed(pair['z'], 1)} (threshold {PARTNER_Z:g}), "
            f"where any rotation allows up to {signed(pair['ceiling'] - pair['baseline'])}",
            "for",
        ),
        Evidence(
            "and it does so with its keys rather than with its queries or values",
            f"effects: K {signed(effects['K'])}, Q {signed(effects.get('Q'))}, V {signed(effects.get('V'))}",
            "for" if all(effects["K"] > other for other in others) else "against",
        ),
        Evidence(
            "the pair's circuit looks for the token at hand",
            f"matching score {fixed(pair['matching_score'])} (threshold {MATCHING})",
            _at_least(pair["matching_score"], MATCHING),
        ),
    ]


def _others(results: dict[str, Result], head: str, pair: dict[str, Any]) -> list[Evidence]:
    """What else the head surely reads: another circuit may be at work."""
    sure = composition_pairs(results).filter((pl.col("destination") == head) & (pl.col("z") >= PARTNER_Z))
    known = (pl.col("kind") == "K") & (pl.col("source") == pair["source"])
    others = sure.filter(~known).sort("effect", descending=True)
    if others.is_empty():
        return []
    lags = dict(head_table(results).select("head", "lag").iter_rows())
    named = [f"{row['kind']} {row['source']} {signed(row['effect'])}{_aside(looks(lags.get(row['source'])))}"
             for row in others.head(OTHERS).iter_rows(named=True)]  # fmt: skip
    more = f" and {len(others) - OTHERS} more" if len(others) > OTHERS else ""
    return [Evidence("it surely reads other heads too", f"{', '.join(named)}{more}", "unknown")]


def _aside(words: str) -> str:
    return f" ({words})" if words else ""


def _no_partner(results: dict[str, Result], head: str) -> list[Evidence]:
    best = partners(results).filter(pl.col("destination") == head).head(1).to_dicts()
    nearest = f"; the nearest is {best[0]['source']} with z {fixed(best[0]['z'], 1)}" if best else ""
    return [Evidence(f"{head} makes its keys from what an earlier head wrote",
                     f"no earlier head K-composes with it with z ≥ {PARTNER_Z:g}{nearest}", "against")]  # fmt: skip


def _head_steps(head: dict[str, Any]) -> list[Evidence]:
    low, name = INDUCTION_THRESHOLDS, head["head"]
    return [
        Evidence(
            f"{name} attends to what came after earlier copies of the token at hand",
            f"prefix matching {fixed(head['prefix_matching'])} on repeated random tokens (threshold "
            f"{low['prefix_matching']}), {fixed(head['prefix_matching_text'])} on the text",
            _at_least(head["prefix_matching"], low["prefix_matching"]),
        ),
        Evidence(
            f"{name} raises the token it attends to",
            f"{signed(head['copying'], 2)} nats on the attended token's logit (threshold {low['copying']})",
            _at_least(head["copying"], low["copying"]),
        ),
        Evidence(
            f"{name} copies by its weights alone",
            f"copying score {fixed(head['copying_score'])} (threshold {COPYING}), own-token rank "
            f"{fixed(head['own_token_rank'], 3)}",
            _at_least(head["copying_score"], COPYING),
        ),
        Evidence(
            f"the model needs {name} to predict the repeats",
            f"their loss changes by {signed(head['causal_effect'], 2)} nats without it (threshold "
            f"{low['causal_effect']})",
            _at_least(head["causal_effect"], low["causal_effect"]),
        ),
        Evidence(
            "where it looks when there is no earlier copy",
            f"mean attention {fixed(head['start_token'])} on the first token, where it could rest (no threshold)",
            "unknown",
        ),
    ]


def _repeat_step(results: dict[str, Result]) -> list[Evidence]:
    losses = {row["copy"]: row["loss"] for row in results["repeats"].rows()} if "repeats" in results else {}
    if losses.get(1) is None or losses.get(2) is None:
        return []
    uniform = math.log(results["repeats"].manifest["spec"]["d_vocab"])
    found = (
        f"{fixed(losses[1])} nats per token in the first copy, {fixed(losses[2])} in the second (by at least {EASIER}; "
        f"on random tokens the drop is the sign, not the level: a uniform guess has {fixed(uniform)})"
    )
    return [Evidence("random tokens are easier the second time", found, _at_least(losses[1] - losses[2], EASIER))]


def _at_least(value: float | None, threshold: float) -> Verdict:
    if value is None:
        return "unknown"
    return "for" if value >= threshold else "against"
