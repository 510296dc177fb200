"""The documentation says what the code says."""

import importlib.util
import re
from pathlib import Path

import pytest

import pathsum
from pathsum.study.catalogue import READINGS
from pathsum.weights.families import FAMILIES

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("name", ["generate", "claims_measured"])
def test_generated_pages_are_those_of_the_catalogue_and_of_the_results(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text(encoding="utf-8") == module.page(), f"run python docs/{name}.py"


def test_the_readme_names_every_reading_with_its_section():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for reading in READINGS:
        assert re.search(rf"\| `{reading.name}` \|.*\| {re.escape(reading.section)} \|", readme), reading.name


def test_the_page_of_models_names_every_family():
    page = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    table = page.split("## Families")[1].split("Everything a checkpoint")[0]
    named = re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", table, re.M)))
    assert set(named) - {"model_type"} == set(FAMILIES)


@pytest.mark.parametrize("module", re.findall(r"^::: (\S+)$", (ROOT / "docs" / "reference.md").read_text(), re.M))
def test_the_reference_names_what_exists(module):
    name, _, attribute = module.rpartition(".")
    try:
        assert importlib.import_module(module).__doc__
    except ModuleNotFoundError:
        assert getattr(importlib.import_module(name), attribute).__doc__


def test_every_file_of_the_package_explains_itself():
    for file in Path(pathsum.__file__).parent.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        assert text == "" or text.startswith('"""'), file
