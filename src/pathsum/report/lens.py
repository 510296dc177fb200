"""The logit lens on the terminal."""

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pathsum.report.numbers import count, fixed
from pathsum.report.prompt import prompt_tokens
from pathsum.report.question import question
from pathsum.report.tokens import printable, visible
from pathsum.study.result import Result

TITLES = {"layer": "stream before layer", "order": "terms by heads"}


def print_lens(result: Result, console: Console | None = None) -> None:
    """By layer, then by order: the target, the token's rank and the first choice, with both final scales."""
    console = Console() if console is None else console
    asked = result.manifest["prompt"]
    console.print(Text(f"Logit lens, {printable(result.manifest['model'])}", style="bold"))
    console.print(prompt_tokens(asked))
    console.print(Text(question(asked)), highlight=False)
    for part, title in TITLES.items():
        console.print(_table(title, [row for row in result.rows() if row["part"] == part]))
    console.print(
        Text("frozen: with the run's final scale, steps add up to its logits; recomputed: with the sum's own"),
        highlight=False,
    )


def _table(title: str, rows: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(f"\n{title}", no_wrap=True, min_width=20)
    for how in ("frozen", "recomputed"):
        table.add_column(f"{how}\ntarget", justify="right", no_wrap=True)
        table.add_column("\nrank", justify="right", no_wrap=True)
        table.add_column("\nfirst", no_wrap=True)
    for row in rows:
        cells = [row["step"]]
        for how in ("frozen", "recomputed"):
            first = visible(row[f"{how}_first"], 10)
            cells += [fixed(row[f"{how}_target"], 2), count(row[f"{how}_rank"]), first]
        table.add_row(*cells)
    return table
