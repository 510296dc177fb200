"""What a page needs to draw figures without a network: Vega in it, data that cannot end its script; and such a page."""

import json
from functools import cache
from typing import Any

import altair as alt
from markupsafe import Markup

POLICY = "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:"
"""Of what a browser may do: nothing is loaded."""


def as_script(value: Any) -> Markup:
    """JSON that may stand in a script element whatever it contains."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


@cache
def vega_bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed in one script, of the version Altair writes for."""
    import vl_convert

    version = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    known = vl_convert.get_vegalite_versions()
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", version if version in known else None)


def figure_page(specification: dict[str, Any]) -> str:
    """One figure as a page that needs nothing else: interactive, and without a network."""
    description = Markup.escape(specification.get("description", "figure"))
    options = '{mode: "vega-lite", renderer: "svg", actions: false}'
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n<title>{description}</title>\n'
        "<style>body { margin: 0.5rem; font-family: system-ui, sans-serif; background: #fff; color: #1b1f24 }</style>"
        f'\n</head>\n<body>\n<div id="figure"></div>\n<script>{vega_bundle()}</script>\n'
        f'<script>vegaEmbed("#figure", {as_script(specification)}, {options});</script>\n</body>\n</html>\n'
    )
