"""`pathsum sweep RUN`: readings of every checkpoint of a series, as tables and a page over training."""

from pathlib import Path
from typing import Annotated

import typer

from pathsum.cli.progress import progress_bar
from pathsum.cli.subject import CLUSTER, CONTEXT, SEED, SEQUENCES, TEXT

SERIES = Annotated[
    str,
    typer.Argument(
        metavar="RUN_DIR|MODEL@{a..b}",
        help="A run's folder with its step-… folders, a folder of model folders, or revisions: "
        "'hf:owner/name@step{0..143000..1000}'.",
    ),
]
DEFAULT = "composition,matching,spectra,attention,induction,in_context"
READINGS_HELP = f"With commas between; see pathsum --help for their names (default: {DEFAULT.replace(',', ', ')})."
READINGS = Annotated[str, typer.Option("--readings", help=READINGS_HELP, show_default=False)]
OUT = Annotated[Path, typer.Option("--out", help="Folder for the tables and the page; a sweep that is there goes on.")]


def sweep(
    series: SERIES,
    out: OUT,
    readings: READINGS = DEFAULT,
    text: TEXT = None,
    seed: SEED = 0,
    sequences: SEQUENCES = None,
    context: CONTEXT = None,
    processes: Annotated[int, typer.Option(min=1, help="Checkpoints read at once, each in a process of its own.")] = 1,
    cluster: Annotated[str | None, typer.Option(help=CLUSTER)] = None,
    remove_weights: Annotated[
        bool, typer.Option("--remove-weights", help="Delete each checkpoint's weights once its tables are written.")
    ] = False,
) -> None:
    """Readings over training: every checkpoint of a run or of a series of revisions."""
    from pathsum.training.machine import let_waiting_threads_sleep

    let_waiting_threads_sleep()
    from pathsum.report.sweep import write_sweep_page
    from pathsum.study.sweep import sweep as sweep_series
    from pathsum.training.corpus import read_corpus

    names = [name.strip() for name in readings.split(",") if name.strip()]
    given = {} if not text else {
        "text": "\n\n".join(read_corpus(text).documents), "text_name": ", ".join(Path(name).name for name in text),
    }  # fmt: skip
    with progress_bar("checkpoints") as progress:
        manifest = sweep_series(
            series, names, out, **given, seed=seed, sequences=sequences, context=context, processes=processes,
            cluster=cluster, remove=remove_weights, progress=progress,
        )  # fmt: skip
    for same in manifest["duplicates"]:
        print(f"equal weights: {', '.join(same)}")
    print(f"Tables: {out}")
    print(f"Page:   {write_sweep_page(out)}")
