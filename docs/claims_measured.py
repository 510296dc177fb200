"""Writes `docs/claims-measured.md`, and its figures, from the results of a full run in `docs/claims`.

`make docs` runs it; a test holds the page to the file.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl

from pathsum.report.figures import save_figure
from pathsum.report.figures.claims import claim_figures
from pathsum.report.gallery import Drawing

FOLDER = Path(__file__).parent / "claims"
RESULTS = FOLDER / "claims.json"
PAGE = Path(__file__).with_name("claims-measured.md")


def page() -> str:
    """The whole page."""
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    verdicts = [
        f"| [{one['title']}](#{_anchor(one['title'])}) | **{one['verdict']}** | {one['rule']} |"
        for one in found["claims"]
    ]
    table = "\n".join(["| claim | verdict | by the rule |", "|---|---|---|", *verdicts])
    drawn = drawings()
    sections = [_section(claim, drawn.get(claim["claim"], [])) for claim in found["claims"]]
    return f"{_start(found['manifest'])}\n{table}\n\n" + "\n".join(sections)


def drawings() -> dict[str, list[Drawing]]:
    """The figures of each claim."""
    return claim_figures(measurements())


@cache
def measurements() -> pl.DataFrame:
    """Every number, a row each."""
    return pl.read_csv(FOLDER / "measurements.csv", infer_schema_length=None)


def _start(told: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in told["versions"].items())
    real = "" if told["real_model"] is None else f" --real {told['real_model']}"
    hours = told["training_seconds"] / 3600
    return f"""# The claims, measured

`pathsum claims --full --out claims{real}`, {told["date"]}, {told["cores"]} cores: {len(told["models"])} models on the
source of Python {told["python"]}'s standard library (sha256 {told["text_sha256"][:12]}…), trained two at once, each in
one thread, in {hours:.1f} hours summed over models; {versions}.

[What is asked, and why the rules are what they are](claims.md). Every number is in
[measurements.csv](claims/measurements.csv), and what the models were trained with in [claims.json](claims/claims.json).
Intervals are 95 % over seeds (Student's t, of shares of seeds Wilson's); of three models they are wide, and may leave
what is possible. Generated from the results by `docs/claims_measured.py`.
"""


def _anchor(title: str) -> str:
    kept = "".join(letter for letter in title.lower() if letter.isalnum() or letter in " -")
    return "-".join(kept.split())


def _section(claim: dict[str, Any], drawn: list[Drawing]) -> str:
    said = f"{claim['says']} Paper: {claim['paper_section']}. **{claim['verdict'].capitalize()}.**"
    head = f"## {claim['title']}\n\n{said}\n"
    for one in drawn:
        head += f"\n![{one.title}](claims/{one.name}.svg)\n\n*{one.title}.* {one.caption}\n"
    if not claim["estimates"]:
        return head
    if claim["claim"] == "exact":
        return head + "\n" + _worst({one["quantity"]: one["meaning"] for one in claim["estimates"]})
    rows = [
        f"| {one['experiment']} | {one['meaning']} | {_number(one['mean'])} | {_interval(one)} | {one['models']} |"
        for one in claim["estimates"]
    ]
    return head + "\n| models | what | mean | 95 % | seeds |\n|---|---|---|---|---|\n" + "\n".join(rows) + "\n"


def _worst(errors: dict[str, str]) -> str:
    """Of a claim that no model may break: the largest error of all, not the mean of any."""
    rows = []
    for quantity, meaning in errors.items():
        found = measurements().filter(pl.col("quantity") == quantity).sort("value", descending=True)
        worst = found.row(0, named=True)
        rows.append(f"| {meaning} | {len(found)} | {_number(worst['value'])} | {worst['experiment']} |")
    return "\n".join(["| what | models | largest | of |", "|---|---|---|---|", *rows, ""])


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    shown = f"{value:.0e}" if 0 < abs(value) < 1e-3 else f"{value:.3g}"
    return shown.replace("-", "−")


def _interval(one: dict[str, Any]) -> str:
    return "–" if one["low"] is None else f"{_number(one['low'])} to {_number(one['high'])}"


if __name__ == "__main__":
    for one in (drawing for some in drawings().values() for drawing in some):
        save_figure(one.figure, FOLDER / f"{one.name}.svg")
    PAGE.write_text(page(), encoding="utf-8")
