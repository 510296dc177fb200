"""A head's scores taken apart on the terminal: by order, lag, tap, source and pair of paths, each summing to it."""

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pathsum.report.numbers import UNDEFINED, fixed, small
from pathsum.report.tokens import printable, visible
from pathsum.study.result import Result

TOKENS = 14
"""Of the prompt shown."""
ORDERS = 3
"""Shown apart; the rest is one row and one column."""
Row = dict[str, Any]


def print_scores(result: Result, console: Console | None = None) -> None:
    """What was asked, then the score by order, lag, source and pair of paths, and the error of the sum."""
    console = Console() if console is None else console
    asked, top = result.manifest["prompt"], result.manifest["options"]["top"]
    parts = {
        part: [r for r in result.rows() if r["part"] == part] for part in ("order", "lag", "tap", "source", "term")
    }
    title = f"Expansion of the scores of {asked['head']}, {printable(result.manifest['model'])}"
    console.print(Text(title, style="bold"))
    console.print(_tokens(asked))
    console.print(Text(_question(asked)), highlight=False)
    console.print(_crossed("by order, centred", _few_orders(parts["order"])))
    console.print(_crossed("by lag, centred", parts["lag"]))
    if parts["tap"]:
        console.print(_crossed("by tap, centred", parts["tap"]))
    if len(parts["source"]) > 1:
        console.print(_listed("by source: query", _strongest(parts["source"], top), asked["centred"]))
    console.print(_listed("strongest: query", parts["term"], asked["centred"]))
    cap = asked["score_cap"]
    capped = "" if cap is None else f" before the soft-cap (the model's is {fixed(cap)}·tanh(score/{fixed(cap)}))"
    console.print("\nrows are the query's, columns the key's; lag n: read from the token n before", highlight=False)
    console.print("centred: beyond the mean over the tokens that could be looked at; share: of it", highlight=False)
    console.print(f"all pairs sum to the score{capped}: error {small(asked['error'])} of the largest", highlight=False)


def _question(asked: dict[str, Any]) -> str:
    numbers = (
        f"score {fixed(asked['score'], 3)}, centred {fixed(asked['centred'], 3)}, "
        f"attention {fixed(asked['attention'], 3)}"
    )
    if asked["pairs"] != "one":
        return f"mean over {asked['positions']:,} {asked['pairs']} pairs: {numbers}"
    ends = (f"{visible(asked['token_strings'][at], 12)} ({at})" for at in (asked["destination"], asked["source"]))
    return f"{' → '.join(ends)}: {numbers}"


def _tokens(asked: dict[str, Any]) -> Text:
    """`|The|·capital|[·of]|`: as they were run, the chosen ones marked."""
    strings, marked = asked["token_strings"], (asked["destination"], asked["source"])
    end = TOKENS if asked["destination"] is None else max(asked["destination"] + 1, min(TOKENS, len(strings)))
    first = max(0, min(end, len(strings)) - TOKENS)
    shown = Text("tokens: " + ("… |" if first else "|"), style="dim")
    for place, token in enumerate(strings[first : first + TOKENS], start=first):
        shown.append(visible(token, 24), style="bold not dim" if place in marked else "")
        shown.append("|")
    left = len(strings) - first - TOKENS
    block = asked["repeated_block"]
    said = [f"… {left} more"] if left > 0 else []
    said += [f"{block} random tokens three times"] if block else []
    return shown.append(" " + ", ".join([*said, "with BOS" if asked["bos"] else "no BOS"]))


def _few_orders(rows: list[Row]) -> list[Row]:
    """High orders as one."""
    orders = [row["query"] for row in rows if row["key"] == "0" and row["query"].isdecimal()]
    if len(orders) <= ORDERS + 1:
        named = {order: f"order {order}" for order in orders}
    else:
        named = {order: f"order {order}" if int(order) < ORDERS else f"{ORDERS}–{orders[-1]}" for order in orders}
    return [row | {side: named.get(row[side], row[side]) for side in ("query", "key")} for row in rows]


def _crossed(title: str, rows: list[Row]) -> Table:
    """Centred shares, a row a query part and a column a key part, with the sums of both."""
    cells: dict[tuple[str, str], float] = {}
    for row in rows:
        for pair in ((row["query"], row["key"]), (row["query"], "sum"), ("sum", row["key"]), ("sum", "sum")):
            cells[pair] = cells.get(pair, 0.0) + row["centred"]
    queries = list(dict.fromkeys(row["query"] for row in rows))
    keys = list(dict.fromkeys(row["key"] for row in rows))
    table = _empty(title, [*keys, "sum"], width=20)
    for query in (*queries, "sum"):
        shown = [fixed(cells[query, key], 3) if (query, key) in cells else "" for key in (*keys, "sum")]
        table.add_row(query, *shown, style="bold" if query == "sum" else None)
    return table


def _listed(title: str, rows: list[Row], target: float) -> Table:
    table = _empty(title, ["score", "centred", "share"], named=("key",))
    for row in rows:
        table.add_row(_cut(row["query"]), _cut(row["key"]), *_numbers(row, target))
    table.add_row("sum", "", *_numbers(_sum(rows), target), style="bold")
    return table


def _strongest(rows: list[Row], top: int) -> list[Row]:
    ordered = sorted(rows, key=lambda row: -abs(row["centred"]))
    rest = ordered[top:]
    return ordered[:top] + ([_sum(rest, f"{len(rest):,} others")] if rest else [])


def _sum(rows: list[Row], name: str = "") -> Row:
    return {"query": name, "key": ""} | {column: sum(row[column] for row in rows) for column in ("score", "centred")}


def _numbers(row: Row, target: float) -> list[str]:
    share = f"{fixed(100 * row['centred'] / target, 1)} %" if abs(target) > 1e-6 else UNDEFINED
    return [fixed(row["score"], 3), fixed(row["centred"], 3), share]


def _empty(title: str, columns: list[str], named: tuple[str, ...] = (), width: int = 22) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(f"\n{title}", no_wrap=True, min_width=width, header_style="bold")
    for column in named:
        table.add_column(f"\n{column}", no_wrap=True, min_width=width)
    for column in columns:
        table.add_column(f"\n{column}", justify="right", no_wrap=True)
    return table


def _cut(name: str) -> str:
    return name if len(name) <= 24 else name[:23] + "…"
