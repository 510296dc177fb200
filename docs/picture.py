"""Writes `docs/images/two-layer.svg`, the README's picture: `make picture`."""

from pathlib import Path

import pathsum
from pathsum.report.figures import composition_diagram
from pathsum.report.heads import head_table
from pathsum.report.results import run_readings
from pathsum.study.subject import Subject

PICTURE = Path(__file__).with_name("images") / "two-layer.svg"


def main() -> None:
    results = run_readings(
        Subject(pathsum.open("two-layer")), only=("composition", "attention", "induction", "spectra")
    )
    PICTURE.parent.mkdir(exist_ok=True)
    composition_diagram(results["composition"].frame, head_table(results)).save(str(PICTURE))


if __name__ == "__main__":
    main()
