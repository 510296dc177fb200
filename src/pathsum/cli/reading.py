"""One command for every reading, made from its entry in the catalogue."""

import inspect
import types
import typing
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from pathsum.cli.subject import CONTEXT, MODEL, SEED, SEQUENCES, TEXT, subject_of
from pathsum.study.reading import Reading

JSON = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
CSV = Annotated[bool, typer.Option("--csv", help="Print the table as CSV and nothing else.")]
LIMIT = Annotated[int, typer.Option("--limit", min=1, help="Rows shown in the terminal table.")]


def add_reading(app: typer.Typer, reading: Reading, with_options: bool) -> None:
    """Register the reading's command; its own options are looked up (and torch loaded) only when asked for."""
    own = _own_options(reading) if with_options else []
    app.command(reading.name, short_help=reading.title, help=_help(reading) if with_options else reading.title)(
        _command(reading, own)
    )


def _command(reading: Reading, own: list[inspect.Parameter]) -> Callable[..., None]:
    def command(
        model: MODEL,
        text: TEXT = None,
        seed: SEED = 0,
        sequences: SEQUENCES = 16,
        context: CONTEXT = None,
        json: JSON = False,
        csv: CSV = False,
        limit: LIMIT = 40,
        **options: Any,
    ) -> None:
        from pathsum.study.result import read_one

        result = read_one(reading.name, subject_of(model, text, seed, sequences, context), **_given(options))
        if json:
            print(result.to_json())
        elif csv:
            print(result.frame.write_csv(), end="")
        else:
            from pathsum.report.terminal import print_result

            print_result(result, limit)

    shared = [p for p in inspect.signature(command).parameters.values() if p.kind is not p.VAR_KEYWORD]
    command.__signature__ = inspect.Signature([*shared, *own])  # type: ignore[attr-defined]
    return command


def _own_options(reading: Reading) -> list[inspect.Parameter]:
    """The reading's keyword options, as typer understands them."""
    from pathsum.study.readings import options_of

    return [p.replace(annotation=_option_type(p.annotation)) for p in options_of(reading)]


def _option_type(annotation: Any) -> Any:
    """int, bool and str as they are; a distance Δ (a number, several, or "rms") as text that `_given` reads."""
    if annotation in (int, bool, str, float):
        return annotation
    number = typing.get_origin(annotation) in (types.UnionType, typing.Union)
    if number and float in typing.get_args(annotation):
        several = any(typing.get_origin(part) is Sequence for part in typing.get_args(annotation))
        text = 'Distance destination − source for rotary models: a number, several ("1,2,3") or rms.'
        return Annotated[str | None, typer.Option(help=text if several else "Distance destination − source.")]
    raise TypeError(f"no command-line form for {annotation}")


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {key: _distance(value) if key == "delta" else value for key, value in options.items()}


def _distance(text: str | None) -> Any:
    if text is None or text == "rms":
        return text
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is no distance; give a number, several with commas, or rms") from error
    return numbers[0] if len(numbers) == 1 else numbers


def _help(reading: Reading) -> str:
    columns = "\n\n".join(
        f"[bold]{column.name}[/bold]{f' ({column.unit})' if column.unit not in ('', '1') else ''}: {column.meaning}"
        for column in reading.columns
    )
    doc = inspect.getdoc(reading.function) or reading.title
    return f"{doc}\n\nPaper: {reading.section}. Columns:\n\n{columns}"
