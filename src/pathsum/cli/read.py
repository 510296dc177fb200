"""`pathsum read MODEL`: every reading, a summary on the terminal, and a folder with tables and a page."""

import json
from pathlib import Path
from typing import Annotated

import typer

from pathsum.cli.progress import progress_bar
from pathsum.cli.subject import CONTEXT, MODEL, SEED, SEQUENCES, TEXT, subject_of

OUT = Annotated[
    Path | None, typer.Option("--out", help="Folder for the report (default: pathsum-report/MODEL; none with --json).")
]
ONLY = Annotated[str | None, typer.Option("--only", help="Readings to make, with commas between: composition,spectra.")]
JSON = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


def read(
    model: MODEL,
    text: TEXT = None,
    out: OUT = None,
    only: ONLY = None,
    seed: SEED = 0,
    sequences: SEQUENCES = None,
    context: CONTEXT = None,
    as_json: JSON = False,
) -> None:
    """Read a model: all readings, a summary, and a report."""
    from pathsum.training.machine import let_waiting_threads_sleep

    let_waiting_threads_sleep()
    from rich.console import Console

    from pathsum.report.folder import check_place, write_report
    from pathsum.report.results import run_readings
    from pathsum.report.summary import summary

    chosen = None if only is None else [name.strip() for name in only.split(",") if name.strip()]
    if chosen == []:
        raise typer.BadParameter("--only names no reading; give names with commas between, such as spectra,composition")
    where = out if out is not None or as_json else Path("pathsum-report") / Path(model).name
    if where is not None:
        check_place(where)
    with progress_bar("Opening") as show:
        subject = subject_of(model, text, seed, sequences, context)
        results = run_readings(subject, lambda done, every, title: show(done, every, title or "Writing"), chosen)
        if where is not None:
            write_report(where, subject, results)
    if as_json:
        found = {name: result.to_dict() for name, result in results.items()}
        print(json.dumps({"model": subject.model.name, "readings": found}, ensure_ascii=False, allow_nan=False))
        return
    Console().print(summary(results))
    if where is not None:
        # Not by rich: a path is copied, so it is never broken.
        print(f"Report: {where / 'report.html'}")
