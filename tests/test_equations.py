"""The page of equations says what is so: its functions and tests exist, and no section of the paper is left out."""

import ast
import importlib.util
import re
import sys
from pathlib import Path

import pytest

from pathsum.study.catalogue import READINGS

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def equations():
    spec = importlib.util.spec_from_file_location("equations", ROOT / "docs" / "equations.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["equations"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["equations"]


def test_the_page_is_that_of_docstrings_and_catalogue(equations):
    assert equations.PAGE.read_text(encoding="utf-8") == equations.page(), "run python docs/equations.py"


def test_every_function_is_documented_and_every_test_exists(equations):
    for section in equations.SECTIONS:
        for one in section.equations:
            assert len(equations.first_sentence(one.place)) > 15, one.place
    text = equations.SLIPS.read_text(encoding="utf-8")
    for name in [*equations.named_tests(), *re.findall(r"`(test_\w+\.py::\w+)`", text)]:
        file, _, function = name.partition("::")
        tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
        assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, name


def test_sections_that_readings_and_docstrings_name_are_on_the_page(equations):
    titles = {section.title for section in equations.SECTIONS}
    assert {title for reading in READINGS for title in reading.section.split("; ")} <= titles
    for file in sorted((ROOT / "src").rglob("*.py")):
        text = " ".join(file.read_text(encoding="utf-8").split())
        for named in re.findall(r"Paper: ((?:“[^”]+”(?:[;,] )?)+)", text):
            assert set(re.findall(r"“([^”]+)”", named)) <= titles, file
