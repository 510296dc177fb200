"""Templates: every value is escaped by itself; addresses keep the state they are made from."""

from functools import cache
from typing import Any
from urllib.parse import urlencode

import jinja2

from pathsum.explorer.refused import Refused
from pathsum.report import sections
from pathsum.report.figures.style import PAGE, theme
from pathsum.report.numbers import fixed
from pathsum.report.standalone import as_script
from pathsum.report.templates import environment
from pathsum.report.tokens import printable

PAGES = {
    "": "Overview", "heads": "Heads", "composition": "Composition", "attention": "Attention", "paths": "Paths",
    "readings": "Readings",
}  # fmt: skip
"""Of the navigation, by their addresses."""


def address(page: str, state: dict[str, Any], **changes: Any) -> str:
    """A page's address with this state, changed; what is empty is left out."""
    query = {key: value for key, value in {**state, **changes}.items() if value not in (None, "")}
    return f"/{page}" + (f"?{urlencode(query)}" if query else "")


def render(template: str, **values: Any) -> str:
    """A template with its values."""
    return _environment().get_template(template).render(**values)


def refusal_page(refused: Refused, fragment: bool) -> str:
    """A refusal for who reads pages: a whole one, or a part of the page that asked."""
    return render(
        "refusal.html" if fragment else "refused.html",
        refused=refused,
        page=None,
        models=[],
        state={"model": "", "versus": ""},
    )


@cache
def _environment() -> jinja2.Environment:
    made = environment(jinja2.PackageLoader("pathsum.explorer"))
    made.globals |= {"address": address, "pages": PAGES, "sections": sections, "theme": as_script(theme(PAGE))}
    made.filters |= {"printable": printable, "fixed": fixed}
    return made
