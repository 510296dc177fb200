"""Writes `docs/readings.md` from the catalogue. `make docs` runs it; a test holds the committed page to it."""

import doctest
from pathlib import Path

from pathsum.report.figures import FIGURES
from pathsum.study.catalogue import PAPER, READINGS
from pathsum.study.examples import EXAMPLES
from pathsum.study.reading import Reading

PAGE = Path(__file__).with_name("readings.md")
WIDTH = 120
START = f"""# Readings

Generated from the catalogue (`pathsum.study.catalogue`) by `docs/generate.py`. Sections are those of “{PAPER}”
(Elhage et al. 2021). Every reading is a function, `pathsum.NAME(model)`, which returns a table (`.frame`) with
everything its numbers depend on (`.manifest`), and a command, `pathsum NAME MODEL`, with `--json` and `--csv`. Where it
has a figure, that is `.figure`, and `--figure FILE`: [figures](figures.md).
*GL* columns are unchanged under any invertible change of the residual stream's basis, *O* columns under rotations only.
A cell that is undefined is NaN or null in the table and `null` in JSON, never zero. The example is the one of
the function's docstring.

"""


def page() -> str:
    """The whole page."""
    return START + "\n".join(_section(reading) for reading in READINGS)


def _section(reading: Reading) -> str:
    rows = [f"| `{c.name}` | {c.unit or '–'} | {_escaped(c.meaning)} | {c.invariance} |" for c in _columns(reading)]
    head = f"## {reading.name}\n\n**{reading.title}.** Paper: {reading.section}. Needs {', '.join(reading.needs)}.\n\n"
    drawn = f"*Figure.* {_escaped(FIGURES[reading.name].caption)}\n\n" if reading.name in FIGURES else ""
    table = "| column | unit | meaning | invariance |\n|---|---|---|---|\n" + "\n".join(rows)
    return f"{head}{drawn}{table}\n\n```python\n{_example(reading)}\n```\n"


def _example(reading: Reading) -> str:
    """The worked call of its docstring as a script, what a line prints beside it or, where that is too long, below."""
    found = doctest.DocTestParser().get_examples(EXAMPLES[reading.name])
    calls = [(call.source.rstrip(), f"# {call.want.rstrip()}" if call.want else "") for call in found]
    imports = [code for code, _ in calls if code.startswith("import ")]
    lines = [_beside(code, said) for code, said in calls if code not in imports]
    return "\n".join(["import pathsum", *imports, "", *lines])


def _beside(code: str, said: str) -> str:
    return f"{code}{'  ' if len(code + said) < WIDTH - 1 else chr(10)}{said}".rstrip()


def _columns(reading: Reading) -> list:
    """The sixteen lag columns are shown as one; those that options add come last."""
    every = (*reading.columns, *reading.optional)
    return [column for column in every if not column.name.startswith("lag_") or column.name == "lag_0"]


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
