"""The terminal summary: what a reader wants to know first, at 80 columns or any width."""

import polars as pl
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from pathsum.report.heads import COPYING, OWN_TOKEN_RANK, PREVIOUS_TOKEN, head_table, looks
from pathsum.report.numbers import count, fixed, signed, small
from pathsum.report.partners import composition_pairs, partners_of
from pathsum.report.story import copying_count, model_line, term_steps, text_line
from pathsum.study.on_tokens import INDUCTION_THRESHOLDS, PARTNER_Z
from pathsum.study.result import Result

MOST_HEADS = 24
MOST_ROWS = 6
PARTNERS = 3
"""Partners shown for an induction head."""


def summary(results: dict[str, Result]) -> RenderableType:
    """A rich renderable. Readings that were not made are left out.

    >>> rich.print(summary(run_readings(subject)))
    """
    heads = head_table(results)
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="bold", no_wrap=True)
    rows.add_column(overflow="fold", ratio=1)
    for label, text in _lines(results, heads):
        rows.add_row(label, text)
    induction = _induction_table(results, heads)
    return Group(Text(model_line(results), style="bold"), rows, *([] if induction is None else [induction]))


def _lines(results: dict[str, Result], heads: pl.DataFrame) -> list[tuple[str, str]]:
    lines = [
        ("Text", escape(text_line(results))),
        ("Bigrams", _bigrams(results)),
        ("Copying", _copying(results, heads)),
        ("Previous token", _previous_token(results, heads)),
        ("Avoidance", _avoidance(results)),
        ("Terms", _terms(results)),
        ("Sum of terms", _reconstruction(results)),
        ("Induction", _induction(results, heads)),
    ]
    return [(label, text) for label, text in lines if text]


def _bigrams(results: dict[str, Result]) -> str:
    rows = _rows(results, "bigrams")
    if not rows:
        return ""
    row = rows[0]
    return (
        f"KL(text's bigrams ‖ direct path) {fixed(row['kl'])} nats per token "
        f"(bigram entropy {fixed(row['bigram_entropy'])})"
    )


def _copying(results: dict[str, Result], heads: pl.DataFrame) -> str:
    if not _rows(results, "spectra"):
        return ""
    copying = heads.filter("is_copying").sort("copying_score", descending=True)
    names = _listed([f"{row['head']}{'*' if row['disagrees'] else ''}" for row in copying.iter_rows(named=True)])
    others = heads.filter(pl.col("disagrees") & ~pl.col("is_copying"))["head"].to_list()
    lines = [f"{copying_count(results, heads)} by eigenvalues (score ≥ {COPYING}){': ' if names else ''}{names}"]
    if copying["disagrees"].any():
        lines.append(f"[dim]* though its own-token rank is above {OWN_TOKEN_RANK}[/dim]")
    if others:
        lines.append(f"[dim]by own-token rank only: {_listed(others)}[/dim]")
    return "\n".join(lines)


def _previous_token(results: dict[str, Result], heads: pl.DataFrame) -> str:
    if not _rows(results, "attention"):
        return ""
    found = heads.filter("is_previous_token").sort("previous_token", descending=True)
    if found.is_empty():
        best = heads.sort("previous_token", descending=True, nulls_last=True).row(0, named=True)
        return f"none ≥ {PREVIOUS_TOKEN} attention; most: {best['head']} {fixed(best['previous_token'])}"
    return _listed([f"{row['head']} {fixed(row['previous_token'])}" for row in found.iter_rows(named=True)])


def _avoidance(results: dict[str, Result]) -> str:
    below = composition_pairs(results).filter(pl.col("effect") < 0).sort("effect")
    if below.is_empty():
        return ""
    sure = below.filter(pl.col("z") <= -PARTNER_Z)
    strongest = [
        f"{row['kind']} {row['source']} → {row['destination']} {signed(row['effect'])} (z {fixed(row['z'], 1)})"
        for row in sure.head(2).iter_rows(named=True)
    ]
    # Chance itself puts about half of all pairs below its mean: only those far below are findings.
    counts = f"{count(len(sure))} of {count(len(below))} pairs below chance have z ≤ −{PARTNER_Z:g}"
    return "; ".join([*strongest, counts])


def _terms(results: dict[str, Result]) -> str:
    return " → ".join(
        f"{step.name} {fixed(step.loss)}" + ("" if step.gain is None else f" ({signed(-step.gain, 2)})")
        for step in term_steps(results)
    ) + (" nats per token" if term_steps(results) else "")


def _reconstruction(results: dict[str, Result]) -> str:
    parts = []
    rows = _rows(results, "reconstruction")
    for quantity in dict.fromkeys(row["quantity"] for row in rows):
        errors = [f"{small(row['error'])} in {row['dtype']}" for row in rows if row["quantity"] == quantity]
        parts.append(f"= {quantity} to {', '.join(errors)}")
    return "\n".join(parts)


def _induction(results: dict[str, Result], heads: pl.DataFrame) -> str:
    if not _rows(results, "induction"):
        return ""
    found = heads.filter("is_induction_head")
    tests = f"prefix matching ≥ {INDUCTION_THRESHOLDS['prefix_matching']}, copying ≥ {INDUCTION_THRESHOLDS['copying']}"
    tests += f" nats, causal effect ≥ {INDUCTION_THRESHOLDS['causal_effect']} nats"
    if found.is_empty():
        best = heads.sort("prefix_matching", descending=True, nulls_last=True).row(0, named=True)
        numbers = ", ".join(
            f"{name.replace('_', ' ')} {fixed(best[name])}" for name in ("prefix_matching", "copying", "causal_effect")
        )
        return f"no head passes all of {tests}; nearest: {best['head']} ({numbers})"
    return f"{len(found)} of {len(heads)} heads ({tests}; partners: K-composition z ≥ {PARTNER_Z:g})"


def _induction_table(results: dict[str, Result], heads: pl.DataFrame) -> RenderableType | None:
    found = heads.filter("is_induction_head").sort("prefix_matching", descending=True)
    if found.is_empty():
        return None
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    for name in ("head", "prefix", "copying", "causal", "K-composes with", "effect", "z", "matching"):
        table.add_column(name, justify="left" if name in ("head", "K-composes with") else "right")
    for row in found.head(MOST_ROWS).iter_rows(named=True):
        for cells in _induction_rows(results, row):
            table.add_row(*cells)
    if len(found) > MOST_ROWS:
        table.caption = f"… and {len(found) - MOST_ROWS} more in tables/induction"
    return table


def _induction_rows(results: dict[str, Result], head: dict) -> list[list[str]]:
    own = [head["head"], fixed(head["prefix_matching"]), fixed(head["copying"]), fixed(head["causal_effect"])]
    partners = partners_of(results, head["head"]).head(PARTNERS)
    if partners.is_empty():
        return [[*own, "no earlier head", "", "", ""]]
    rows = []
    for pair in partners.iter_rows(named=True):
        role = looks(pair["lag"])
        numbers = [signed(pair["effect"]), fixed(pair["z"], 1), fixed(pair["matching_score"])]
        rows.append([*own, pair["source"] + (f" ({role})" if role else ""), *numbers])
        own = ["", "", "", ""]
    return rows


def _listed(names: list[str]) -> str:
    more = len(names) - MOST_HEADS
    return ", ".join(names[:MOST_HEADS]) + (f" and {more} more" if more > 0 else "")


def _rows(results: dict[str, Result], name: str) -> list[dict]:
    return results[name].rows() if name in results else []
