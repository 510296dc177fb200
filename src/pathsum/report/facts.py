"""A model's facts on the terminal: one table a group, with room for words."""

from itertools import groupby

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pathsum.report.numbers import significant
from pathsum.report.tokens import printable
from pathsum.study.result import Result


def print_facts(result: Result, console: Console | None = None) -> None:
    """The rows of `describe`, group by group, within the width there is."""
    console = Console() if console is None else console
    console.print(Text(f"{result.reading.title}, {printable(result.manifest['model'])}", style="bold"))
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold", style="dim")
    for group, rows in groupby(result.rows(), key=lambda row: row["group"]):
        table.add_row(Text(f"\n{group}", style="bold"))
        for row in rows:
            table.add_row(f"  {row['name']}", _number(row["value"]), Text(printable(row["note"])))
    console.print(table)


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.1e}" if value >= 1e12 else significant(value, 3)
