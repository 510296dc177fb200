"""`report.html`: one file that needs nothing else, no network, no server.

1. Words, tables and evidence come from `sections`, `tables` and `evidence`, figures from `gallery`.
2. A template puts them in order; it escapes every value by itself.
3. Figures are embedded as data (`<` escaped) and drawn by Vega, which is in the page once; views as packed data, drawn
   by the modules in `web`. A content policy forbids the page to load anything.
"""

import json
import re
from importlib.resources import files
from typing import Any

from markupsafe import Markup

from pathsum.report import sections
from pathsum.report.evidence import circuits
from pathsum.report.figures.style import PAGE, theme
from pathsum.report.gallery import Drawing, drawings
from pathsum.report.on_the_way import on_the_way
from pathsum.report.standalone import POLICY, as_script, vega_bundle
from pathsum.report.story import first_manifest
from pathsum.report.tables import reading_table, roles_table
from pathsum.report.templates import environment
from pathsum.report.tokens import printable
from pathsum.report.views.embedded import embedded_views
from pathsum.study.result import Result, manifest
from pathsum.study.subject import Subject

WEB = files("pathsum.report") / "web"
STYLES = ("page.css", "views.css")
MODULES = (
    "dom.js",
    "heads.js",
    "tokens.js",
    "attention.js",
    "head.js",
    "paths.js",
    "figures.js",
    "tables.js",
    "page.js",
)
"""Each after those that it imports."""


def report_page(subject: Subject, results: dict[str, Result]) -> str:
    """The whole page as HTML."""
    # Runs of the readings are over; the page's own is of the sample alone.
    subject.forget("folded", "tables", "text_run", "frozen_text", "repeats", "frozen_repeats", "removal_run")
    drawn, facts = drawings(subject, results), manifest(subject)
    if trained := on_the_way(subject.model, results):
        drawn, facts = [*drawn, trained.drawing], facts | {"checkpoints": trained.checkpoints}
    return environment().get_template("page.html").render(
        title=printable(first_manifest(results)["model"]), policy=POLICY,
        sections=sections, results=results, circuits=circuits(results),
        drawings={name: [each for each in drawn if each.section == name] for name in (each.section for each in drawn)},
        specs={each.name: as_script(page_spec(each)) for each in drawn}, theme=as_script(theme(PAGE)),
        roles=roles_table(results), tables=[reading_table(result) for result in results.values()],
        manifest=json.dumps(facts, ensure_ascii=False, indent=1),
        views=embedded_views(subject, results), style=text_of(*STYLES), script=in_one(*MODULES),
        vega=Markup(vega_bundle() if drawn else ""),
    )  # fmt: skip


def page_spec(drawing: Drawing) -> dict[str, Any]:
    """The figure's Vega-Lite specification without colours: the page has its own."""
    spec = drawing.figure.to_dict()
    spec.pop("config", None)
    return spec


def in_one(*modules: str) -> Markup:
    """Modules as one: what a page cannot import from other files stands before it. Their names must differ."""
    return Markup(re.sub(r"^import [^;]*;\n|^export ", "", text_of(*modules), flags=re.MULTILINE))


def text_of(*names: str) -> Markup:
    """Files of our own, put in as they are."""
    return Markup("\n".join((WEB / name).read_text(encoding="utf-8") for name in names))
