"""Writes the pictures of the README and of the page of figures, `docs/images/*.svg`: `make picture`."""

import json
from pathlib import Path

import pathsum
from pathsum.report.figures import composition_diagram, composition_over_training, figure_of, save_figure
from pathsum.report.heads import head_table
from pathsum.report.results import run_readings
from pathsum.study.subject import Subject

IMAGES = Path(__file__).with_name("images")
CHECKPOINTS = Path(__file__).parent.parent / "checkpoints" / "two-layer-small"


def main() -> None:
    results = run_readings(
        Subject(pathsum.open("two-layer")), only=("composition", "attention", "induction", "spectra")
    )
    IMAGES.mkdir(exist_ok=True)
    diagram = composition_diagram(results["composition"].frame, head_table(results))
    save_figure(diagram, IMAGES / "two-layer.svg")
    save_figure(figure_of(results["induction"]), IMAGES / "induction.svg")
    save_figure(figure_of(pathsum.bigram_pairs(pathsum.open("zero-layer"))), IMAGES / "bigrams.svg")
    tables = {
        json.loads((folder / "training.json").read_text())["tokens"]: pathsum.composition(pathsum.open(folder)).frame
        for folder in sorted(CHECKPOINTS.glob("step-*"))
    }
    save_figure(composition_over_training(tables), IMAGES / "training.svg")


if __name__ == "__main__":
    main()
