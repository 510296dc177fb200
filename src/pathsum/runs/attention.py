"""Attention as arithmetic: from what a layer reads to its queries and keys, from these to scores and patterns.

Shapes carry any leading batch axes: what is read `[*batch, pos, d_model]`, patterns `[*batch, head, dst, src]`.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import linear

from pathsum.weights.blocks import Block, Which
from pathsum.weights.norms import Norm
from pathsum.weights.positions import Alibi, Rotary
from pathsum.weights.spec import Attention
from pathsum.weights.taps import mixed
from pathsum.weights.weights import Ends, position_vectors

EVERY = slice(None)
"""All heads of a layer."""


@dataclass(frozen=True)
class QueriesAndKeys:
    """One layer's, as they enter its scores: what makes scores and pattern, and makes them again, bit for bit.

    Patterns grow with the square of the text and these do not. `heads` asks for some of the layer's heads.
    """

    attention: Attention
    queries: Float[Tensor, "*batch head pos d_head"]
    keys: Float[Tensor, "*batch kv pos d_head"]
    sinks: Float[Tensor, " head"] | None

    def scores(self, heads: slice = EVERY) -> Float[Tensor, "*batch some dst src"]:
        """`scale · qᵀk`, with ALiBi's bias, before cap and mask."""
        keys = shared(self.keys, self.queries.shape[-3] // self.keys.shape[-3])[..., heads, :, :]
        scores = (self.queries[..., heads, :, :] * self.attention.score_scale) @ keys.mT
        where, at = self.attention.positions, self._positions
        return scores + where.bias(at, at, scores.dtype)[heads] if isinstance(where, Alibi) else scores

    def pattern(self, heads: slice = EVERY) -> Float[Tensor, "*batch some dst src"]:
        """Softmax over the sources that each destination sees, of capped scores; what a sink takes goes nowhere."""
        scores, at = self.scores(heads), self._positions
        lag = at[:, None] - at[None, :]
        hidden = lag < 0
        if self.attention.window is not None:
            hidden = hidden | (lag >= self.attention.window)
        # Added, not filled in: −∞ all the same, and a sixth faster in training.
        mask = torch.zeros(hidden.shape, dtype=scores.dtype, device=scores.device).masked_fill(hidden, -math.inf)
        masked = soft_cap(scores, self.attention.score_cap) + mask
        if self.sinks is None:
            return masked.softmax(-1)
        sink = self.sinks[heads].to(masked.dtype)[:, None, None].expand(*masked.shape[:-1], 1)
        return torch.cat([masked, sink], dim=-1).softmax(-1)[..., :-1]

    @property
    def _positions(self) -> Tensor:
        return torch.arange(self.queries.shape[-2], device=self.queries.device)


def queries_and_keys(
    block: Block, ends: Ends, read: Float[Tensor, "*batch pos d_model"]
) -> tuple[QueriesAndKeys, Float[Tensor, "*batch head pos"], Float[Tensor, "*batch kv pos"]]:
    """Queries and keys (mixed, normed, rotated) of what the layer reads, and their norms' 1/σ."""
    queries, query_scale = _projected(block, ends, read, "Q", (block.W_Q, block.b_Q, block.W_QP), block.q_norm)
    keys, key_scale = _projected(block, ends, read, "K", (block.W_K, block.b_K, block.W_KP), block.k_norm)
    return QueriesAndKeys(block.attention, queries, keys, block.sinks), query_scale, key_scale


def _projected(
    block: Block,
    ends: Ends,
    read: Tensor,
    which: Which,
    maps: tuple[Tensor, Tensor | None, Tensor | None],
    norm: Norm,
) -> tuple[Tensor, Tensor]:
    W, b, W_P = maps
    positions = torch.arange(read.shape[-2], device=read.device)
    p = position_vectors(block, ends, positions, read.dtype)
    if p is not None and W_P is None:
        read = read + p
    vectors = split_heads(linear(read, W.flatten(0, 1), None if b is None else b.flatten()), W.shape[0])
    if p is not None and W_P is not None:
        vectors = vectors + split_heads(linear(p, W_P.flatten(0, 1)), W.shape[0])
    vectors = mixed(vectors, block.taps(which))
    scale = norm.scale(vectors)
    return rotated(block, norm.apply(vectors, scale), positions), scale


def values_of(
    block: Block, read: Float[Tensor, "*any pos d_model"], b: Float[Tensor, "kv d_head"] | None = None
) -> Float[Tensor, "*any head pos d_head"]:
    """What every head moves from each position, `W_V x + b` mixed over positions; without `b`, linear in x."""
    plain = linear(read, block.W_V.flatten(0, 1), None if b is None else b.flatten())
    return per_head(block, mixed(split_heads(plain, block.W_V.shape[0]), block.taps("V")))


def one_heads_values(
    block: Block, index: int, read: Float[Tensor, "*any pos d_model"]
) -> Float[Tensor, "*any pos d_head"]:
    """The same of one head, without a bias."""
    return mixed(linear(read, block.W_V[index // block.group]), block.head(index).taps_V)


def rotated(block: Block, vectors: Tensor, positions: Tensor) -> Tensor:
    where = block.attention.positions
    return where.rotate(vectors, positions) if isinstance(where, Rotary) else vectors


def soft_cap(x: Float[Tensor, "*any"], cap: float | int | None) -> Float[Tensor, "*any"]:
    return x if cap is None else cap * torch.tanh(x / cap)


def attend(
    pattern: Float[Tensor, "*batch head dst src"], values: Float[Tensor, "*any head src d"]
) -> Float[Tensor, "*any head dst d"]:
    """`pattern @ values`; values may have more leading axes, for which a broadcast product would copy the pattern."""
    more = values.dim() - pattern.dim()
    if more <= 0:
        return pattern @ values
    beside = values.flatten(0, more - 1).movedim(0, -2).flatten(-2)
    moved = (pattern @ beside).unflatten(-1, (-1, values.shape[-1])).movedim(-2, 0)
    return moved.unflatten(0, values.shape[:more])


def split_heads(x: Float[Tensor, "*batch pos width"], n: int) -> Float[Tensor, "*batch n pos d_head"]:
    return x.unflatten(-1, (n, -1)).transpose(-3, -2)


def per_head(block: Block, x: Float[Tensor, "*batch kv pos d"]) -> Float[Tensor, "*batch head pos d"]:
    """Key/value heads repeated for the query heads that share them."""
    return shared(x, block.group)


def shared(x: Float[Tensor, "*batch kv pos d"], group: int) -> Float[Tensor, "*batch head pos d"]:
    return x if group == 1 else x.repeat_interleave(group, dim=-3)
