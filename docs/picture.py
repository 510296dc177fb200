"""Writes the pictures of the README and of the page of figures, `docs/images`: `make picture`; needs a Chromium."""

import json
import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

import pathsum
from pathsum.report.figures import composition_diagram, composition_over_training, figure_of, save_figure
from pathsum.report.heads import head_table
from pathsum.report.page import report_page
from pathsum.report.results import run_readings
from pathsum.study.subject import Subject

IMAGES = Path(__file__).with_name("images")
CHECKPOINTS = Path(__file__).parent.parent / "checkpoints" / "two-layer-small"


def main() -> None:
    subject = Subject(pathsum.open("two-layer"))
    results = run_readings(subject)
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
    attention_picture(report_page(subject, results), IMAGES / "attention.png")


def attention_picture(html: str, path: Path) -> None:
    """An induction head on the sample text, as the page shows it: what it looks at from the second “Point”."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        place = Path(folder) / "report.html"
        place.write_text(html, encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1000, "height": 900})
        page.goto(place.as_uri())
        page.locator("#attention").scroll_into_view_if_needed()
        page.locator("#view-attention .head[title^='L1H3']").click()
        page.locator("#view-attention [data-at='28']").click()
        page.mouse.move(0, 0)
        page.locator("#view-attention").screenshot(path=path)
        browser.close()


if __name__ == "__main__":
    main()
