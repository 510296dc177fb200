"""What a reader may set of a reading, and how it is read from a form: its options as the command line has them.

Left out are options that reach beyond the model: files (`corpus`, but for the word python), machines (`cluster`) and
memory.
"""

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pathsum.errors import StudyError
from pathsum.explorer.ask import Ask
from pathsum.explorer.settings import TEXT
from pathsum.study.catalogue import BY_NAME
from pathsum.study.options import CHOICES, DELTA, OPTIONS, distance
from pathsum.study.reading import Reading
from pathsum.study.readings import options_of

HIDDEN = ("cluster", "memory")
WORD = 200
"""Characters of an option."""
MOST = 100_000
"""Of any option that is a number."""
ON = ("on", "true", "1", "yes")


Kind = Literal["number", "word", "flag", "choice", "text"]


@dataclass(frozen=True)
class Parameter:
    """One thing to set."""

    name: str
    kind: Kind
    default: Any
    help: str
    choices: tuple[str, ...] = ()


def parameters(reading: Reading) -> list[Parameter]:
    """All that a form asks, in the command line's order."""
    own = [_parameter(reading, option) for option in options_of(reading) if option.name not in HIDDEN]
    return [*own, *_shared(reading)]


def ask_of(name: str, given: Mapping[str, str]) -> Ask:
    """What is asked by a reading's form; what is empty is the default.

    Raises `StudyError` for a reading or a parameter that is none, and for a value that cannot be read.
    """
    if name not in BY_NAME:
        raise StudyError(f"no reading {name[:WORD]!r}; there are {', '.join(BY_NAME)}")
    reading = BY_NAME[name]
    known = {parameter.name: parameter for parameter in parameters(reading)}
    if unknown := sorted(set(given) - set(known)):
        raise StudyError(f"{name} has no parameter {unknown[0][:WORD]!r}; it has {', '.join(known) or 'none'}")
    values = {key: _value(name, known[key], text) for key, text in given.items() if text != ""}
    shared = {key: values.pop(key) for key in ("text", "sequences", "context", "seed") if key in values}
    # A default that is spelled out is no other question than the default.
    options = {key: value for key, value in values.items() if value != known[key].default}
    return Ask(reading=name, options=options, **shared)


def _parameter(reading: Reading, option: inspect.Parameter) -> Parameter:
    told = {"delta": DELTA, **OPTIONS.get(reading.name, {})}[option.name]
    if option.name == "corpus":
        return Parameter(
            "corpus", "choice", None, "Only of tokens that occur in Python's standard library.", ("python",)
        )
    if choices := CHOICES.get((reading.name, option.name)):
        return Parameter(option.name, "choice", option.default, told, choices)
    if option.annotation is bool:
        return Parameter(option.name, "flag", option.default, told)
    kind: Kind = "number" if option.annotation in (int, int | None) else "word"
    return Parameter(option.name, kind, option.default, told)


def _shared(reading: Reading) -> list[Parameter]:
    of_all = (
        Parameter("text", "text", None, "Text to read the model on. Default: Python's standard library."),
        Parameter("sequences", "number", None, "Contexts of text to run. Default: up to 16."),
        Parameter("context", "number", None, "Tokens in a context. Default: the model's, at most 512."),
        Parameter("seed", "number", 0, "Of what is random."),
    )
    return [one for one in of_all if one.name in reading.shared]


def _value(reading: str, parameter: Parameter, text: str) -> Any:
    most = TEXT if parameter.kind == "text" else WORD
    if len(text) > most:
        raise StudyError(f"{parameter.name} has {len(text):,} characters; at most {most:,} are read")
    if parameter.kind == "text":
        return text.replace("\r\n", "\n")
    if parameter.kind == "flag":
        return text.lower() in ON
    if parameter.kind == "choice" and text not in parameter.choices:
        raise StudyError(f"{parameter.name} is {text!r}; it may be {' or '.join(parameter.choices)}")
    if parameter.kind == "number":
        return _number(parameter, text)
    return distance(reading, text) if parameter.name == "delta" else text


def _number(parameter: Parameter, text: str) -> int:
    least = 0 if parameter.name == "seed" else 2 if parameter.name == "context" else 1
    most = {"sequences": 1024, "context": 65_536, "seed": 2**31 - 1}.get(parameter.name, MOST)
    try:
        value = float(text)
        if not math.isfinite(value) or value != int(value) or not least <= value <= most:
            raise ValueError(text)
    except ValueError as error:
        raise StudyError(f"{parameter.name} is {text!r}; give a whole number from {least:,} to {most:,}") from error
    return int(value)
