"""`--figure FILE`: what a command prints, drawn as well."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pathsum.study.result import Result

FIGURE = Annotated[
    Path | None, typer.Option("--figure", help="Also draw it: a file that ends with .svg, .png, .pdf or .html.")
]


def check_figure(path: Path | None, name: str) -> None:
    """Raises `StudyError`, before anything is computed, where no figure of `name` can be saved as `path`."""
    if path is None:
        return
    from pathsum.errors import StudyError
    from pathsum.report.figures import FIGURES, check_figure_place

    if name not in FIGURES:
        raise StudyError(f"{name} has no figure: its table says it all; figures are of {', '.join(sorted(FIGURES))}")
    check_figure_place(path)


def draw(result: "Result", path: Path | None) -> None:
    """Save the figure of a result. Raises `StudyError` where there is nothing to draw."""
    if path is None:
        return
    from pathsum.errors import StudyError
    from pathsum.report.figures import figure_of, save_figure

    figure = figure_of(result)
    if figure is None:
        raise StudyError(f"{path} is not written: {result.reading.name} of this model has nothing to draw")
    save_figure(figure, path)
    print(f"Figure: {path}", file=sys.stderr)
