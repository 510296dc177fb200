"""A reading's table on the terminal, within the width there is."""

import re
from collections.abc import Collection
from itertools import takewhile

import polars
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pathsum.study.result import Result

WIDEST = 40
"""Characters of a cell."""


def print_result(result: Result, limit: int = 40, console: Console | None = None) -> None:
    """Title, table (at most `limit` rows), and what is not shown."""
    console = Console() if console is None else console
    console.print(Text(f"{result.reading.title}, {result.manifest['model']}", style="bold"))
    if "text" in result.manifest:
        source = f"text: {result.manifest['text']['source']}"
        console.print(Text(source, style="dim", no_wrap=True, overflow="ellipsis"), no_wrap=True, overflow="ellipsis")
    frame = result.frame.head(limit)
    cells = [_cells(frame[name]) for name in frame.columns]
    shown = _columns_that_fit(frame.columns, cells, console.width, _asked_for(result))
    table = Table(box=None, pad_edge=False)
    for name in shown:
        table.add_column(
            _header(name), justify="left" if frame.schema[name] == polars.String else "right", no_wrap=True
        )
    for row in zip(*(_cells(frame[name]) for name in shown), strict=True):
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)
    if not frame.height:
        console.print("no rows: this model has nothing to show here", style="dim", highlight=False)
    if result.approximate and frame.height:
        console.print(f"approximate: {result.approximate}", style="dim", highlight=False)
    if left := [name for name in frame.columns if name not in shown]:
        console.print(f"not shown: {', '.join(left)} (--json or --csv has all columns)", style="dim", highlight=False)
    if result.frame.height > limit:
        console.print(f"{result.frame.height - limit} more rows (--limit, --json, --csv)", style="dim", highlight=False)


def _header(name: str) -> str:
    """A column's name, broken after underscores so that more columns fit."""
    return name.replace("_", "_\n")


def _cells(column) -> list[str]:
    return [_cell(value) for value in column]


def _cell(value: object) -> str:
    if value is None or value != value:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return _number(value)
    return _text(str(value))


def _number(value: float) -> str:
    if value.is_integer() and abs(value) >= 10:
        return f"{value:.0f}"
    return f"{value:.0e}" if 0 < abs(value) < 1e-4 else f"{value:.3g}"


def _text(text: str) -> str:
    """A token so that its spaces are seen, as escapes where it is not printable, and never wider than `WIDEST`.

    Line breaks and control characters must not reach the terminal.
    """
    shown = text if text.isprintable() and text == text.strip() else repr(text)
    shown = re.sub(" {4,}", lambda run: f"␣×{len(run[0])}", shown)
    return shown if len(shown) <= WIDEST else shown[: WIDEST - 1] + "…"


def _columns_that_fit(names: list[str], cells: list[list[str]], width: int, first: Collection[str]) -> list[str]:
    """In their order; those named in `first` have a place before all others."""
    shown: set[str] = set()
    used = 0
    for name, column in sorted(zip(names, cells, strict=True), key=lambda one: one[0] not in first):
        wide = max(len(part) for part in (*_header(name).split("\n"), *column)) + 2
        if shown and used + wide > width + 2:
            continue
        shown.add(name)
        used += wide
    return [name for name in names if name in shown]


def _asked_for(result: Result) -> set[str]:
    """The names that a row begins with, and the columns that options added."""
    frame = result.frame
    names = takewhile(lambda name: frame.schema[name] == polars.String, frame.columns)
    return {*names, *(column.name for column in result.reading.optional)}
