"""Writes `docs/claims-measured.md` from `docs/claims/claims.json`, the results of a full run.

`make docs` runs it; a test holds the page to the file.
"""

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "claims" / "claims.json"
PAGE = Path(__file__).with_name("claims-measured.md")


def page() -> str:
    """The whole page."""
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    verdicts = [
        f"| [{one['title']}](#{_anchor(one['title'])}) | **{one['verdict']}** | {one['rule']} |"
        for one in found["claims"]
    ]
    table = "\n".join(["| claim | verdict | by the rule |", "|---|---|---|", *verdicts])
    return f"{_start(found['manifest'])}\n{table}\n\n" + "\n".join(_section(claim) for claim in found["claims"])


def _start(told: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in told["versions"].items())
    real = "" if told["real_model"] is None else f" --real {told['real_model']}"
    hours = told["training_seconds"] / 3600
    return f"""# The claims, measured

`pathsum claims --full --out claims{real}`, {told["date"]}, {told["cores"]} cores: {len(told["models"])} models on the
source of Python {told["python"]}'s standard library (sha256 {told["text_sha256"][:12]}…), trained two at once, each in
one thread, in {hours:.1f} hours summed over models; {versions}.

[What is asked, and why the rules are what they are](claims.md). The page with figures is
[claims.html](claims/claims.html), every number is in [measurements.csv](claims/measurements.csv), and what the models
were trained with in [claims.json](claims/claims.json). Intervals are 95 % over seeds (Student's t). Generated from the
results by `docs/claims_measured.py`.
"""


def _anchor(title: str) -> str:
    kept = "".join(letter for letter in title.lower() if letter.isalnum() or letter in " -")
    return "-".join(kept.split())


def _section(claim: dict[str, Any]) -> str:
    said = f"{claim['says']} Paper: {claim['paper_section']}. **{claim['verdict'].capitalize()}.**"
    head = f"## {claim['title']}\n\n{said}\n"
    if not claim["estimates"]:
        return head
    rows = [
        f"| {one['experiment']} | {one['meaning']} | {_number(one['mean'])} | {_interval(one)} | {one['models']} |"
        for one in claim["estimates"]
    ]
    return head + "\n| models | what | mean | 95 % | seeds |\n|---|---|---|---|---|\n" + "\n".join(rows) + "\n"


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    shown = f"{value:.0e}" if 0 < abs(value) < 1e-3 else f"{value:.3g}"
    return shown.replace("-", "−")


def _interval(one: dict[str, Any]) -> str:
    return "–" if one["low"] is None else f"{_number(one['low'])} to {_number(one['high'])}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
