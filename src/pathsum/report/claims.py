"""What became of the claims: on the terminal, as `claims.json` and `measurements.csv`, and as a page."""

import json
from pathlib import Path
from typing import Any

import polars as pl
from rich.console import Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from pathsum.report.document import Part, document
from pathsum.report.figures.claims import claim_figures
from pathsum.report.gallery import Drawing
from pathsum.report.numbers import UNDEFINED, count, significant
from pathsum.report.tables import Table, frame_table
from pathsum.study.claim_run import Claims, Judged
from pathsum.study.estimates import Estimate
from pathsum.study.reading import Column

MARKS = {"holds": "✓", "holds with changes": "~", "fails": "✗", "not testable here": "·"}
COLUMNS = (
    Column("quantity", "", "what was measured"), Column("experiment", "", "on models of"),
    Column("estimate", "", "mean over seeds"), Column("interval", "", "95 %, of that mean"),
    Column("models", "count", "that differ in their seed alone"),
)  # fmt: skip
SHOWN = 4
"""Quantities of a claim on the terminal."""
FILES = ("claims.json", "measurements.csv", "claims.html")


def write_claims(out: Path | str, claims: Claims) -> Path:
    """Writes table, measurements and page into the folder, each beside its place first; returns the page's path."""
    out = Path(out)
    plain = json.dumps(claims_dict(claims), ensure_ascii=False, indent=1, allow_nan=False) + "\n"
    for name, text in zip(FILES, (plain, claims.measurements.write_csv(), claims_page(claims)), strict=True):
        beside = out / f".{name}.part"
        beside.write_text(text, encoding="utf-8")
        beside.replace(out / name)
    return out / FILES[-1]


def claims_dict(claims: Claims) -> dict[str, Any]:
    """Everything but the single measurements, JSON-ready."""
    return {"manifest": claims.manifest, "claims": [_plain(one) for one in claims.judged]}


def _plain(one: Judged) -> dict[str, Any]:
    claim = one.claim
    return {
        "claim": claim.name, "title": claim.title, "paper_section": claim.section, "says": claim.says,
        "rule": claim.rule, "verdict": one.verdict,
        "estimates": [
            {"experiment": experiment, "quantity": quantity, "meaning": claim.quantities[quantity], "mean": each.mean,
             "low": each.low, "high": each.high, "models": each.count}
            for (experiment, quantity), each in one.estimates.items()
        ],
    }  # fmt: skip


def claims_summary(claims: Claims) -> RenderableType:
    """A line a claim, with the estimates it rests on most, for a terminal of 80 columns."""
    grid = Grid(box=None, pad_edge=False, show_header=False, padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column()
    for one in claims.judged:
        words = Text.assemble((f"{one.verdict}: ", "bold"), one.claim.title)
        for experiment, quantity, each in _shown(one):
            words.append(f"\n{quantity} {_words(each)} · {experiment}", "dim")
        grid.add_row(MARKS[one.verdict], words)
    return Group(Text(f"The paper's claims, {claims.manifest['run']} run", "bold"), grid)


def _shown(one: Judged) -> list[tuple[str, str, Estimate]]:
    """Of the claim's first quantities, each on the models of which there are most."""
    found = []
    for wanted in one.claim.quantities:
        of = [(each.count, experiment, each) for (experiment, name), each in one.estimates.items() if name == wanted]
        if of:
            _, experiment, each = max(of, key=lambda known: known[0])
            found.append((experiment, wanted, each))
    return found[:SHOWN]


def _words(one: Estimate) -> str:
    return f"{significant(one.mean, 3)} {_interval(one)}".strip()


def _interval(one: Estimate) -> str:
    return "" if one.low is None else f"[{significant(one.low, 3)}, {significant(one.high, 3)}]"


def claims_page(claims: Claims) -> str:
    """The whole page as HTML."""
    manifest = claims.manifest
    drawn = claim_figures(claims.measurements)
    parts = [_overview(claims)]
    for one in claims.judged:
        examples = _examples(claims.measurements, one.claim.examples)
        parts.append(_part(one, tuple(drawn.get(one.claim.name, ())), examples))
    lead = (
        f"{count(len(manifest['models']))} models trained on {', '.join(manifest['texts'])} "
        f"({manifest['training_seconds']:,.0f} s of training), and those that ship. Every rule stood before the run.",
    )
    return document("claims", "The paper's claims, measured", lead, parts, manifest)


def _overview(claims: Claims) -> Part:
    columns = (Column("claim", "", ""), Column("verdict", "", "by the rule stated with each"))
    rows = pl.DataFrame([
        {"claim": one.claim.title, "verdict": f"{MARKS[one.verdict]} {one.verdict}"} for one in claims.judged
    ])  # fmt: skip
    return Part("verdicts", "Verdicts", "Verdicts", tables=(frame_table("verdicts", "All claims", rows, columns),))


def _examples(measurements: pl.DataFrame, name: str) -> tuple[Table, ...]:
    """What was found, in words."""
    found = measurements.filter((pl.col("quantity") == name) & pl.col("note").is_not_null())
    if found.is_empty():
        return ()
    columns = (Column("experiment", "", ""), Column("note", "", "in words"), Column("value", "", "its effect"))
    return (frame_table(f"{name}-examples", "Examples", found, columns),)


def _part(one: Judged, drawn: tuple[Drawing, ...], examples: tuple[Table, ...]) -> Part:
    claim, name = one.claim, one.claim.name.replace(" ", "-")
    facts = (
        ("Verdict", f"{MARKS[one.verdict]} {one.verdict}"), ("Rule", claim.rule), ("Paper", claim.section),
    )  # fmt: skip
    rows = [
        {"quantity": quantity, "experiment": experiment, "estimate": each.mean,
         "interval": _interval(each) or UNDEFINED,
         "models": each.count}
        for quantity in claim.quantities
        for (experiment, found), each in one.estimates.items()
        if found == quantity
    ]  # fmt: skip
    tables = (frame_table(name, "What was measured", pl.DataFrame(rows), COLUMNS),) if rows else ()
    known = {quantity for _, quantity in one.estimates}
    meanings = tuple((quantity, words) for quantity, words in claim.quantities.items() if quantity in known)
    short = f"{claim.name[0].upper()}{claim.name[1:]}"
    return Part(name, claim.title, short, (claim.says,), facts, drawn, (*tables, *examples), meanings)
