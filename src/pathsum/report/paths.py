"""The strongest paths to a prediction, on the terminal."""

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pathsum.report.numbers import UNDEFINED, count, fixed, small
from pathsum.report.prompt import prompt_tokens
from pathsum.report.question import question
from pathsum.report.tokens import printable, visible
from pathsum.study.result import Result

WIDEST = 34
"""Of a path's name."""


def print_paths(result: Result, console: Console | None = None) -> None:
    """What was asked, the paths, and what is known of all others."""
    console = Console() if console is None else console
    asked, rows = result.manifest["prompt"], result.rows()
    console.print(Text(f"Strongest paths, {printable(result.manifest['model'])}", style="bold"))
    console.print(prompt_tokens(asked))
    console.print(Text(question(asked)), highlight=False)
    console.print(_table(rows, result.manifest["options"]["live"]))
    for line in _others(asked, rows):
        console.print(Text(line), highlight=False)


def _table(rows: list[dict[str, Any]], live: bool) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("\npath", no_wrap=True, min_width=20)
    for title in ("\nadds", "\nshare"):
        table.add_column(title, justify="right", no_wrap=True)
    if live:
        table.add_column("without it\nfrozen", justify="right", no_wrap=True)
        table.add_column("\nlive", justify="right", no_wrap=True)
    else:
        table.add_column("\nmost from", no_wrap=True)
        table.add_column("\nadds", justify="right", no_wrap=True)
    for row in rows:
        name = row["path"] if len(row["path"]) <= WIDEST else row["path"][: WIDEST - 1] + "…"
        share = UNDEFINED if row["share"] is None else f"{row['share']:.1%}".replace("-", "−")
        cells = [name, fixed(row["value"], 3), share]
        if live:
            cells += [fixed(row["without_frozen"], 3), fixed(row["without_live"], 3)]
        else:
            cells += [f"{visible(row['token'], 12)} at {row['position']}", fixed(row["from_position"], 3)]
        table.add_row(*cells)
    return table


def _others(asked: dict[str, Any], rows: list[dict[str, Any]]) -> list[str]:
    every = count(asked["paths"]) if asked["paths"] < 1e9 else f"{asked['paths']:.1e}"
    least = f"{abs(rows[-1]['value']):.3f}" if rows else "0"
    lines = [
        "",
        f"{len(rows)} of {every} paths: {fixed(asked['listed'], 3)}; all others together {fixed(asked['rest'], 3)}; "
        f"sum {fixed(asked['linear'], 3)}",
    ]
    if asked["certified"]:
        lines.append(f"certified: no other path adds more than the last that is listed ({least})")
    else:
        lines.append(
            f"not certified: the last adds {least}, a path not listed might add {asked['bound']:.3f}; "
            "allow more --seconds, or list fewer"
        )
    if asked["frozen_explains"] is not None:
        share = f"{asked['frozen_explains']:.0%}".replace("-", "−")
        lines.append(f"frozen changes explain {share} of live ones: 1 − Σ(live − frozen)²/Σ live²")
    error, alone = small(asked["error"]), small(asked["error_of_single_paths"])
    return [*lines, f"error of the sum {error} of the largest logit; of single paths, each carried alone, {alone}"]
