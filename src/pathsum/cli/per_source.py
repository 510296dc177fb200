"""`pathsum per-source MODEL --out FILE`: every token's strongest destinations and outputs, as Parquet."""

from pathlib import Path
from typing import Annotated

import typer

from pathsum.cli.subject import CLUSTER, MODEL

OUT = Annotated[Path, typer.Option("--out", help="The Parquet file; written beside it and renamed.")]
COUNT = Annotated[int, typer.Option("--count", min=1, help="Destinations and outputs of each source token.")]
HEAD = Annotated[str | None, typer.Option("--head", help="One head, as L0H3 (default: all).")]
DELTA = Annotated[
    float | None,
    typer.Option("--delta", help="Distance destination − source, for rotary models; without it only OV is written."),
]
CLUSTER_OPTION = Annotated[str | None, typer.Option("--cluster", help=CLUSTER)]


def per_source(
    model: MODEL, out: OUT, count: COUNT = 5, head: HEAD = None, delta: DELTA = None, cluster: CLUSTER_OPTION = None
) -> None:
    """Write, for every token of the vocabulary, what attends to it most (QK) and what it then raises most (OV).

    Exact. One row an entry: head, circuit, source (with its id), rank, row (QK: the destination; OV: the output; with
    its id), value (QK: centred score, queries' bias included; OV: centred logit). Memory is one block of a table.
    """
    from pathsum.study.per_source import per_source as write
    from pathsum.weights.checkpoint import open_model

    rows = write(open_model(model), out, count=count, head=head, delta=delta, cluster=cluster)
    print(f"{rows:,} rows: {out}")
