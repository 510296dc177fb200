"""What W_QK says of positions alone, of folded weights.

1. Positions that are vectors (learned, in the residual stream or in queries and keys only; sinusoidal) give a matrix,
   ALiBi gives one without any weights: `positional_scores`, and its mean along diagonals, `lag_curve`.
2. Rotary positions have no vector: a score is a function of content and distance. Averaged over content it is one of
   the distance alone: `rotary_curve` (ours). What W_QK(Δ) does to equal tokens is its matching score: `matching_curve`.

Vectors enter with scale 1 where a norm before the layer would put 1/σ: σ depends on the text.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from pathsum.circuits.rotation import Rotation
from pathsum.circuits.spectra import embedding_gram, positivity
from pathsum.circuits.tables import key_bias, query_bias
from pathsum.errors import NotApplicable
from pathsum.weights.blocks import Block
from pathsum.weights.positions import Alibi, Rotary
from pathsum.weights.taps import mixed
from pathsum.weights.weights import Weights, position_vectors


def positional_scores(weights: Weights, layer: int, n: int) -> Float[Tensor, "head dst src"]:
    """`scale · (W_Q p_i + b_Q)ᵀ (W_K p_j)`, in score units, for the first `n` positions.

    `p` is the layer's own positions, or W_pos where that enters the residual stream. Queries and keys that are mixed
    over positions are so here, bias included, zero before the first. The bias of keys that are not mixed adds the same
    to every source and is left out. Raises `NotApplicable` where there is no such vector (rotary: `rotary_curve`).
    """
    block, ends = weights.attention(layer), weights.ends
    where = torch.arange(n)
    if isinstance(block.attention.positions, Alibi):
        return block.attention.positions.bias(where, where, ends.W_E.dtype)
    p = position_vectors(block, ends, where, ends.W_E.dtype)
    if p is None and weights.spec.learned_positions and ends.W_pos is not None:
        p = ends.W_pos[:, :n].mT
    if p is None or isinstance(block.attention.positions, Rotary):
        raise NotApplicable(f"layer {layer} has no positions of its own in queries and keys")
    W_Q = block.W_Q if block.W_QP is None else block.W_QP
    W_K = block.W_K if block.W_KP is None else block.W_KP
    queries = _plus(mixed(_plus(p @ W_Q.mT, block.b_Q), block.taps("Q")), block.q_norm.bias)
    taps, keys = block.taps("K"), p @ W_K.mT
    keys = keys if taps is None else mixed(_plus(keys, block.b_K), taps)
    return block.attention.score_scale * queries @ keys.repeat_interleave(block.group, dim=0).mT


def _plus(vectors: Float[Tensor, "n pos d_head"], bias: Tensor | None) -> Float[Tensor, "n pos d_head"]:
    """With a bias, one for all heads or one a head."""
    return vectors if bias is None else vectors + bias.expand(len(vectors), -1)[:, None]


def lag_curve(scores: Float[Tensor, "head dst src"], lags: int) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation over destinations of `score[i, i − lag]`, each `[head, lag]`."""
    diagonals = [scores.diagonal(-lag, -2, -1) for lag in range(lags)]
    return torch.stack([d.mean(-1) for d in diagonals], -1), torch.stack(
        [d.std(-1, correction=0) for d in diagonals], -1
    )


def rotary_curve(
    weights: Weights,
    layer: int,
    deltas: Float[Tensor, " delta"],
    gram: Float[Tensor, "d_model d_model"] | None = None,
) -> tuple[Float[Tensor, "head delta"], Float[Tensor, "head delta"]]:
    """Mean and standard deviation of `scale · q_aᵀ R(Δ)ᵀ k_b` over all pairs of tokens (a, b), each `[head, delta]`.

    `q_a = W_Q W_E[:, a] + b_Q`, `k_b = W_K W_E[:, b] + b_K`, every token counted once. Both are exact: the mean is
    `scale · q̄ᵀ R(Δ)ᵀ k̄` of the mean query and key, the mean square `scale² · tr(R(Δ) E[q qᵀ] R(Δ)ᵀ E[k kᵀ])`. Of
    queries and keys that are mixed over positions, what tap 0 says.
    `gram` is `embedding_gram`, if at hand. Raises `NotApplicable` for a layer that is not rotary.
    """
    block, W_E = weights.attention(layer), weights.W_E
    gram = (embedding_gram(weights) if gram is None else gram) / W_E.shape[-1]
    positions, scale, mean = _rotary(block, layer), block.attention.score_scale, W_E.double().mean(-1)
    q, QQ = _moments(block.reader("Q"), query_bias(block), mean, gram)
    k, KK = (x.repeat_interleave(block.group, dim=0) for x in _moments(block.reader("K"), key_bias(block), mean, gram))
    rotation = Rotation(positions, weights.spec.d_head)
    t = rotation.waves(deltas)
    score, square = rotation.linear(k, q) @ t.mT, ((t @ rotation.quadratic(QQ, KK)) * t).sum(-1)
    return scale * score, abs(scale) * (square - score.square()).clamp_min(0).sqrt()


def matching_curve(
    weights: Weights,
    layer: int,
    deltas: Float[Tensor, " delta"],
    gram: Float[Tensor, "d_model d_model"] | None = None,
) -> Float[Tensor, "head delta"]:
    """The matching score of `W_Eᵀ W_QK(Δ) W_E` at every distance, from the eigenvalues of `R(Δ)ᵀ W_K G W_Qᵀ`.

    `gram` is G, `embedding_gram`, if at hand. Raises `NotApplicable` for a layer that is not rotary.
    """
    block, gram = weights.attention(layer), embedding_gram(weights) if gram is None else gram
    positions = _rotary(block, layer)
    W_K = block.reader("K").double().repeat_interleave(block.group, dim=0)
    core = W_K @ gram @ block.reader("Q").double().mT
    turned = [positions.matrix(delta, weights.spec.d_head).mT @ core for delta in deltas.tolist()]
    return torch.stack([positivity(torch.linalg.eigvals(each)) for each in turned], -1)


def _rotary(block: Block, layer: int) -> Rotary:
    """Raises `NotApplicable` for a layer that is not rotary."""
    if not isinstance(block.attention.positions, Rotary):
        raise NotApplicable(f"layer {layer} is not rotary; positional_scores has what its positions say")
    return block.attention.positions


def _moments(W: Tensor, bias: Tensor | None, mean: Tensor, gram: Tensor) -> tuple[Tensor, Tensor]:
    """`E[y]` `[head, d_head]` and `E[y yᵀ]` `[head, d_head, d_head]` of `y = W e + b`, from `E[e]` and `E[e eᵀ]`."""
    W = W.double()
    b = torch.zeros(W.shape[:2], dtype=torch.float64) if bias is None else bias.double()
    content, outer = W @ mean, lambda x, y: x[..., :, None] * y[..., None, :]
    crossed = outer(content, b)
    return content + b, W @ gram @ W.mT + crossed + crossed.mT + outer(b, b)
