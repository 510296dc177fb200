"""Jinja templates of pages: every value is escaped by itself, and a name that is not there is an error."""

import jinja2

from pathsum.report.numbers import count


def environment(*first: jinja2.BaseLoader) -> jinja2.Environment:
    """The report's templates, `parts.html` that all pages share among them; `first` are looked at before."""
    made = jinja2.Environment(
        loader=jinja2.ChoiceLoader([*first, jinja2.PackageLoader("pathsum.report", "web")]), autoescape=True,
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    made.filters["count"] = count
    return made
