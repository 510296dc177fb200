"""Results and figures as a notebook shows them, in Jupyter, VS Code and marimo alike.

Nothing is loaded from anywhere, and no token is ever markup: tables are escaped, figures are images (in which a browser
runs no script) or pages of their own in a sandbox.
"""

import base64
import html
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, wraps
from pathlib import Path
from typing import Any, ParamSpec

import jinja2

from pathsum.report.figures import caption_of, figure_of, save_figure
from pathsum.report.figures.style import Figure
from pathsum.report.standalone import figure_page
from pathsum.report.tables import reading_table
from pathsum.report.tokens import printable
from pathsum.study.result import Result

ROWS = 10
"""Of a table; `.frame` has all."""
LARGEST = 600_000
"""Characters of an SVG image; a figure of more marks is shown as PNG."""
CONTROL = 28
"""Pixels that a control below a figure takes."""
Given = ParamSpec("Given")


@dataclass(frozen=True)
class Picture:
    """An Altair chart (`.chart`) that shows itself without a network, to be hovered and set, and can be saved."""

    chart: Figure

    def save(self, path: str | Path) -> None:
        """As .svg, .png, .pdf or .html (one file that needs nothing else). Raises `StudyError` for another name."""
        save_figure(self.chart, Path(path))

    @cached_property
    def specification(self) -> dict[str, Any]:
        """Vega-Lite."""
        return self.chart.to_dict()

    @property
    def description(self) -> str:
        """In a sentence, for those who cannot see it."""
        return self.specification["description"]

    @cached_property
    def svg(self) -> str:
        """An SVG image."""
        import vl_convert

        return vl_convert.vegalite_to_svg(self.specification)

    def image(self) -> str:
        """A data URL: SVG, or PNG where that would be large."""
        if len(self.svg) <= LARGEST:
            return f"data:image/svg+xml;base64,{base64.b64encode(self.svg.encode()).decode()}"
        import vl_convert

        drawn = vl_convert.vegalite_to_png(self.specification, scale=2)
        return f"data:image/png;base64,{base64.b64encode(drawn).decode()}"

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        opening = self.svg[: self.svg.index(">")]
        width, height = (re.search(rf'\b{side}="([\d.]+)', opening) for side in ("width", "height"))
        if width is None or height is None:
            return 640, 480
        return round(float(width[1])), round(float(height[1]))

    def _repr_html_(self) -> str:
        controls = sum("bind" in parameter for parameter in self.specification.get("params", []))
        width, height = self.size
        page = html.escape(figure_page(self.specification), quote=True)
        return (
            f'<iframe sandbox="allow-scripts" title="{html.escape(self.description, quote=True)}" srcdoc="{page}" '
            f'style="border: 0; width: 100%; max-width: {width + 40}px; height: {height + 30 + CONTROL * controls}px">'
            "</iframe>"
        )


@dataclass(frozen=True, repr=False)
class Shown(Result):
    """A reading's result as a notebook shows it: its table, its manifest, and its figure (`.figure`)."""

    @classmethod
    def of(cls, result: Result) -> "Shown":
        """The same result, to be shown."""
        return cls(result.reading, result.frame, result.manifest)

    @cached_property
    def figure(self) -> Picture | None:
        """The reading's figure; None where its table says it all, or there is nothing to draw."""
        drawn = figure_of(self)
        return None if drawn is None else Picture(drawn)

    def __repr__(self) -> str:
        return f"{self.reading.title}, {printable(self.manifest['model'])}\n{self.frame}"

    def _repr_html_(self) -> str:
        table, figure = reading_table(self, ROWS), self.figure
        return PAGE.render(
            table=table, model=printable(self.manifest["model"]), figure=figure, caption=caption_of(self),
            width=figure.size[0] if figure else 0,
        )  # fmt: skip


def shown(function: Callable[Given, Result]) -> Callable[Given, Shown]:
    """The same function, with results that show themselves."""

    @wraps(function)
    def read(*args: Given.args, **options: Given.kwargs) -> Shown:
        return Shown.of(function(*args, **options))

    return read


PAGE = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True).from_string("""\
{# Said of every cell: some notebooks give tables neither sides nor room between columns. -#}
{% macro style(cell) -%}
padding: 0.2em 0.7em; white-space: nowrap; text-align: {{ "right" if cell and cell.is_number else "left" }}
{%- endmacro %}
<div>
<p><strong>{{ table.title }}</strong>, {{ model }}</p>
{% if figure %}
<figure style="margin: 0">
<img src="{{ figure.image() }}" alt="{{ figure.description }}" width="{{ width }}" style="max-width: 100%">
<figcaption style="max-width: 60em">{{ caption }}</figcaption>
</figure>
{% endif %}
<div style="overflow-x: auto">
<table>
<thead><tr>
{% for column in table.columns %}
{% set first = table.rows[0][loop.index0] if table.rows else none %}
<th title="{{ column.meaning }}" style="{{ style(first) }}">{{ column.name }}</th>
{% endfor %}
</tr></thead>
<tbody>
{% for row in table.rows %}
<tr>{% for cell in row %}
<td style="{{ style(cell) }}">
{%- if cell.is_token %}<bdi>{{ cell.text }}</bdi>{% else %}{{ cell.text }}{% endif %}</td>
{%- endfor %}</tr>
{% endfor %}
</tbody>
</table>
</div>
{% if table.total > table.rows | length %}
<p>{{ table.rows | length }} of {{ "{:,}".format(table.total) }} rows: .frame has all, .manifest what they stand on.</p>
{% endif %}
{% if table.note %}
<p>{{ table.note }}</p>
{% endif %}
{% if table.approximate %}
<p>approximate: {{ table.approximate }}</p>
{% endif %}
</div>
""")
