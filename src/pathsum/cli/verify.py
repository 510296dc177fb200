"""`pathsum verify MODEL`: measured errors beside their bounds; exit 1 where one is broken."""

import sys
from dataclasses import replace
from typing import Annotated

import typer

from pathsum.cli.subject import MODEL, TEXT, subject_of

CONTEXT = Annotated[int | None, typer.Option("--context", min=2, help="Tokens of the text (default: 64).")]
JSON = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


def verify(model: MODEL, text: TEXT = None, context: CONTEXT = None, as_json: JSON = False) -> None:
    """Measure what must be equal, on this model and machine, and say where a bound is broken (exit 1).

    Folded against raw weights, terms against what they sum to, float32 against float64, each accelerator against the
    CPU, and the transformers library, where it is installed and opens the same files, against pathsum.
    """
    from rich.console import Console
    from rich.text import Text

    from pathsum.report.terminal import print_result
    from pathsum.study.verify import verify_subject

    result = verify_subject(subject_of(model, text, context=context))
    rows = result.rows()
    if as_json:
        print(result.to_json())
    else:
        print_result(replace(result, frame=result.frame.drop("note")))
        for row in rows:
            if row["note"]:
                Console().print(Text(f"{row['check']}: {row['note']}", style="dim"))
    broken = [f"{row['check']} ({row['dtype']})" for row in rows if row["holds"] is False]
    if broken:
        print(f"pathsum: bound broken: {', '.join(broken)}", file=sys.stderr)
        raise typer.Exit(1)
