"""Readings over training: which checkpoints, what is written, and that a sweep goes on where it stopped."""

import json
import shutil
from pathlib import Path

import polars as pl
import pytest

import pathsum
from pathsum.errors import StudyError
from pathsum.report.figures.over_training import over_training
from pathsum.report.sweep import write_sweep_page
from pathsum.study.series import checkpoints, remove_weights
from pathsum.study.sweep import series_table, sweep, sweep_manifest
from pathsum.training.recipe import recipe
from pathsum.training.train import train

READINGS = ("composition", "spectra", "repeats")


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run of 20 steps: checkpoints after 1, 2, 4, 8 and 16, and the trained model."""
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    text = folder.parent / "text.py"
    text.write_text("\n\n".join(f"def f{n}(x):\n    return x * {n} + len('word {n}')" for n in range(3000)))
    tiny = recipe("two-layer-small", steps=20, heads=2, d_model=16, d_head=8, vocab=300, context=24, batch=2)
    train(tiny, folder, [text], quiet=True)
    return folder


def test_a_run_is_a_series_in_the_order_of_its_steps(run):
    found = checkpoints(str(run))
    assert [one.step for one in found] == [1, 2, 4, 8, 16, 20]
    assert [one.tokens for one in found] == [48 * step for step in (1, 2, 4, 8, 16, 20)]
    assert found[-1].place == str(run)


def test_names_in_braces_are_expanded_and_nothing_is_fetched():
    found = checkpoints("hf:owner/name@step{0..3000..1000}-bf16")
    assert [one.name for one in found] == [f"step{n}-bf16" for n in (0, 1000, 2000, 3000)]
    assert found[1].place == "hf:owner/name@step1000-bf16"
    assert [one.place for one in checkpoints("folder@{a,b}")] == [str(Path("folder") / name) for name in "ab"]


@pytest.mark.parametrize("inside", ["3..1", "1..2..0", "a", "", "1,,2", "0..100000000"])
def test_braces_that_say_nothing_are_refused(inside):
    with pytest.raises(StudyError, match="write"):
        checkpoints(f"hf:owner/name@step{{{inside}}}")


def test_a_place_without_a_series_is_refused(run, tmp_path):
    with pytest.raises(StudyError, match="no series"):
        checkpoints(str(run / "step-000001"))
    with pytest.raises(StudyError, match="no folder of checkpoints"):
        checkpoints(str(tmp_path / "nowhere"))


def test_every_table_is_what_the_reading_says_of_that_checkpoint(run, tmp_path):
    manifest = sweep(str(run), READINGS, tmp_path / "out")
    assert manifest == sweep_manifest(tmp_path / "out")
    for name in READINGS:
        table = series_table(tmp_path / "out", name)
        assert table["step"].unique(maintain_order=True).to_list() == [1, 2, 4, 8, 16, 20]
        for one in checkpoints(str(run)):
            own = getattr(pathsum, name)(pathsum.open(one.place)).frame
            kept = table.filter(pl.col("checkpoint") == one.name).drop("checkpoint", "step", "tokens")
            assert kept.equals(own)


def test_a_sweep_that_was_stopped_goes_on_and_reads_nothing_twice(run, tmp_path, monkeypatch):
    out = tmp_path / "out"
    whole = sweep(str(run), READINGS, out)
    (out / "spectra" / "step-000004.parquet").unlink()
    read = []
    import pathsum.study.sweep as module

    original = module.read_checkpoint
    monkeypatch.setattr(module, "read_checkpoint", lambda one, asked: read.append(one.name) or original(one, asked))
    again = sweep(str(run), READINGS, out)
    assert read == ["step-000004"] and again["checkpoints"] == whole["checkpoints"]
    assert not list(out.rglob("*.part"))


def test_readings_can_be_added_to_a_sweep(run, tmp_path):
    sweep(str(run), ["repeats"], tmp_path / "out")
    sweep(str(run), ["spectra"], tmp_path / "out")
    assert sweep_manifest(tmp_path / "out")["readings"] == ["repeats", "spectra"]
    assert len(series_table(tmp_path / "out", "repeats")) == 3 * 6


def test_another_sweep_in_the_same_folder_is_refused(run, tmp_path):
    sweep(str(run), ["repeats"], tmp_path / "out")
    with pytest.raises(StudyError, match="seed"):
        sweep(str(run), ["repeats"], tmp_path / "out", seed=1)
    with pytest.raises(StudyError, match="text_sha256"):
        sweep(str(run), ["repeats"], tmp_path / "text", text="one text " * 99, text_name="notes.txt")
        sweep(str(run), ["repeats"], tmp_path / "text", text="another " * 99, text_name="notes.txt")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(StudyError, match="holds no sweep"):
        sweep(str(run), ["repeats"], tmp_path / "other")


def test_unknown_readings_and_no_readings_are_refused_before_anything_is_read(run, tmp_path):
    with pytest.raises(StudyError, match="no reading 'spektra'"):
        sweep(str(run), ["spektra"], tmp_path / "out")
    with pytest.raises(StudyError, match="no reading was asked for"):
        sweep(str(run), [], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_processes_find_what_one_finds(run, tmp_path):
    sweep(str(run), READINGS, tmp_path / "one")
    sweep(str(run), READINGS, tmp_path / "two", processes=2)
    for name in READINGS:
        one, two = (series_table(tmp_path / each, name) for each in ("one", "two"))
        assert one.select(pl.exclude(pl.Float64)).equals(two.select(pl.exclude(pl.Float64)))
        numbers = [frame.select(pl.col(pl.Float64)).to_numpy() for frame in (one, two)]
        assert numbers[0] == pytest.approx(numbers[1], rel=1e-4, abs=1e-6, nan_ok=True)


def test_checkpoints_of_equal_weights_are_said(run, tmp_path):
    folder = tmp_path / "series"
    shutil.copytree(run / "step-000008", folder / "step-000008")
    shutil.copytree(run / "step-000008", folder / "step-000009")
    shutil.copytree(run / "step-000016", folder / "step-000016")
    assert sweep(str(folder), ["repeats"], tmp_path / "out")["duplicates"] == [["step-000008", "step-000009"]]


def test_weights_are_removed_once_their_tables_are_there_if_asked(run, tmp_path):
    folder = tmp_path / "series"
    for name in ("step-000008", "step-000016"):
        shutil.copytree(run / name, folder / name)
    sweep(str(folder), ["repeats"], tmp_path / "out", remove=True)
    assert not list(folder.rglob("*.safetensors"))
    assert json.loads((folder / "step-000008" / "training.json").read_text())["step"] == 8
    assert len(series_table(tmp_path / "out", "repeats")) == 6
    # What is done is not opened again.
    sweep(str(folder), ["repeats"], tmp_path / "out")


def test_removing_a_revision_asks_the_hub_alone(monkeypatch):
    forgotten = []
    monkeypatch.setattr("pathsum.study.series.hub.forget", forgotten.append)
    remove_weights(checkpoints("hf:owner/name@{a,b}")[0])
    assert forgotten == ["hf:owner/name@a"]


def test_what_makes_no_sense_for_a_model_is_left_out_and_said(run, tmp_path):
    folder = tmp_path / "series"
    for name in ("step-000008", "step-000016"):
        shutil.copytree(run / name, folder / name)
    manifest = sweep(str(folder), ["pointer", "repeats"], tmp_path / "out")
    assert set(manifest["not_applicable"]["step-000008"]) == {"pointer"}
    write_sweep_page(tmp_path / "out")


def test_the_page_has_circuits_above_behaviour(run, tmp_path):
    sweep(str(run), READINGS, tmp_path / "out")
    page = write_sweep_page(tmp_path / "out").read_text()
    places = ['id="circuits"', 'id="figure-composition-0"', 'id="behaviour"', 'id="figure-repeats-0"']
    assert sorted(places, key=page.index) == places
    assert "default-src" in page and "src=" not in page.split("</head>")[1].split("<script")[0]


def _rows(plain) -> list[dict]:
    """All rows of data in a figure."""
    if isinstance(plain, list) and plain and all(isinstance(row, dict) and "value" in row for row in plain):
        return plain
    inside = plain.values() if isinstance(plain, dict) else plain if isinstance(plain, list) else []
    return [row for part in inside for row in _rows(part)]


def test_lines_over_training_are_the_tables_numbers(run, tmp_path):
    sweep(str(run), ["spectra"], tmp_path / "out")
    table = series_table(tmp_path / "out", "spectra")
    (title, figure), *_ = over_training("spectra", table)
    points = {(row["name"], row["seen"]): row["value"] for row in _rows(figure.to_dict()) if "seen" in row}
    assert "copying" in title and len(points) == 4 * 6
    for row in table.iter_rows(named=True):
        assert points[row["head"], row["tokens"]] == pytest.approx(row["copying_score"], rel=1e-4, abs=1e-9)
