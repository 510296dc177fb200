"""The page of a run's folder shows composition over training, within its bounds; other pages do not."""

import json
import shutil
from pathlib import Path

import pytest

import pathsum
from pathsum.report.on_the_way import MOST, evenly, on_the_way, saved_on_the_way, work_of
from pathsum.report.page import report_page
from pathsum.report.results import run_readings
from pathsum.study.series import Checkpoint
from pathsum.study.subject import Subject

CHECKPOINTS = Path(__file__).parents[2] / "checkpoints" / "two-layer-small"
STEPS = ("step-000016", "step-000256", "step-000512", "step-001500")


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run's folder, as training leaves it."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    shutil.copytree(CHECKPOINTS / STEPS[-1], folder)
    for name in ("tokenizer.json", "training.json"):
        shutil.copy(CHECKPOINTS / name, folder / name)
    for step in STEPS:
        shutil.copytree(CHECKPOINTS / step, folder / step)
    return folder


@pytest.fixture(scope="module")
def read(run):
    model = pathsum.open(run)
    return model, run_readings(Subject(model), only=["composition", "describe"])


def test_the_page_of_a_runs_folder_has_composition_over_training_and_its_digests(read):
    model, results = read
    page = report_page(Subject(model), results)
    assert "Composition over training" in page and "4 of the 4 checkpoints" in page
    found = on_the_way(model, results)
    assert [one["name"] for one in found.checkpoints] == list(STEPS)
    last = found.checkpoints[-1]
    assert last["weights_sha256"] == model.digest() and last["tokens"] == 6_144_000
    assert all(one["weights_sha256"] in page for one in found.checkpoints)


def test_the_figure_is_of_the_checkpoints_own_tables(read, run):
    model, results = read
    drawn = on_the_way(model, results).drawing.figure.to_dict()
    rows = [row for data in drawn["datasets"].values() for row in data if {"pair", "tokens"} <= set(row)]
    early = pathsum.composition(pathsum.open(run / STEPS[1])).rows()
    assert {row["tokens"] for row in rows} == {65_536, 1_048_576, 2_097_152, 6_144_000}
    known = {f"{row['kind']} {row['source']} → {row['destination']}": row["effect"] for row in early}
    there = [row for row in rows if row["tokens"] == 1_048_576]
    assert there and all(row["effect"] == pytest.approx(known[row["pair"]], rel=1e-4) for row in there)


def test_a_model_without_checkpoints_or_pairs_has_no_such_figure(read, run):
    _, results = read
    assert saved_on_the_way(pathsum.open("two-layer-small")) == saved_on_the_way(pathsum.toys.induction_model()) == []
    assert on_the_way(pathsum.open("two-layer-small"), results) is None
    assert on_the_way(pathsum.open(run), {}) is None
    assert "Composition over training" not in report_page(Subject(pathsum.open("two-layer-small")), results)


def test_few_are_read_where_there_are_many_or_they_are_large(read, monkeypatch):
    many = [Checkpoint(f"step-{step}", "", step, step) for step in range(100)]
    assert evenly(many, MOST)[:: MOST - 1] == [many[0], many[-1]] and len(set(evenly(many, MOST))) == MOST
    assert evenly(many, 1) == evenly(many, 0) == [] and evenly(many[:3], 5) == many[:3]
    model, results = read
    monkeypatch.setattr("pathsum.report.on_the_way.WORK", 2 * work_of(model.spec))
    found = on_the_way(model, results)
    assert [one["name"] for one in found.checkpoints] == [STEPS[0], STEPS[-1]]
    assert "2 of the 4" in found.drawing.caption
    monkeypatch.setattr("pathsum.report.on_the_way.WORK", work_of(model.spec))
    assert on_the_way(model, results) is None


def test_a_checkpoint_that_cannot_be_read_is_named(read, run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / STEPS[1] / "model.safetensors").write_bytes(b"cut")
    found = on_the_way(pathsum.open(tmp_path / "run"), read[1])
    assert found.drawing.caption.endswith(f"Not readable: {STEPS[1]}.") and len(found.checkpoints) == 3
    said = json.loads((run / STEPS[0] / "training.json").read_text())
    assert said["tokens"] == found.checkpoints[0]["tokens"]
