"""What `pip install` gives: the built wheel in an empty environment, away from the repository. `make package`."""

import os
import re
import subprocess
import sys
import urllib.request
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.package


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(command, check=True)
    (built,) = folder.glob("pathsum-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The folder of an environment's programs, with nothing in it but the wheel and what that asks for."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    command = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", wheel]
    subprocess.run(command, check=True)
    return folder / "bin"


@pytest.fixture
def away(tmp_path):
    """Where commands run: an empty folder that is also the home folder, and no path to the repository."""
    left_out = ("PYTHONPATH", "VIRTUAL_ENV", "COVERAGE_PROCESS_CONFIG")
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    return {"cwd": tmp_path, "env": {**kept, "HOME": str(tmp_path), "COLUMNS": "80"}}


def test_the_wheel_is_typed_licensed_and_has_no_tests(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert "pathsum/py.typed" in names and any(name.endswith("licenses/LICENSE") for name in names)
    assert {name.split("/")[0].split("-")[0] for name in names} == {"pathsum"}
    assert wheel.stat().st_size < 60_000_000


def test_nothing_is_installed_that_only_extras_ask_for(installed):
    listed = subprocess.run([installed / "python", "-m", "pip", "list"], check=True, capture_output=True, text=True)
    names = {line.split()[0].lower() for line in listed.stdout.splitlines()[2:]}
    assert "pathsum" in names
    assert not names & {"lightning-fabric", "distributed", "jupyterlab", "transformers", "pandas", "scipy"}


def test_a_model_is_read(installed, away):
    done = subprocess.run([installed / "pathsum", "read", "two-layer"], capture_output=True, text=True, **away)
    assert done.returncode == 0, done.stderr
    assert "L1H3" in done.stdout and "Sum of terms" in done.stdout
    assert (away["cwd"] / "pathsum-report" / "two-layer" / "report.html").stat().st_size > 1_000_000


def test_the_explorer_answers(installed, away):
    command = [installed / "pathsum", "explore", "two-layer", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **away) as server:
        try:
            said = iter(server.stdout.readline, "")
            address = next(found[0] for line in said if (found := re.search(r"http://[\w.]+:\d+/?", line)))
            with urllib.request.urlopen(address) as answer:
                assert answer.status == 200 and "two-layer" in answer.read().decode()
        finally:
            server.terminate()


@pytest.mark.parametrize(
    ("command", "extra"),
    [(["train", "two-layer-small", "--out", "model"], "train"),
     (["composition", "two-layer", "--cluster", "tcp://127.0.0.1:8786"], "cluster")],
)  # fmt: skip
def test_what_needs_an_extra_says_so(command, extra, installed, away):
    done = subprocess.run([installed / "pathsum", *command], capture_output=True, text=True, **away)
    assert done.returncode == 1 and f"pip install 'pathsum[{extra}]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1 and not list(away["cwd"].iterdir())
