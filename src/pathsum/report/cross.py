"""A prediction by one or two axes, on the terminal: the largest cells, and what is left."""

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pathsum.report.numbers import UNDEFINED, fixed, small
from pathsum.report.prompt import prompt_tokens
from pathsum.report.question import question
from pathsum.report.tokens import printable, visible
from pathsum.study.result import Result

COLUMNS = 4
"""Of the second axis that are shown apart."""
SEQUENCE = ("order", "layer")
"""Axes whose cells stay in their order; others are sorted by size."""
Cells = dict[str, dict[str, float]]


def print_cross(result: Result, top: int, console: Console | None = None) -> None:
    """The `top` largest rows and the four largest columns, the rest together, each with its sum."""
    console = Console() if console is None else console
    asked, by = result.manifest["prompt"], result.manifest["options"]["by"]
    cells: Cells = {}
    for row in result.rows():
        cells.setdefault(row["first"], {})[row["second"] or ""] = row["value"]
    console.print(Text(f"Expansion by {' and '.join(by)}, {printable(result.manifest['model'])}", style="bold"))
    console.print(prompt_tokens(asked))
    console.print(Text(question(asked)), highlight=False)
    console.print(_table(cells, by, top, asked))
    error = small(asked["error"])
    console.print(Text(f"\nthe cells sum to the target: error {error} of it"), highlight=False)


def _table(cells: Cells, by: list[str], top: int, asked: dict[str, Any]) -> Table:
    rows, others = _largest({name: list(row.values()) for name, row in cells.items()}, by[0], top)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(f"\n{by[0]}", no_wrap=True, min_width=18)
    columns = [""]
    rest: list[str] = []
    if len(by) == 2:
        every = {name: [row[name] for row in cells.values()] for name in next(iter(cells.values()))}
        columns, rest = _largest(every, by[1], COLUMNS)
    for at, name in enumerate(columns):
        head = by[1] if len(by) == 2 and at == 0 else ""
        table.add_column(f"{head}\n{_label(by[-1], name, asked) if name else 'adds'}", justify="right", no_wrap=True)
    for title in (["others"] if rest else []) + (["sum"] if len(by) == 2 else []):
        table.add_column(f"\n{title}", justify="right", no_wrap=True)
    if len(by) == 1:
        table.add_column("\nshare", justify="right", no_wrap=True)

    def add(label: str, names: list[str], style: str | None = None) -> None:
        numbers = [sum(cells[name][column] for name in names) for column in columns]
        left = sum(cells[name][column] for name in names for column in rest)
        total = sum(sum(cells[name].values()) for name in names)
        shown = numbers + ([left] if rest else []) + ([total] if len(by) == 2 else [])
        share = UNDEFINED if not asked["linear"] else f"{total / asked['linear']:.1%}".replace("-", "−")
        table.add_row(label, *(fixed(number, 3) for number in shown), *[share] * (len(by) == 1), style=style)

    for name in rows:
        add(_label(by[0], name, asked), [name])
    if others:
        add(f"{len(others)} others", others)
    add("sum", [*cells], "bold")
    return table


def _largest(sizes: dict[str, list[float]], axis: str, most: int) -> tuple[list[str], list[str]]:
    """Those shown apart and the others: by what each holds in absolute value, or the first of a sequence."""
    names = [*sizes]
    if axis not in SEQUENCE:
        names.sort(key=lambda name: -sum(map(abs, sizes[name])))
    elif len(names) > most:
        apart = sorted(names, key=lambda name: -sum(map(abs, sizes[name])))[:most]
        names = [name for name in names if name in apart] + [name for name in names if name not in apart]
    return names[:most], names[most:]


def _label(axis: str, name: str, asked: dict[str, Any]) -> str:
    return f"{visible(asked['token_strings'][int(name)], 6)}@{name}" if axis == "position" else name
