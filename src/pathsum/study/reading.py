"""The types of the catalogue. Light on purpose: naming the readings must not load torch or polars."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Rows = list[dict[str, Any]]
"""A table as a reading makes it: one dictionary a row."""
Needs = Literal["shapes", "weights", "random tokens", "text"]
Invariance = Literal["GL", "O"]
TEXT, RANDOM = ("text", "bos", "sequences", "context", "seed"), ("batch", "block", "seed")
SHARED = ("text", "bos", "sequences", "context", "batch", "block", "seed")
"""What says what is read, not how: fields of `Subject`."""


@dataclass(frozen=True)
class Column:
    """One column of a result."""

    name: str
    unit: str
    """"" for names, "1" for plain numbers."""
    meaning: str
    invariance: Invariance = "GL"
    """GL: unchanged under any invertible change of the residual basis; O: under rotations only."""


@dataclass(frozen=True)
class Reading:
    """One reading, named once; command line, report and documentation follow from it."""

    name: str
    title: str
    section: str
    """Where the paper defines it."""
    needs: tuple[Needs, ...]
    columns: tuple[Column, ...]
    module: str
    """The module of `pathsum.study` that has the function of this name."""
    shows_qk: bool = False
    """It shows scores or W_QK read off weights, which leave out what depends on the text (`approximate`)."""
    optional: tuple[Column, ...] = ()
    """Columns that options add, and what those are invariant under."""
    in_report: bool = True
    """Part of `pathsum read`; False for what costs too much to run unasked."""
    also: tuple[str, ...] = ()
    """Of `SHARED`, what its numbers depend on besides the text or the random tokens that it needs."""

    @property
    def shared(self) -> tuple[str, ...]:
        """Those of `SHARED` that its numbers depend on; it takes no others."""
        used = {*self.also, *(TEXT if "text" in self.needs else ()), *(RANDOM if "random tokens" in self.needs else ())}
        return tuple(name for name in SHARED if name in used)

    @property
    def invariance(self) -> Invariance:
        """What every column is invariant under."""
        return "O" if any(column.invariance == "O" for column in self.columns) else "GL"

    @property
    def function(self) -> Callable[..., Any]:
        """`(subject, **options) -> Rows`, imported when asked for."""
        return getattr(importlib.import_module(f"pathsum.study.{self.module}"), self.name)
