"""Facts of each layer's attention, one function for each way an architecture has of stating them."""

import math
from dataclasses import replace

from torch import Tensor

from pathsum.errors import CheckpointError, UnsupportedFamily
from pathsum.weights.gguf.rotary import FREQS, LONG, SHORT, plain_rotary, scaled_rotary
from pathsum.weights.gguf.source import Source, check
from pathsum.weights.positions import Alibi, Positions, Rotary
from pathsum.weights.spec import Attention

ALIBI_BIAS = 8.0
"""BLOOM's largest slope exponent; its files do not say it."""


def without_positions(source: Source) -> tuple[Attention, ...]:
    return _every(source, None)


def rotary(source: Source) -> tuple[Attention, ...]:
    """Every layer rotates alike, with the file's scaling."""
    return _every(source, scaled_rotary(source.keys, source.sizes.d_head))


def llama_rotary(source: Source) -> tuple[Attention, ...]:
    """With the factors of Llama 3.1, which lie in a tensor. Only where the whole head turns can rows be unpermuted."""
    turned = scaled_rotary(source.keys, source.sizes.d_head, _factors(source, FREQS))
    if turned.d_rotary != source.sizes.d_head:
        raise CheckpointError(f"rope.dimension_count is {turned.d_rotary}, must be d_head {source.sizes.d_head} here")
    if source.keys.raw("rope.scaling.type") == "longrope":
        raise UnsupportedFamily(f"{source.keys.architecture}.rope.scaling.type = 'longrope' is not known here")
    return _every(source, turned)


def granite(source: Source) -> tuple[Attention, ...]:
    """`attention.scale` is the score's scale; `rope.scaling.finetuned` false means no positions at all."""
    layers = llama_rotary(source)
    scale = source.keys.number("attention.scale", 0) or source.sizes.d_head**-0.5
    positions = layers[0].positions if source.keys.flag("rope.scaling.finetuned", True) else None
    return tuple(replace(layer, score_scale=scale, positions=positions) for layer in layers)


def smollm3(source: Source) -> tuple[Attention, ...]:
    """Every fourth layer has no positions."""
    layers = llama_rotary(source)
    return tuple(replace(one, positions=None) if index % 4 == 3 else one for index, one in enumerate(layers))


def phi3(source: Source) -> tuple[Attention, ...]:
    """LongRoPE's factors for texts up to the original context, which is then the model's (`phi3_context`)."""
    turned = scaled_rotary(source.keys, source.sizes.d_head, _factors(source, SHORT))
    window = source.keys.whole("attention.sliding_window", 0, least=0)
    return tuple(replace(one, window=window or None) for one in _every(source, turned))


def phi3_context(source: Source) -> int:
    """Beyond the original context other factors hold for the whole text, so that no one set would be right."""
    n_ctx = source.sizes.n_ctx
    if LONG not in source.file:
        return n_ctx
    return min(n_ctx, source.keys.whole("rope.scaling.original_context_length", n_ctx))


def gemma2(source: Source) -> tuple[Attention, ...]:
    """Every second layer sees a window, the first one included; scores are capped."""
    turned = scaled_rotary(source.keys, source.sizes.d_head)
    windowed = replace(turned, base=source.keys.number("rope.freq_base_swa", turned.base))
    if turned.frequencies is not None and windowed.base != turned.base:
        raise UnsupportedFamily("gemma2.rope.freq_base_swa together with scaled frequencies is not known here")
    cap = source.keys.number("attn_logit_softcapping", 50)
    layers = _windowed(source, turned, windowed, source.keys.whole("attention.sliding_window", 4096), 2)
    return tuple(replace(one, score_scale=_gemma_scale(source, 46), score_cap=cap) for one in layers)


def gemma3(source: Source) -> tuple[Attention, ...]:
    """Five layers in six see a window and rotate with a base of their own, unscaled."""
    full = scaled_rotary(source.keys, source.sizes.d_head)
    windowed = plain_rotary(source.keys, source.sizes.d_head, "rope.freq_base_swa")
    layers = _windowed(source, full, windowed, source.keys.whole("attention.sliding_window", 0, least=0), 6)
    return tuple(replace(one, score_scale=_gemma_scale(source, 62)) for one in layers)


def olmo2(source: Source) -> tuple[Attention, ...]:
    """Windows (OLMo 3) where the file has them; layers with one rotate unscaled."""
    full = scaled_rotary(source.keys, source.sizes.d_head)
    windowed = plain_rotary(source.keys, source.sizes.d_head, "rope.freq_base_swa", full.base)
    return _windowed(source, full, windowed, source.keys.whole("attention.sliding_window", 0, least=0), 4)


def gpt_oss(source: Source) -> tuple[Attention, ...]:
    """Every second layer sees a window; YaRN's ramp ends are not rounded in this family, which its files do not say."""
    turned = scaled_rotary(source.keys, source.sizes.d_head, truncate=False)
    return _windowed(source, turned, turned, source.keys.whole("attention.sliding_window"), 2)


def bloom(source: Source) -> tuple[Attention, ...]:
    return _every(source, Alibi(_slopes(source.sizes.n_heads)))


def _every(source: Source, positions: Positions | None) -> tuple[Attention, ...]:
    return (Attention(positions, source.sizes.d_head**-0.5),) * source.sizes.n_layers


def _windowed(source: Source, full: Rotary, windowed: Rotary, window: int, period: int) -> tuple[Attention, ...]:
    """The last layer of every `period` sees all, the others `window`; or as a list in the file says, layer by layer."""
    sizes = source.sizes
    pattern = source.keys.raw("attention.sliding_window_pattern")
    if not isinstance(pattern, list):
        period = source.keys.whole("attention.sliding_window_pattern", period, least=0)
        pattern = [not period or layer % period < period - 1 for layer in range(sizes.n_layers)]
    if len(pattern) != sizes.n_layers or not all(isinstance(one, bool) for one in pattern):
        raise CheckpointError(f"attention.sliding_window_pattern must be {sizes.n_layers} times true or false")
    scale = sizes.d_head**-0.5
    return tuple(Attention(windowed, scale, window) if near and window else Attention(full, scale) for near in pattern)


def _gemma_scale(source: Source, layers_of_27b: int) -> float:
    """1/√d_head, but for the 27B models 1/√(d_model/n_heads); their files do not say it, only their depth does."""
    sizes = source.sizes
    return (sizes.d_model // sizes.n_heads if sizes.n_layers == layers_of_27b else sizes.d_head) ** -0.5


def _factors(source: Source, name: str) -> Tensor | None:
    if name not in source.file:
        return None
    check(source.file, name, (source.keys.whole("rope.dimension_count", source.sizes.d_head) // 2,))
    return source.file[name]


def _slopes(n_heads: int) -> tuple[float, ...]:
    """A geometric series for the largest power of two heads, then every second term of a series twice as fine."""
    power = 2 ** int(math.log2(n_heads))
    first = [2 ** (-ALIBI_BIAS * (head + 1) / power) for head in range(power)]
    second = [2 ** (-ALIBI_BIAS * (2 * head + 1) / (2 * power)) for head in range(n_heads - power)]
    return (*first, *second)
