"""The report's folder: `report.html`, `manifest.json`, and each reading in `tables/` as Parquet and JSON.

1. Everything is written into a hidden folder beside its place, or inside it where the place exists.
2. A new report is renamed into place in one step; an old one is replaced file by file, its manifest last.
3. Whatever goes wrong, the hidden folder is removed, and what was there before stays.
"""

import json
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pathsum.errors import StudyError
from pathsum.report.page import report_page
from pathsum.study.result import Result, manifest
from pathsum.study.subject import Subject

MANIFEST = "manifest.json"
PAGE = "report.html"
TABLE = re.compile(r"[a-z_]+\.(parquet|json)")


def write_report(directory: Path | str, subject: Subject, results: dict[str, Result]) -> Path:
    """Write the report of `results` and return its folder.

    Raises `StudyError` where `directory` is something else than a report or an empty folder, or cannot be written.

    >>> write_report("pathsum-report", subject, run_readings(subject)) / "report.html"
    PosixPath('pathsum-report/report.html')
    """
    directory = Path(directory)
    check_place(directory)
    try:
        _write_beside(directory, lambda folder: _write_files(folder, subject, results))
    except OSError as error:
        raise StudyError(f"{directory}: cannot write the report ({error}); pass another folder") from error
    return directory


def check_place(directory: Path) -> None:
    """Raises `StudyError` unless a report may be written here: nothing there yet, an empty folder, or a report.

    Cheap, so that it can be asked before the readings are made.
    """
    if not directory.exists():
        return
    if not directory.is_dir():
        raise StudyError(f"{directory} is a file; pass a folder for the report")
    foreign = next((entry for entry in directory.iterdir() if not entry.name.startswith(".writing-")), None)
    if foreign is not None and not _is_report(directory):
        raise StudyError(
            f"{directory} is not empty and is no pathsum report (it has {foreign.name}, and no {MANIFEST} of one); "
            "pass another folder, or empty this one"
        )


def _is_report(directory: Path) -> bool:
    try:
        found = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
        return "pathsum" in found["versions"] and "readings" in found
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _write_beside(directory: Path, write: Callable[[Path], None]) -> None:
    inside = directory.exists()
    parent = directory if inside else directory.parent
    parent.mkdir(parents=True, exist_ok=True)
    hidden = Path(tempfile.mkdtemp(prefix=".writing-", dir=parent))
    try:
        hidden.chmod(0o755)
        write(hidden)
        if inside:
            _replace_files(hidden, directory)
        else:
            hidden.rename(directory)
    finally:
        shutil.rmtree(hidden, ignore_errors=True)


def _write_files(folder: Path, subject: Subject, results: dict[str, Result]) -> None:
    tables = folder / "tables"
    tables.mkdir()
    for name, result in results.items():
        result.frame.write_parquet(tables / f"{name}.parquet")
        (tables / f"{name}.json").write_text(result.to_json(), encoding="utf-8")
    (folder / PAGE).write_text(report_page(subject, results), encoding="utf-8")
    whole = json.dumps(report_manifest(subject, results), ensure_ascii=False, indent=1, allow_nan=False)
    (folder / MANIFEST).write_text(whole + "\n", encoding="utf-8")


def report_manifest(subject: Subject, results: dict[str, Result]) -> dict[str, Any]:
    """What all numbers depend on, and what the folder holds."""
    return manifest(subject) | {"readings": {name: _entry(name, result) for name, result in results.items()}}


def _entry(name: str, result: Result) -> dict[str, Any]:
    reading = result.reading
    entry = {"title": reading.title, "paper_section": reading.section, "rows": len(result.frame)}
    entry |= {"parquet": f"tables/{name}.parquet", "json": f"tables/{name}.json"}
    reason = result.manifest.get("not_applicable")
    return entry if reason is None else entry | {"not_applicable": reason}


def _replace_files(hidden: Path, directory: Path) -> None:
    tables = directory / "tables"
    tables.mkdir(exist_ok=True)
    kept = {file.name for file in (hidden / "tables").iterdir()}
    for file in (hidden / "tables").iterdir():
        file.replace(tables / file.name)
    for stale in tables.iterdir():
        if TABLE.fullmatch(stale.name) and stale.name not in kept:
            stale.unlink()
    (hidden / PAGE).replace(directory / PAGE)
    (hidden / MANIFEST).replace(directory / MANIFEST)
