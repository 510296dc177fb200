"""Rotary positions as a GGUF describes them: base, dimensions, factors per pair, linear and YaRN scaling."""

import math

import torch
from torch import Tensor

from pathsum.errors import CheckpointError, UnsupportedFamily
from pathsum.weights.checks import number
from pathsum.weights.gguf.keys import Keys
from pathsum.weights.positions import Rotary

LONG, SHORT, FREQS = "rope_factors_long.weight", "rope_factors_short.weight", "rope_freqs.weight"


def plain_rotary(keys: Keys, d_head: int, base_key: str = "rope.freq_base", base: float | int = 10_000.0) -> Rotary:
    """Unscaled: `f_i = base^(-2i/d_rotary)`."""
    found = keys.number(base_key, base)
    if not found > 0:
        raise CheckpointError(f"{base_key} is {found}; its powers are frequencies, so it must be above 0")
    return Rotary(_d_rotary(keys, d_head), found)


def scaled_rotary(keys: Keys, d_head: int, factors: Tensor | None = None, truncate: bool = True) -> Rotary:
    """With the file's scaling; `factors` divide the frequencies one by one, before it.

    Linear: `f_i / factor`. YaRN (Peng et al. 2023, section 3.4): `f_i` where a pair turns more than `beta_fast` times
    in the original context, `f_i / factor` where less than `beta_slow` times, and a ramp over the index between.
    """
    plain = plain_rotary(keys, d_head)
    kind = keys.text("rope.scaling.type", "linear")
    factor = keys.number("rope.scaling.factor", keys.number("rope.scale_linear", 0)) or 1
    magnitude = keys.number("rope.scaling.attn_factor", 1)
    frequencies = plain.base ** (-torch.arange(0, plain.d_rotary, 2, dtype=torch.float64) / plain.d_rotary)
    if factors is not None:
        frequencies = frequencies / factors.double()
    if kind == "linear":
        frequencies = frequencies / factor
    elif kind == "yarn":
        number("rope.scaling.factor", factor, above=0)
        magnitude *= keys.number("rope.scaling.yarn_attn_factor", 1 + 0.1 * math.log(factor) if factor > 1 else 1)
        share = _extrapolated(keys, plain, truncate)
        frequencies = frequencies * share + frequencies / factor * (1 - share)
    elif kind not in ("none", "longrope"):
        raise UnsupportedFamily(f"metadata key {keys.architecture}.rope.scaling.type = {kind!r} is not known here")
    if factors is None and magnitude == 1 and (factor == 1 or kind in ("none", "longrope")):
        return plain
    return Rotary(plain.d_rotary, plain.base, frequencies=tuple(frequencies.tolist()), magnitude=magnitude)


def _d_rotary(keys: Keys, d_head: int) -> int:
    d_rotary = keys.whole("rope.dimension_count", d_head, least=2)
    if d_rotary > d_head or d_rotary % 2:
        raise CheckpointError(f"metadata key {keys.architecture}.rope.dimension_count is {d_rotary}, d_head {d_head}")
    return d_rotary


def _extrapolated(keys: Keys, plain: Rotary, truncate: bool) -> Tensor:
    """Which share of each pair's frequency stays unscaled."""
    context = keys.whole("rope.scaling.original_context_length", keys.whole("context_length"))
    if plain.base <= 1:
        raise CheckpointError(
            f"metadata key {keys.architecture}.rope.freq_base is {plain.base}; YaRN needs one above 1"
        )

    def index(turns: float | int) -> float:
        """The pair (not rounded) that makes so many turns in the original context."""
        number("rope.scaling.yarn_beta", turns, above=0)
        return plain.d_rotary * math.log(context / (turns * 2 * math.pi)) / (2 * math.log(plain.base))

    low = index(keys.number("rope.scaling.yarn_beta_fast", 32))
    high = index(keys.number("rope.scaling.yarn_beta_slow", 1))
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, plain.d_rotary - 1)
    pairs = torch.arange(plain.d_rotary // 2, dtype=torch.float64)
    return 1 - ((pairs - low) / max(high - low, 0.001)).clamp(0, 1)
