"""Tables as they stand on the page: cut to a number of rows, numbers short, what they sort by in full."""

from dataclasses import dataclass
from typing import Any

import polars as pl

from pathsum.report.heads import head_table, looks
from pathsum.report.numbers import UNDEFINED, fixed, significant
from pathsum.report.tokens import printable, visible
from pathsum.study.reading import Column
from pathsum.study.result import Result

ROWS = 200
LONGEST = 120
"""Characters of one cell."""
TOKEN_COLUMNS = {("bigram_pairs", "first"), ("bigram_pairs", "second"), ("entries", "row"), ("entries", "source"),
                 ("bugs", "seen_destination"), ("bugs", "seen_out"), ("paths", "token"),
                 ("lens", "frozen_first"), ("lens", "recomputed_first"),
                 *((name, part) for name in ("trigrams", "bugs") for part in ("source", "destination", "out")),
                 }  # fmt: skip
"""(reading, column) of cells that hold tokens of the vocabulary."""


@dataclass(frozen=True)
class Cell:
    text: str
    sort: str
    """What the column is sorted by: the full number, or the text itself where empty."""
    is_number: bool
    is_token: bool = False


@dataclass(frozen=True)
class Table:
    """One table of the page."""

    name: str
    title: str
    note: str
    columns: tuple[Column, ...]
    rows: list[list[Cell]]
    total: int
    approximate: str = ""


def reading_table(result: Result, rows: int = ROWS) -> Table:
    """The first rows of a reading's table."""
    reading, frame = result.reading, result.frame
    known = {column.name: column for column in reading.columns}
    columns = tuple(known.get(name, Column(name, "", "")) for name in frame.columns)
    shown = [[_cell(reading.name, name, value) for name, value in row.items()]
             for row in frame.head(rows).iter_rows(named=True)]  # fmt: skip
    note = result.manifest.get("not_applicable", "")
    return Table(reading.name, reading.title, printable(note), columns, shown, len(frame), result.approximate)


def frame_table(name: str, title: str, frame: pl.DataFrame, columns: tuple[Column, ...]) -> Table:
    """These columns of any table, all its rows."""
    shown = [[_cell(name, column.name, row[column.name]) for column in columns] for row in frame.iter_rows(named=True)]
    return Table(name, title, "", columns, shown, len(frame))


def roles_table(results: dict[str, Result]) -> Table:
    """One row a head: what it is by the stated thresholds, its scores, and where any has one its best skip-trigram."""
    table = head_table(results)
    best = _best_trigrams(results)
    names = {
        "head": ("", "the head"), "what it is": ("", "by the thresholds in the text"),
        "copying": ("1", "copying score of its OV circuit"), "own rank": ("1", "own-token rank; 0 is perfect copying"),
        "previous": ("attention", "to the token before, on the text"),
        "prefix": ("attention", "prefix matching on repeated random tokens"),
        "cost": ("nats", "loss added when its terms are left out"),
        "strongest skip-trigram": ("", "[source] … [destination] → [out]"),
    }  # fmt: skip
    rows = [
        [_text(row["head"]), _text(", ".join(roles(row))), *(_number(row[name], fixed(row[name], 3)) for name in (
            "copying_score", "own_token_rank", "previous_token", "prefix_matching", "cost_without")),
         Cell(best.get(row["head"], UNDEFINED), "", False, is_token=True)]
        for row in table.iter_rows(named=True)
    ]  # fmt: skip
    columns = tuple(Column(name, unit, meaning) for name, (unit, meaning) in names.items())
    if not best:
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    return Table("roles", "Heads", "", columns, rows, len(rows))


def roles(row: dict[str, Any]) -> list[str]:
    known = {
        "is_induction_head": "induction",
        "is_previous_token": "previous token",
        "is_copying": "copying",
        "disagrees": "scores disagree",
    }
    look = [] if row["is_previous_token"] else [looks(row["lag"])]
    return [word for word in (*(word for column, word in known.items() if row[column]), *look) if word]


def _best_trigrams(results: dict[str, Result]) -> dict[str, str]:
    if "trigrams" not in results or results["trigrams"].frame.is_empty():
        return {}
    rows = results["trigrams"].frame.filter(pl.col("rank") == 1).iter_rows(named=True)
    return {row["head"]: trigram_words(row) for row in rows}


def trigram_words(row: dict[str, Any]) -> str:
    """`[keep] … [·in] → [·mind]`."""
    source, destination, out = (visible(row[name], 24) for name in ("source", "destination", "out"))
    return f"[{source}] … [{destination}] → [{out}]"


def _cell(reading: str, column: str, value: Any) -> Cell:
    if isinstance(value, bool):
        return _text("yes" if value else "no")
    if isinstance(value, int | float):
        return _number(value)
    if value is None:
        return Cell(UNDEFINED, "", False)
    is_token = (reading, column) in TOKEN_COLUMNS
    return Cell(visible(value, LONGEST) if is_token else printable(str(value), LONGEST), "", False, is_token)


def _number(value: float | int | None, text: str | None = None) -> Cell:
    text = significant(value) if text is None else text
    return Cell(text, "" if value is None or text == UNDEFINED else repr(float(value)), True)


def _text(text: str) -> Cell:
    return Cell(text, "", False)
