"""A report's folder is complete, replaces only reports, and leaves nothing half-written."""

import json

import polars as pl
import pytest

from pathsum.errors import StudyError
from pathsum.report import folder
from pathsum.report.folder import check_place, write_report


def entries(directory) -> set[str]:
    return {file.relative_to(directory).as_posix() for file in directory.rglob("*") if file.is_file()}


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(folder, "report_page", lambda subject, results: "<!doctype html>")


def test_the_folder_is_complete(tmp_path, hostile, results):
    where = write_report(tmp_path / "new" / "report", hostile, results)
    tables = {f"tables/{name}.{kind}" for name in results for kind in ("parquet", "json")}
    assert entries(where) == {"manifest.json", "report.html"} | tables
    assert {path.name for path in where.parent.iterdir()} == {"report"}


def test_tables_are_the_readings_and_the_manifest_names_them(tmp_path, hostile, results):
    where = write_report(tmp_path / "report", hostile, results)
    table = json.loads((where / "tables/composition.json").read_text(encoding="utf-8"))
    assert table == results["composition"].to_dict()
    assert pl.read_parquet(where / "tables/composition.parquet").equals(results["composition"].frame)
    manifest = json.loads((where / "manifest.json").read_text(encoding="utf-8"))
    assert list(manifest["readings"]) == list(results)
    assert manifest["readings"]["composition"]["rows"] == len(results["composition"].frame)
    assert manifest["model"] == "<b>toy</b> & co" and "pathsum" in manifest["versions"]


def test_empty_tables_are_written_too(tmp_path, plain):
    subject, found = plain
    where = write_report(tmp_path / "report", subject, found)
    for name, result in found.items():
        assert pl.read_parquet(where / f"tables/{name}.parquet").columns == result.frame.columns


def test_a_report_is_replaced_and_what_others_put_there_stays(tmp_path, hostile, results):
    where = write_report(tmp_path, hostile, results)
    (where / "notes.txt").write_text("mine")
    write_report(where, hostile, {"composition": results["composition"]})
    tables = {"tables/composition.parquet", "tables/composition.json"}
    assert entries(where) == {"manifest.json", "report.html", "notes.txt"} | tables


@pytest.mark.parametrize("name", ["thesis.tex", "manifest.json"])
def test_a_folder_with_other_things_is_refused(tmp_path, hostile, results, name):
    (tmp_path / name).write_text('{"name": "an extension"}')
    with pytest.raises(StudyError, match=r"is not empty and is no pathsum report .*pass another folder"):
        write_report(tmp_path, hostile, results)
    assert entries(tmp_path) == {name}


def test_a_file_in_its_place_is_refused(tmp_path):
    (tmp_path / "report").write_text("")
    with pytest.raises(StudyError, match="is a file"):
        check_place(tmp_path / "report")


def test_nothing_half_written_stays(tmp_path, hostile, results, monkeypatch):
    def broken(subject, results):
        raise RuntimeError("no page")

    monkeypatch.setattr(folder, "report_page", broken)
    with pytest.raises(RuntimeError):
        write_report(tmp_path / "report", hostile, results)
    assert not list(tmp_path.iterdir())


def test_a_report_survives_a_failed_one_after_it(tmp_path, hostile, results, monkeypatch):
    where = write_report(tmp_path / "report", hostile, results)
    before = {name: (where / name).read_bytes() for name in entries(where)}
    monkeypatch.setattr(folder, "report_page", lambda subject, results: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_report(where, hostile, {"composition": results["composition"]})
    assert {name: (where / name).read_bytes() for name in entries(where)} == before


def test_a_place_that_cannot_be_written_is_a_clear_error(tmp_path, hostile, results):
    (tmp_path / "file").write_text("")
    with pytest.raises(StudyError, match="cannot write the report"):
        write_report(tmp_path / "file" / "report", hostile, results)
