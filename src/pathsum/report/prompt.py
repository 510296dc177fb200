"""One prompt's expansion on the terminal: orders, sources and strongest paths, each table summing to the logit."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pathsum.report.numbers import UNDEFINED, count, fixed, small
from pathsum.report.question import quoted
from pathsum.report.tokens import printable, visible
from pathsum.study.result import Result

TOKENS = 24
"""Of the prompt shown."""
ORDERS = 6
"""Shown apart, beside those asked for; the rest is one row."""
Row = dict[str, Any]


def print_expansion(result: Result, console: Console | None = None) -> None:
    """What was asked, then the logit by order, by source and by path, and the error of the sum."""
    console = Console() if console is None else console
    asked, options = result.manifest["prompt"], result.manifest["options"]
    parts = {part: [row for row in result.rows() if row["part"] == part] for part in ("order", "source", "term")}
    console.print(Text(f"Expansion of a logit, {printable(result.manifest['model'])}", style="bold"))
    console.print(prompt_tokens(asked))
    console.print(Text(_question(asked)), highlight=False)
    console.print(_paths("by order", _few_orders(parts["order"], options["max_order"])))
    console.print(_sources(parts["source"], options["top"]))
    console.print(_paths("strongest paths", parts["term"]))
    cap = asked["logit_cap"]
    capped = "" if cap is None else f" before the soft-cap (the model's is {fixed(cap)}·tanh(logit/{fixed(cap)}))"
    error = small(asked["error"])
    console.print(f"\nall paths sum to the model's logit{capped}: error {error} of the largest", highlight=False)


def _question(asked: dict[str, Any]) -> str:
    before = quoted(asked["token_strings"][asked["position"]])
    return (
        f"{quoted(asked['token_string'])} after {before}: logit {fixed(asked['logit'], 3)}, "
        f"centred {fixed(asked['centred'], 3)}, probability {fixed(asked['probability'], 3)}"
    )


def prompt_tokens(asked: dict[str, Any]) -> Text:
    """`|The|·capital|[·of]|`: as they were run, the chosen position marked."""
    first = max(0, min(asked["position"] + 1, len(asked["token_strings"])) - TOKENS)
    shown = Text("tokens: " + ("… |" if first else "|"), style="dim")
    for place, token in enumerate(asked["token_strings"][first : first + TOKENS], start=first):
        shown.append(visible(token, 24), style="bold not dim" if place == asked["position"] else "")
        shown.append("|")
    left = len(asked["token_strings"]) - first - TOKENS
    bos = "with BOS (--no-bos)" if asked["bos"] else "no BOS"
    return shown.append((f" … {left} more" if left > 0 else "") + f" {bos}")


def _few_orders(rows: list[Row], max_order: int) -> list[Row]:
    shown = max(ORDERS, max_order + 1)
    if len(rows) <= shown + 1:
        return rows
    rest = rows[shown:]
    return [*rows[:shown], _sum(rest, f"orders {rest[0]['order']} to {rest[-1]['order']}")]


def _paths(title: str, rows: list[Row]) -> Table:
    table = _empty(title, ("paths", "logit", "centred"))
    for row in rows:
        rest = row["name"] in ("other paths", "longer paths")
        name = f"{row['name']}, order {row['order']}" if rest else row["name"]
        table.add_row(_cut(name), _count(row["paths"]), *_numbers([row]))
    table.add_row("sum", "", *_numbers([_sum(rows)]), style="bold")
    return table


def _sources(rows: list[Row], top: int) -> Table:
    """Strongest first, by the size of what they add on the direct path; the others in one row."""
    table = _empty("by source", ("direct", "centred", "through heads", "centred"))
    apart: dict[str, list[list[Row]]] = {}
    for row in rows:
        apart.setdefault(row["name"], [[], []])[row["order"] != "0"].append(row)
    strongest = sorted(apart, key=lambda name: -abs(apart[name][0][0]["centred"]))
    shown = {name: [name] for name in strongest[:top]}
    rest = strongest[top:]
    for label, names in {**shown, **({f"{len(rest)} others": rest} if rest else {}), "sum": strongest}.items():
        sides = [_sum([row for name in names for row in apart[name][side]]) for side in (0, 1)]
        table.add_row(_cut(label), *_numbers(sides), style="bold" if label == "sum" else None)
    return table


def _numbers(rows: Iterable[Row]) -> list[str]:
    """Of no path at all there is nothing to say."""
    return [fixed(row[column], 3) if row["paths"] else UNDEFINED for row in rows for column in ("logit", "centred")]


def _sum(rows: list[Row], name: str = "") -> Row:
    return {"name": name} | {column: sum(row[column] for row in rows) for column in ("paths", "logit", "centred")}


def _empty(title: str, columns: tuple[str, ...]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(f"\n{title}", no_wrap=True, min_width=24, header_style="bold")
    for column in columns:
        table.add_column(f"\n{column}", justify="right", no_wrap=True)
    return table


def _count(number: float) -> str:
    return count(number) if number < 1e9 else f"{number:.1e}"


def _cut(name: str) -> str:
    return name if len(name) <= 40 else name[:39] + "…"
