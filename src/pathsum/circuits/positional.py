"""What W_QK says of positions alone (framework §4), where positions are added to queries and keys or are ALiBi."""

import torch
from jaxtyping import Float
from torch import Tensor

from pathsum.errors import NotApplicable
from pathsum.weights.positions import Alibi
from pathsum.weights.weights import Weights, position_vectors


def positional_scores(weights: Weights, layer: int, n: int) -> Float[Tensor, "head dst src"]:
    """`scale · (W_Q p_i + b_Q)ᵀ (W_K p_j)`, in score units, for the first `n` positions.

    Raises `NotApplicable` for a layer to which this does not apply (rotary: a function of content and Δ, not of
    positions alone).
    """
    block, ends = weights.block(layer), weights.ends
    where = torch.arange(n)
    p = position_vectors(block, ends, where, ends.W_E.dtype)
    if isinstance(block.attention.positions, Alibi):
        return block.attention.positions.bias(where, where, weights.W_E.dtype)
    if p is None:
        raise NotApplicable(f"layer {layer} has no positions of its own in queries and keys")
    W_Q = block.W_Q if block.W_QP is None else block.W_QP
    W_K = block.W_K if block.W_KP is None else block.W_KP
    queries = p @ W_Q.mT if block.b_Q is None else p @ W_Q.mT + block.b_Q[:, None, :]
    keys = (p @ W_K.mT).repeat_interleave(block.group, dim=0)
    return block.attention.score_scale * queries @ keys.mT


def lag_curve(scores: Float[Tensor, "head dst src"], lags: int) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation over destinations of `score[i, i − lag]`, each `[head, lag]`."""
    diagonals = [scores.diagonal(-lag, -2, -1) for lag in range(lags)]
    return torch.stack([d.mean(-1) for d in diagonals], -1), torch.stack(
        [d.std(-1, correction=0) for d in diagonals], -1
    )
