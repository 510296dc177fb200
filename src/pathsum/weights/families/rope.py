"""Rotary frequencies from a config, under all the names and scalings that checkpoints use.

Older configs write `rope_theta`, `partial_rotary_factor` and `rope_scaling`; newer ones `rope_parameters`, which may
hold one object a layer type.
"""

import math

from pathsum.errors import CheckpointError
from pathsum.weights.families.config import Config
from pathsum.weights.positions import Rotary


def rotary(config: Config, d_head: int, layer_type: str | None = None, interleaved: bool = False) -> Rotary:
    """How the layers (of `layer_type`, where they differ) rotate queries and keys of `d_head` coordinates."""
    parameters = rope_parameters(config, layer_type)
    base = parameters.number("rope_theta", default=None)
    base = config.number("rope_theta", "rotary_emb_base", default=10_000.0) if base is None else base
    share = parameters.number("partial_rotary_factor", default=None)
    share = config.number("partial_rotary_factor", "rotary_pct", default=1.0) if share is None else share
    d_rotary = int(d_head * share) if 0 < share <= 1 else 0
    if d_rotary == 0 or d_rotary % 2:
        raise CheckpointError(
            f"config: partial_rotary_factor {share} of d_head {d_head} (hidden_size / num_attention_heads, or head_dim)"
            " is no even number of coordinates from 2 to d_head; they turn in pairs"
        )
    kind = rope_kind(parameters)
    if not base > 0:
        raise CheckpointError(f"config: rope_theta is {base}; its powers are frequencies, so it must be above 0")
    try:
        frequencies = [base ** (-2 * i / d_rotary) for i in range(d_rotary // 2)]
        scaled, magnitude = _SCALINGS[kind](frequencies, parameters, config, base)
    except (ArithmeticError, ValueError, TypeError) as error:
        raise CheckpointError(
            f"config: rope_theta {base} with the {kind} scaling {parameters.plain} gives no frequencies: {error}"
        ) from error
    return Rotary(d_rotary, base, interleaved, None if scaled is None else tuple(scaled), magnitude)


def rope_parameters(config: Config, layer_type: str | None = None) -> Config:
    """The config's object of rotary parameters, of one layer type where there are several."""
    config.get("rope_parameters", "rope_scaling", default=None)  # an error where both are there and disagree
    found = config.part("rope_parameters") if config.plain.get("rope_parameters") else config.part("rope_scaling")
    return found.part(layer_type) if layer_type is not None and layer_type in found.plain else found


def rope_kind(parameters: Config) -> str:
    kind = parameters.get("rope_type", "type", default="default")
    if not isinstance(kind, str) or kind not in _SCALINGS:
        raise CheckpointError(f"config: rope_type {kind!r} is not one of {', '.join(_SCALINGS)}")
    return kind


def rope_context(config: Config, n_ctx: int) -> int:
    """The longest context with one set of frequencies: longrope has others beyond the original one."""
    parameters = rope_parameters(config)
    return min(n_ctx, _original(parameters, config)) if rope_kind(parameters) in ("longrope", "su") else n_ctx


def _original(parameters: Config, config: Config) -> int:
    outside = config.whole("original_max_position_embeddings", default=None)
    inside = parameters.whole("original_max_position_embeddings", default=None)
    return outside or inside or config.whole("max_position_embeddings", "n_positions")


Scaled = tuple[list[float] | None, float | int]


def _default(frequencies: list[float], parameters: Config, config: Config, base: float | int) -> Scaled:
    """Also "dynamic", whose frequencies change only beyond `max_position_embeddings`, where no text is read."""
    return None, 1.0


def _linear(frequencies: list[float], parameters: Config, config: Config, base: float | int) -> Scaled:
    factor = parameters.number("factor")
    return [f / factor for f in frequencies], 1.0


def _llama3(frequencies: list[float], parameters: Config, config: Config, base: float | int) -> Scaled:
    """Low frequencies divided, high ones kept, those between interpolated."""
    factor, original = parameters.number("factor"), _original(parameters, config)
    low, high = parameters.number("low_freq_factor"), parameters.number("high_freq_factor")

    def scaled(f: float) -> float:
        turns = original * f / (2 * math.pi)
        if turns < low:
            return f / factor
        kept = 1.0 if turns > high else (turns - low) / (high - low)
        return (1 - kept) * f / factor + kept * f

    return [scaled(f) for f in frequencies], 1.0


def _yarn(frequencies: list[float], parameters: Config, config: Config, base: float | int) -> Scaled:
    """Divided below a ramp over the pairs, kept above it; vectors lengthened by a function of the factor."""
    original = _original(parameters, config)
    factor = parameters.number("factor", default=None) or config.whole("max_position_embeddings") / original
    n = 2 * len(frequencies)

    def pair_turning(turns: float | int) -> float:
        return n * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))

    low = pair_turning(parameters.number("beta_fast", default=32.0) or 32.0)
    high = pair_turning(parameters.number("beta_slow", default=1.0) or 1.0)
    if parameters.truth("truncate", default=True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, n - 1)
    high += 0.001 if low == high else 0
    divided = [min(max((i - low) / (high - low), 0.0), 1.0) for i in range(len(frequencies))]
    scaled = [f / factor * d + f * (1 - d) for f, d in zip(frequencies, divided, strict=True)]
    return scaled, _yarn_magnitude(parameters, factor)


def _yarn_magnitude(parameters: Config, factor: float | int) -> float | int:
    given = parameters.number("attention_factor", default=None)
    if given is not None:
        return given
    lengthened = lambda mscale: 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0
    mscale, over = parameters.number("mscale", default=None), parameters.number("mscale_all_dim", default=None)
    return lengthened(mscale) / lengthened(over) if mscale and over else lengthened(1.0)


def _longrope(frequencies: list[float], parameters: Config, config: Config, base: float | int) -> Scaled:
    """One divisor a pair (the short ones: `rope_context` keeps to the original context)."""
    divisors = parameters.get("short_factor")
    if not isinstance(divisors, list) or len(divisors) != len(frequencies):
        raise CheckpointError(f"config: rope short_factor must be a list of {len(frequencies)} numbers, one a pair")
    original = _original(parameters, config)
    factor = parameters.number("factor", default=None) or config.whole("max_position_embeddings") / original
    magnitude = parameters.number("attention_factor", default=None)
    if magnitude is None:
        magnitude = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    return [f / d for f, d in zip(frequencies, divisors, strict=True)], magnitude


_SCALINGS = {
    "default": _default, "dynamic": _default, "linear": _linear, "llama3": _llama3, "yarn": _yarn,
    "longrope": _longrope, "su": _longrope,
}  # fmt: skip
