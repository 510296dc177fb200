"""The circuits over tokens: thin products from vocabulary to vocabulary, never formed (framework §4).

All are of folded weights: `fold()` first, so that the gains and centring of norms are in them.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from pathsum.lowrank import LowRank
from pathsum.weights.weights import Weights


def direct_path(weights: Weights) -> LowRank:
    """`W_U W_E` `[d_vocab, d_vocab]` of rank ≤ d_model: the bigram table; column = the token seen."""
    ends = weights.ends
    return LowRank(ends.W_U, ends.W_E)


def qk_circuit(weights: Weights, layer: int, delta: float | int | None = None) -> LowRank:
    """`W_Eᵀ W_QK W_E` of a layer's heads, `[head, d_vocab, d_vocab]`: destination (row) attends to source (column).

    Raises `NotApplicable` for a rotary layer without `delta`.
    """
    W_E = weights.W_E
    return W_E.mT @ layer_QK(weights, layer, delta) @ W_E


def ov_circuit(weights: Weights, layer: int) -> LowRank:
    """`W_U W_OV W_E` of a layer's heads, `[head, d_vocab, d_vocab]`: what attending to a source (column) writes."""
    ends = weights.ends
    return ends.W_U @ layer_OV(weights, layer) @ ends.W_E


def layer_OV(weights: Weights, layer: int) -> LowRank:
    """`W_OV = W_O W_V` of every head of a layer, `[head, d_model, d_model]`."""
    return _stacked([head.OV for head in weights.attention(layer).heads])


def layer_QK(weights: Weights, layer: int, delta: float | int | None = None) -> LowRank:
    """`W_QK(Δ)` of every head of a layer, `[head, d_model, d_model]`."""
    return _stacked([head.QK(delta) for head in weights.attention(layer).heads])


def _stacked(matrices: list[LowRank]) -> LowRank:
    lefts: list[Float[Tensor, "m r"]] = [matrix.left for matrix in matrices]
    return LowRank(torch.stack(lefts), torch.stack([matrix.right for matrix in matrices]))
