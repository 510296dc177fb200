"""A figure as a file."""

import tempfile
from pathlib import Path

from pathsum.errors import StudyError
from pathsum.report.figures.style import Figure
from pathsum.report.standalone import figure_page

FORMATS = (".svg", ".png", ".pdf", ".html")


def check_figure_place(path: Path) -> None:
    """Raises `StudyError` for a file that no figure is saved as, before anything is computed."""
    if path.suffix not in FORMATS:
        raise StudyError(f"{path} is none of {', '.join(FORMATS)}; a figure is saved as what its name ends with")
    if not path.parent.is_dir():
        raise StudyError(f"{path.parent} is no folder; make it first")


def save_figure(figure: Figure, path: Path) -> None:
    """Written beside `path` and renamed; `.html` is one file that needs no network.

    Raises `StudyError` for a name that says no format.
    """
    check_figure_place(path)
    with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as folder:
        beside = Path(folder) / path.name
        if path.suffix == ".html":
            beside.write_text(figure_page(figure.to_dict()), encoding="utf-8")
        else:
            figure.save(str(beside), scale_factor=2 if path.suffix == ".png" else 1)
        beside.replace(path)
