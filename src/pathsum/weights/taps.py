"""A head's vectors mixed over positions: a causal depthwise convolution, zero before the text.

    y_p = Σ_t c_t ⊙ x_{p−t},   taps c [width, d_head], t = 0: the position itself

Smeared keys are the case of two taps, `σ(α)` and `1 − σ(α)` in every coordinate. None stands for no mixing.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from pathsum.errors import NotApplicable

Taps = Float[Tensor, "*n width d"] | None
"""Of one head, or one set a head."""


def smearing(smear: Float[Tensor, " kv"], d_head: int) -> Float[Tensor, "kv two d_head"]:
    """The taps of smeared keys from each head's logit: `σ(α)` on the key itself, `1 − σ(α)` on the one before."""
    gates = torch.stack([smear.sigmoid(), (-smear).sigmoid()], dim=-1)
    return gates.unsqueeze(-1).expand(-1, -1, d_head)


def width(taps: Taps) -> int:
    """How many positions are mixed; 1 without taps."""
    return 1 if taps is None else taps.shape[-2]


def mixed(x: Float[Tensor, "*any pos d"], taps: Taps) -> Float[Tensor, "*any pos d"]:
    """`y_p = Σ_t c_t ⊙ x_{p−t}`."""
    if taps is None:
        return x
    return sum((shifted(x, taps, tap) for tap in range(1, width(taps))), shifted(x, taps, 0))


def shifted(x: Float[Tensor, "*any pos d"], taps: Taps, tap: int) -> Float[Tensor, "*any pos d"]:
    """The share of one tap: `c_t ⊙ x_{p−t}`."""
    if taps is None:
        return x
    tap_of = taps[..., tap, None, :].to(x.dtype)
    return later(x, tap) * tap_of


def later(x: Float[Tensor, "*any pos d"], steps: int) -> Float[Tensor, "*any pos d"]:
    """`x_{p−steps}`, zero before the text."""
    n = x.shape[-2]
    return x if not steps else pad(x[..., : max(0, n - steps), :], (0, 0, min(steps, n), 0))


def mixed_transposed(g: Float[Tensor, "*any pos d"], taps: Taps) -> Float[Tensor, "*any pos d"]:
    """The transpose of `mixed`, for covectors: `Σ_t c_t ⊙ g_{p+t}`, zero after the text."""
    if taps is None:
        return g
    n, total = g.shape[-2], torch.zeros_like(g)
    for tap in range(min(width(taps), n)):
        total = total + pad(g[..., tap:, :], (0, 0, 0, tap)) * taps[..., tap, None, :]
    return total


def through(W: Float[Tensor, "*n d last"], taps: Taps, tap: int) -> Float[Tensor, "*n d last"]:
    """`C_t W`: what a matrix says through one tap.

    Raises `NotApplicable` for a tap that is not there; without taps there is tap 0.
    """
    if not 0 <= tap < width(taps):
        raise NotApplicable(f"no tap {tap}: there {'is tap 0' if taps is None else f'are taps 0 to {width(taps) - 1}'}")
    return W if taps is None else taps[..., tap, :, None] * W
