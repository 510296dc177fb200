"""Means over seeds with their intervals, and when a series changed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

T_975 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""Student's t of 1 to 30 degrees of freedom, 97.5 %; of more, the normal's 1.960 is used."""


@dataclass(frozen=True)
class Estimate:
    """A mean over models that differ in their seed alone."""

    mean: float
    low: float | None
    """Ends of the 95 % interval of the mean; None for a single model."""
    high: float | None
    count: int

    @property
    def least(self) -> float:
        """The interval's lower end, or of a single model its value."""
        return self.mean if self.low is None else self.low

    @property
    def most(self) -> float:
        """The interval's upper end, or of a single model its value."""
        return self.mean if self.high is None else self.high


def estimate(values: Sequence[float | int]) -> Estimate | None:
    """Mean and `mean ± t s/√n` over seeds; None where there are no values."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known:
        return None
    n, mean = len(known), math.fsum(known) / len(known)
    if n == 1:
        return Estimate(mean, None, None, 1)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in known) / (n - 1))
    half = (T_975[n - 2] if n <= len(T_975) + 1 else 1.960) * spread / math.sqrt(n)
    return Estimate(mean, mean - half, mean + half, n)


def share(values: Sequence[float | int]) -> Estimate | None:
    """The share of seeds of which something is so (values 1 and 0), with Wilson's interval, which stays in [0, 1].

    `(p + z²/2n ± z √(p (1 − p)/n + z²/4n²)) / (1 + z²/n)`, z = 1.960. None where there are no values.
    """
    known = [value for value in values if value is not None and math.isfinite(value)]
    if len(known) < 2:
        return estimate(known)
    n, p, z = len(known), math.fsum(known) / len(known), 1.959964
    middle, wide = p + z**2 / (2 * n), z * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    low, high = ((middle + side * wide) / (1 + z**2 / n) for side in (-1, 1))
    # Rounding must not leave p outside.
    return Estimate(p, max(min(low, p), 0.0), min(max(high, p), 1.0), n)


def change_point(tokens: Sequence[float | int], values: Sequence[float | int], least: float) -> float | None:
    """Where a series comes halfway from its first to its last value for good, in log₂ of tokens seen.

    The last crossing, interpolated in log tokens: noise before does not count. None where the whole change is smaller
    than `least`, so that there is nothing to place.

    >>> change_point([1, 2, 4, 8], [0.0, 0.0, 1.0, 1.0], 0.1)
    1.5
    """
    first, last = values[0], values[-1]
    if len(values) < 3 or not abs(last - first) >= least:
        return None
    share = [(value - first) / (last - first) for value in values]
    at = max(index for index, part in enumerate(share) if part < 0.5)
    before, after = (math.log2(tokens[index]) for index in (at, at + 1))
    return before + (0.5 - share[at]) / (share[at + 1] - share[at]) * (after - before)
