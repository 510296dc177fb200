"""Pointer arithmetic: a head reads the position that an earlier head wrote, and looks one step after it.

1. An earlier head moves a position vector w_p = W_pos[:, p] to its destination; a later head's query is made from it
   (Q-composition). What it then says of a source at k is `T[p, k] = scale · (W_OV^{h1} w_p)ᵀ W_QK^{h2} w_k`.
2. T is centred twice (ours): within each row, which the softmax ignores, and within each column, for what does not
   depend on p points nowhere.
3. A pair does pointer arithmetic when the mass of T lies on k = p + 1.

Position vectors enter with scale 1 in place of 1/σ; weights are folded.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from pathsum.circuits.tables import layer_OV, layer_QK
from pathsum.errors import NotApplicable
from pathsum.lowrank import LowRank
from pathsum.weights.weights import Weights

REACH = 8
"""Offsets compared: −8 … 8."""
ROUNDING = 1e-12
"""A centred table this small beside the table itself is rounding."""


@dataclass(frozen=True)
class Pointers:
    """How one later head points by what each earlier head wrote; NaN (offset 0) where the pair says nothing."""

    share_next: Float[Tensor, " writer"]
    """Share of positions p whose one strongest source is p + 1."""
    next: Float[Tensor, " writer"]
    """Mean of `T[p, p + 1]` less the mean of all other entries, in score units."""
    contrast: Float[Tensor, " writer"]
    """The same in standard deviations of T's entries."""
    offset: Int[Tensor, " writer"]
    """k − p, from −8 to 8, at which T's diagonal has the largest mean."""


def pointer_circuit(weights: Weights, later: int, earlier: int, n: int) -> LowRank:
    """`scale · (W_OV^{h1} w_p)ᵀ W_QK^{h2} w_k` for the first n positions, `[reader, writer, p, k]`.

    Raises `NotApplicable` where no learned positions enter the residual stream.
    """
    W_pos = weights.ends.W_pos
    if W_pos is None or not weights.spec.learned_positions:
        raise NotApplicable("pointer arithmetic is of learned positions in the residual stream; this model has none")
    if later <= earlier:
        raise NotApplicable(f"layer {later} does not read layer {earlier}: composition needs an earlier writer")
    w = W_pos[:, :n]
    moved, read = (layer_OV(weights, earlier) @ w).T, layer_QK(weights, later) @ w
    return (moved[None] @ read[:, None]) * weights.spec.layers[later].score_scale


def pointers(circuit: LowRank) -> Pointers:
    """What the tables `[writer, p, k]` of one later head say of offsets; memory is those tables."""
    table = circuit.dense()
    size = table.square().mean((-1, -2)).sqrt()
    table = table - table.mean(-1, keepdim=True)
    table = table - table.mean(-2, keepdim=True)
    n, spread = table.shape[-1], table.square().mean((-1, -2)).sqrt()
    after = table.diagonal(1, -2, -1)
    others = (table.sum((-1, -2)) - after.sum(-1)) / (n * n - (n - 1))
    largest = (table[..., :-1, :] >= after[..., None]).sum(-1) == 1
    speaks = spread > ROUNDING * size
    known = lambda x: x.where(speaks, torch.nan)
    gap = after.mean(-1) - others
    reach = range(-min(REACH, n - 1), min(REACH, n - 1) + 1)
    means = torch.stack([table.diagonal(offset, -2, -1).mean(-1) for offset in reach], -1)
    offset = (means.argmax(-1) + reach.start).where(speaks, 0)
    return Pointers(known(largest.to(table.dtype).mean(-1)), known(gap), known(gap / spread), offset)
