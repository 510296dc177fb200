"""A page of words, figures and tables in parts, one file that needs nothing else: a sweep's, and that of the claims."""

import json
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from pathsum.report.figures.style import PAGE, theme
from pathsum.report.gallery import Drawing
from pathsum.report.page import STYLES, in_one, page_spec, text_of
from pathsum.report.standalone import POLICY, as_script, vega_bundle
from pathsum.report.tables import Table
from pathsum.report.templates import environment

MODULES = ("dom.js", "figures.js", "tables.js")


@dataclass(frozen=True)
class Part:
    """One section of the page."""

    name: str
    title: str
    short: str
    """In the list of sections."""
    words: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    """(what, words), one below the other."""
    drawings: tuple[Drawing, ...] = ()
    tables: tuple[Table, ...] = ()
    meanings: tuple[tuple[str, str], ...] = ()
    """The same, under the tables: what their names mean."""


def document(kicker: str, title: str, lead: tuple[str, ...], parts: list[Part], manifest: dict[str, Any]) -> str:
    """The whole page as HTML; every word of it is escaped."""
    drawn = [drawing for part in parts for drawing in part.drawings]
    return environment().get_template("document.html").render(
        kicker=kicker, title=title, lead=lead, parts=parts, policy=POLICY,
        specs={each.name: as_script(page_spec(each)) for each in drawn}, theme=as_script(theme(PAGE)),
        manifest=json.dumps(manifest, ensure_ascii=False, indent=1), style=text_of(*STYLES), script=in_one(*MODULES),
        vega=Markup(vega_bundle() if drawn else ""),
    )  # fmt: skip
