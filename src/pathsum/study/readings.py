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
    known = {option.name: option for option in (*_shared(reading), *options_of(reading))}

    def read(model: Model, **given: Any) -> Result:
        opened(model, f"{name}()")
        if unknown := sorted(set(given) - set(known)):
            raise TypeError(f"{name}() takes no {unknown[0]!r}; it takes {', '.join(known) or 'the model alone'}")
        subject = {one: given.pop(one) for one in reading.shared if one in given}
        return read_one(name, Subject(model, **subject), **given)

    read.__name__ = read.__qualname__ = name
    read.__doc__ = _docstring(reading)
    subject = inspect.Parameter("model", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Model)
    read.__signature__ = inspect.Signature([subject, *known.values()], return_annotation=Result)  # type: ignore[attr-defined]
    return read


def options_of(reading: Reading) -> list[inspect.Parameter]:
    """The reading's own keyword options."""
    return [p for p in inspect.signature(reading.function).parameters.values() if p.kind is p.KEYWORD_ONLY]


def _shared(reading: Reading) -> list[inspect.Parameter]:
    """What says what it reads, as `Subject` has it."""
    of_subject = inspect.signature(Subject).parameters
    return [of_subject[name].replace(kind=inspect.Parameter.KEYWORD_ONLY) for name in reading.shared]


GIVEN = {
    "text": """\
`text`: a text or token ids (None: sources of the standard library, or random tokens where there is no tokenizer).
Where it is run: in `sequences` contexts of `context` tokens (None: what fits), each with or without the token `bos` in
front (None: as the model was trained).""",
    "random tokens": """\
Random tokens: `batch` sequences of `block` distinct ones (None: 64 or what fits), thrice, drawn with `seed`.""",
}
"""The arguments that readings share, by what needs them."""
ALSO = {
    "seed": "`seed`: of what is drawn at random.",
    "context": "`context`: positions that are looked at (None: what fits).",
}
"""Those that a few others take."""


def _docstring(reading: Reading) -> str:
    parts = [
        f"{inspect.getdoc(reading.function)}",
        f"Paper: {PAPER}, “{reading.section}”.\nNeeds {', '.join(reading.needs)}. "
        f"Invariant under {reading.invariance} of the residual basis.",
        *(words for need, words in GIVEN.items() if need in reading.needs),
        *(words for name, words in ALSO.items() if name in reading.also),
        f"Raises {_errors(reading)}.",
        f"Columns, with their unit (1: a plain number):\n{_columns(reading.columns)}",
        *([f"Columns that options add:\n{_columns(reading.optional)}"] if reading.optional else []),
        f"Example:\n\n{EXAMPLES[reading.name]}",
    ]
    return "\n\n".join(parts)


def _errors(reading: Reading) -> str:
    model = "`NotApplicable` for what is no opened model"
    tokens = "`TextError` for a text of fewer than two tokens or a\ncontext that the model does not take"
    return f"{model}, {tokens}" if {"context", "batch"} & {*reading.shared} else model


def _columns(columns: Sequence[Column]) -> str:
    return "\n".join(f"    {c.name}{f' [{c.unit}]' if c.unit else ''}: {c.meaning}" for c in columns)
