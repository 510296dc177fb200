"""Checks of a config's values: what is wrong, and what it must be."""

import math
from typing import Any

from pathsum.errors import CheckpointError

MOST = 2**31
"""No size of a model is larger: a config that says so is damaged, and would ask for all memory there is."""
MOST_LAYERS = 10_000


def whole(name: str, value: Any, least: int, most: int = MOST) -> None:
    """Raises `CheckpointError` unless `value` is a whole number from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise CheckpointError(f"config: {name} is {value!r}, must be a whole number, at least {least}")
    if value > most:
        raise CheckpointError(f"config: {name} is {value!r}, which no model has; must be at most {most}")


def number(name: str, value: Any, above: float | int = -math.inf) -> None:
    """Raises `CheckpointError` unless `value` is a finite number greater than `above`."""
    real = isinstance(value, int | float) and not isinstance(value, bool)
    if not real or not math.isfinite(value) or value <= above:
        limit = "" if above == -math.inf else f" above {above}"
        raise CheckpointError(f"config: {name} is {value!r}, must be a finite number{limit}")


def truth(name: str, value: Any) -> None:
    """Raises `CheckpointError` unless `value` is true or false."""
    if not isinstance(value, bool):
        raise CheckpointError(f"config: {name} is {value!r}, must be true or false")


def one_of(name: str, value: Any, known: tuple[str, ...]) -> None:
    """Raises `CheckpointError` unless `value` is among the known words."""
    if value not in known:
        raise CheckpointError(f"config: {name} {value!r} is not one of {', '.join(known)}")
