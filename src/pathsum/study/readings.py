"""Every reading as a function of a model: `pathsum.composition(model)` and the rest, made from the catalogue."""

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from pathsum.errors import StudyError
from pathsum.study.catalogue import BY_NAME, PAPER
from pathsum.study.reading import Reading
from pathsum.study.result import Result, read_one
from pathsum.study.subject import Subject
from pathsum.weights.model import Model


@cache
def public(name: str) -> Callable[..., Result]:
    """The reading of this name, with its options, its words and its columns in its docstring."""
    reading = BY_NAME[name]

    def read(
        model: Model,
        *,
        text: str | Sequence[int] | None = None,
        bos: bool | None = None,
        sequences: int | None = None,
        batch: int = 4,
        block: int | None = None,
        context: int | None = None,
        seed: int = 0,
        **options: Any,
    ) -> Result:
        if not isinstance(model, Model):
            raise StudyError(f"{name}() takes an opened model, not {type(model).__name__}: pathsum.open(…) gives one")
        subject = Subject(model, text, None, bos, sequences, batch, block, context, seed)
        return read_one(name, subject, **options)

    read.__name__ = read.__qualname__ = name
    read.__doc__ = _docstring(reading)
    read.__signature__ = _signature(read, reading)  # type: ignore[attr-defined]
    return read


def options_of(reading: Reading) -> list[inspect.Parameter]:
    """The reading's own keyword options."""
    return [p for p in inspect.signature(reading.function).parameters.values() if p.kind is p.KEYWORD_ONLY]


def _signature(read: Callable[..., Result], reading: Reading) -> inspect.Signature:
    shared = [p for p in inspect.signature(read).parameters.values() if p.kind is not p.VAR_KEYWORD]
    return inspect.Signature([*shared, *options_of(reading)], return_annotation=Result)


def _docstring(reading: Reading) -> str:
    columns = "\n".join(
        f"    {column.name}{f' [{column.unit}]' if column.unit else ''}: {column.meaning}" for column in reading.columns
    )
    return (
        f"{inspect.getdoc(reading.function)}\n\nPaper: {PAPER}, “{reading.section}”. Needs {', '.join(reading.needs)}. "
        f"Invariant under {reading.invariance} of the residual basis.\n\nColumns:\n{columns}"
    )
