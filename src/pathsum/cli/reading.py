"""One command for every reading, made from its entry in the catalogue."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from pathsum.cli.figure import FIGURE, check_figure, draw
from pathsum.cli.subject import CLUSTER, CONTEXT, MODEL, SEED, SEQUENCES, TEXT, subject_of
from pathsum.cli.words import flowing
from pathsum.errors import StudyError
from pathsum.study.options import DELTA, OPTIONS, distance
from pathsum.study.reading import Column, Reading

if TYPE_CHECKING:
    from pathsum.study.result import Result

JSON = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
CSV = Annotated[bool, typer.Option("--csv", help="Print the table as CSV and nothing else.")]
LIMIT = Annotated[int, typer.Option("--limit", min=1, help="Rows shown in the terminal table.")]

SUBJECT = ("text", "sequences", "context", "seed")
"""Options that say what is read, not how."""


def add_reading(app: typer.Typer, reading: Reading, with_options: bool) -> None:
    """Register the reading's command; its own options are looked up (and torch loaded) only when asked for."""
    own = _own_options(reading) if with_options else []
    app.command(reading.name, short_help=reading.title, help=_help(reading) if with_options else reading.title)(
        _command(reading, own)
    )


def _command(reading: Reading, own: list[inspect.Parameter]) -> Callable[..., None]:
    def command(model: str, as_json: bool, csv: bool, limit: int, figure: Path | None, **options: Any) -> None:
        from pathsum.study.result import read_one

        if as_json and csv:
            raise typer.BadParameter("--json and --csv exclude each other")
        check_figure(figure, reading.name)
        subject = subject_of(model, **{name: options.pop(name) for name in SUBJECT if name in options})
        result = read_one(reading.name, subject, **_given(reading, options))
        if as_json:
            print(result.to_json())
        elif csv:
            print(result.frame.write_csv(), end="")
        else:
            _show(result, limit)
        draw(result, figure)

    command.__signature__ = inspect.Signature([*_shared(reading), *own])  # type: ignore[attr-defined]
    return command


def _show(result: "Result", limit: int) -> None:
    """Facts in groups, everything else as one table."""
    from pathsum.report.facts import print_facts
    from pathsum.report.terminal import print_result

    if "group" in result.frame.columns:
        print_facts(result)
    else:
        print_result(result, limit)


def _shared(reading: Reading) -> list[inspect.Parameter]:
    """What every reading takes, and what says what it reads."""
    of_all = {"text": (TEXT, None), "sequences": (SEQUENCES, None), "context": (CONTEXT, None), "seed": (SEED, 0)}
    taken: dict[str, tuple[Any, Any]] = {"model": (MODEL, inspect.Parameter.empty)}
    taken |= {name: option for name, option in of_all.items() if name in reading.shared}
    taken |= {"as_json": (JSON, False), "csv": (CSV, False), "limit": (LIMIT, 40), "figure": (FIGURE, None)}
    kind = inspect.Parameter.KEYWORD_ONLY
    return [inspect.Parameter(name, kind, default=default, annotation=how) for name, (how, default) in taken.items()]


def _own_options(reading: Reading) -> list[inspect.Parameter]:
    """The reading's keyword options, as typer understands them, each with its help."""
    from pathsum.study.readings import options_of

    helps = {"delta": DELTA, "cluster": CLUSTER, **OPTIONS.get(reading.name, {})}
    return [
        p.replace(annotation=Annotated[_option_type(p.annotation), typer.Option(help=helps[p.name], **_least(p))])
        for p in options_of(reading)
    ]


def _least(option: inspect.Parameter) -> dict[str, Any]:
    return {"min": 1} if option.annotation in (int, int | None) else {}


def _option_type(annotation: Any) -> Any:
    """Numbers and bool as they are; a distance Δ (a number, several, or "rms") as text that `_given` reads."""
    return annotation if annotation in (int, int | None, bool) else str | None


def _given(reading: Reading, options: dict[str, Any]) -> dict[str, Any]:
    try:
        return {key: distance(reading.name, value) if key == "delta" else value for key, value in options.items()}
    except StudyError as error:
        raise typer.BadParameter(str(error)) from error


def _help(reading: Reading) -> str:
    """The docstring, the paper's section, and a line a column; brackets are text here, not rich's markup."""
    columns = "\n".join(
        f"[bold]{column.name}[/bold]{_unit(column)}: {escape(column.meaning)}" for column in _columns(reading)
    )
    doc = escape(flowing(reading.function.__doc__) or reading.title)
    return f"{doc}\n\nPaper: {reading.section}.\n\n\b\n{columns}"


def _unit(column: Column) -> str:
    return f" ({escape(column.unit)})" if column.unit not in ("", "1") else ""


def _columns(reading: Reading) -> list[Column]:
    """Of the sixteen lags the first two stand for all."""
    return [c for c in reading.columns if not c.name.startswith("lag_") or c.name in ("lag_0", "lag_1")]
