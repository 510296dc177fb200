"""Every reading as a function of a model: `pathsum.composition(model)` and the rest, made from the catalogue."""

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from pathsum.study.catalogue import BY_NAME, PAPER
from pathsum.study.examples import EXAMPLES
from pathsum.study.reading import Column, Reading
from pathsum.study.result import Result, read_one
from pathsum.study.subject import Subject
from pathsum.weights.model import Model, opened


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
        subject = Subject(opened(model, f"{name}()"), text, None, bos, sequences, batch, block, context, seed)
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


GIVEN = {
    "text": """\
`text`: a text or token ids (None: sources of the standard library, or random tokens where there is no tokenizer).
Where it is run: in `sequences` contexts of `context` tokens (None: what fits), each with or without the token `bos` in
front (None: as the model was trained).""",
    "random tokens": """\
Random tokens: `batch` sequences of `block` distinct ones (None: 64 or what fits), thrice, drawn with `seed`.""",
}
"""The arguments that all readings have, by what uses them."""


def _docstring(reading: Reading) -> str:
    parts = [
        f"{inspect.getdoc(reading.function)}",
        f"Paper: {PAPER}, “{reading.section}”.\nNeeds {', '.join(reading.needs)}. "
        f"Invariant under {reading.invariance} of the residual basis.",
        *(words for need, words in GIVEN.items() if need in reading.needs),
        f"Raises {_errors(reading)}.",
        f"Columns, with their unit (1: a plain number):\n{_columns(reading.columns)}",
        *([f"Columns that options add:\n{_columns(reading.optional)}"] if reading.optional else []),
        f"Example:\n\n{EXAMPLES[reading.name]}",
    ]
    return "\n\n".join(parts)


def _errors(reading: Reading) -> str:
    model = "`NotApplicable` for what is no opened model"
    tokens = "`TextError` for a text of fewer than two tokens or a\ncontext that the model does not take"
    return f"{model}, {tokens}" if {"text", "random tokens"} & {*reading.needs} else model


def _columns(columns: Sequence[Column]) -> str:
    return "\n".join(f"    {c.name}{f' [{c.unit}]' if c.unit else ''}: {c.meaning}" for c in columns)
