"""`pathsum claims`: the paper's claims, measured on models trained for it, with a verdict by a rule stated before."""

from pathlib import Path
from typing import Annotated

import typer

from pathsum.cli.progress import progress_bar


def claims(
    full: Annotated[
        bool,
        typer.Option("--full/--quick", help="Many seeds, sizes and depths (hours); or one seed of each (minutes)."),
    ] = False,
    out: Annotated[
        Path, typer.Option(help="Folder for models, measurements and page; what is there is used again.")
    ] = Path("pathsum-claims"),
    real: Annotated[
        str | None, typer.Option(help="A model that was not trained here, for the claim about in-context learning.")
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(help="Text to train on: a file, a folder, or the word python (default); may be given repeatedly."),
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Models at once, one thread each; all cores by default.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """The paper's claims, measured over seeds: estimates, intervals and verdicts."""
    from pathsum.training.machine import let_waiting_threads_sleep

    let_waiting_threads_sleep()
    import json

    from rich.console import Console

    from pathsum.report.claims import claims_dict, claims_summary, write_claims
    from pathsum.study.claim_run import run_claims

    with progress_bar("reading the text") as show:
        progress = lambda stage, done, every, name: show(done, every, f"{stage}: {name}")
        found = run_claims(out, full, real=real, sources=text or ["python"], processes=processes, progress=progress)
    page = write_claims(out, found)
    if as_json:
        print(json.dumps(claims_dict(found), ensure_ascii=False, allow_nan=False))
        return
    Console().print(claims_summary(found))
    print(f"Page: {page}")
