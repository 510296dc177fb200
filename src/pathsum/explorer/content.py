"""What stands on a page, from the tables of readings: the report's words, tables and figures."""

from collections.abc import Iterable
from typing import Any

from pathsum.explorer.answers import paths_ask
from pathsum.explorer.ask import PATHS, Ask
from pathsum.explorer.forms import ask_of
from pathsum.explorer.opened import Opened
from pathsum.explorer.refused import Refused
from pathsum.explorer.view import View
from pathsum.report.evidence import circuits
from pathsum.report.figures.of import caption_of, figure_of
from pathsum.report.gallery import Drawing, drawings
from pathsum.report.page import page_spec
from pathsum.report.standalone import as_script
from pathsum.report.tables import reading_table, roles_table
from pathsum.study.catalogue import READINGS
from pathsum.study.result import Result, report_options

HEADS = ("spectra", "eigenvalues", "attention", "induction", "importance_heads", "trigrams")
COMPOSITION = ("composition", "matching", "spectra", "attention")
BESIDE = {"composition": ("induction",)}
"""Readings that a page shows more with where they have been made, and does not wait for."""
OVERVIEW = tuple(reading.name for reading in READINGS if reading.in_report and reading.name not in ("entries", "bugs"))
NEEDED = {"": OVERVIEW, "heads": HEADS, "head": (*HEADS, "composition", "matching"), "composition": COMPOSITION}
"""Of which readings a page is made."""
SECTIONS = {"heads": "heads", "composition": "composition"}
"""Of the report, whose figures a page shows; others show all."""
ROWS = 1000
"""Of a table that are shown."""
PROMPT = "The cat sat on the mat. The dog sat on the log. The cat"
"""What attention and paths start with."""
IDS = "1 2 3 4 1 2 3"


def asks(page: str, view: View, opened: Opened, given: dict[str, str]) -> list[Ask]:
    """What a page needs of a model. Raises `Refused` (404) for a page that needs nothing made."""
    if page == "readings" and view.reading:
        return [ask_of(view.reading, given)]
    if page == PATHS:
        return [paths_ask(prompt_of(view, opened), view.at, view.target, view.against)]
    if page not in NEEDED:
        raise Refused(404, "NotFound", f"there is nothing to make for {page[:40]!r}")
    return asks_for(NEEDED[page], opened)


def asks_for(names: Iterable[str], opened: Opened) -> list[Ask]:
    """These readings, as a report makes them."""
    return [Ask(reading=name, options=report_options(name, opened.model.spec)) for name in names]


def prompt_of(view: View, opened: Opened) -> str:
    """The typed prompt, or one to start with."""
    return view.prompt or (IDS if opened.model.tokenizer is None else PROMPT)


def content(page: str, opened: Opened, results: dict[str, Result]) -> dict[str, Any]:
    """All that the page's template shows of these results. Within `alone`."""
    if page == "readings":
        drawn = [drawing for one in results.values() for drawing in _own_drawing(one)]
    else:
        drawn = [one for one in _drawings(opened, results) if page not in SECTIONS or one.section == SECTIONS[page]]
    found: dict[str, Any] = {"results": results, "drawings": drawn}
    found["specs"] = {drawing.name: as_script(page_spec(drawing)) for drawing in drawn}
    if page in ("", "heads"):
        found |= {"roles": roles_table(results), "circuits": circuits(results) if page == "" else []}
    shown = {"composition": ("composition", "matching"), "readings": tuple(results)}.get(page, ())
    return found | {"tables": [reading_table(results[name], ROWS) for name in shown]}


def _own_drawing(result: Result) -> list[Drawing]:
    """The reading's figure, where it has one."""
    figure, reading = figure_of(result), result.reading
    return [] if figure is None else [Drawing(reading.name, "readings", reading.title, caption_of(result), figure)]


def _drawings(opened: Opened, results: dict[str, Result]) -> list[Drawing]:
    """Patterns on the sample text are drawn of models that run it in no time; others have their page for that."""
    if not opened.is_small:
        results = {name: result for name, result in results.items() if name != "induction"}
    if not results:
        return []
    return drawings(opened.subject, results)
