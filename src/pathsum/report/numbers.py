"""How numbers are written: the same in the summary and on the page. Undefined is –."""

from math import isfinite

UNDEFINED = "–"
MINUS = "−"


def fixed(value: float | int | None, digits: int = 2) -> str:
    """`0.87`; a true minus sign."""
    if value is None or not isfinite(value):
        return UNDEFINED
    text = f"{value:,.{digits}f}"
    return text.removeprefix("-") if float(text.replace(",", "")) == 0 else text.replace("-", MINUS)


def signed(value: float | int | None, digits: int = 3) -> str:
    """`+0.066`, `−0.031`."""
    text = fixed(value, digits)
    return text if text == UNDEFINED or text.startswith(MINUS) else f"+{text}"


def small(value: float | int | None) -> str:
    """`3e-07`: one digit and its power; 0 as it is."""
    if value is None or not isfinite(value):
        return UNDEFINED
    return "0" if value == 0 else f"{value:.0e}"


def significant(value: float | int | None, digits: int = 4) -> str:
    """As many digits as tell something: `1,234`, `0.06612`, `3.1e-07`."""
    if value is None or not isfinite(value):
        return UNDEFINED
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{value:,.0f}".replace("-", MINUS)
    return f"{value:.{digits}g}".replace("-", MINUS, 1) if value < 0 else f"{value:.{digits}g}"


def count(value: float | int) -> str:
    """`4,096`; from 10¹⁵ on `1e+30`, as far as a float tells it."""
    return f"{value:,.0f}" if abs(value) < 1e15 else f"{value:.4g}"


def in_millions(value: float | int) -> str:
    """`4.7 million`, or `83,968`."""
    return count(value) if value < 1e6 else f"{value / 1e6:,.1f} million"
