"""The one forward pass: it trains, records and replays.

1. `forward(weights, tokens)` is the model, differentiable, and keeps nothing.
2. With `record=True` it also returns what a frozen run needs: patterns, norm scales, MLP outputs (`Frozen`), and the
   scores unless `scores=False`.
3. With `frozen=` it replays: patterns, scales and MLP outputs are taken from there, so the pass is affine in what
   remains. `without=` leaves heads out, frozen or live, one set or several at once; `begin=` starts in the middle.

Shapes carry any leading batch axes: tokens `[*batch, pos]`, patterns `[*batch, head, dst, src]`.
"""

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import linear

from pathsum.errors import TextError
from pathsum.weights.blocks import Block
from pathsum.weights.norms import Norm
from pathsum.weights.positions import Alibi, Rotary
from pathsum.weights.weights import Ends, Weights, position_vectors

HeadIndex = tuple[int, int]


@dataclass(frozen=True)
class FrozenLayer:
    """What one layer did that is not linear. Scales are 1/σ, one a position; ones where there is no such norm."""

    pattern: Float[Tensor, "*batch head dst src"]
    attention_scale: Float[Tensor, "*batch pos"]
    post_attention_scale: Float[Tensor, "*batch pos"]
    scores: Float[Tensor, "*batch head dst src"] | None
    """Before cap and mask, so that their expansion can be checked; None where a run was told not to keep them."""
    query_scale: Float[Tensor, "*batch head pos"]
    key_scale: Float[Tensor, "*batch kv pos"]
    mlp: Float[Tensor, "*batch pos d_model"] | None = None
    """What the MLP added to the residual stream."""


@dataclass(frozen=True)
class Frozen:
    """A recorded run's patterns, norm scales and MLP outputs: given them the model is linear in its sources."""

    layers: tuple[FrozenLayer, ...]
    final_scale: Float[Tensor, "*batch pos"]


@dataclass(frozen=True)
class Pass:
    """Result of a forward pass: the residual stream after the last layer, and what was recorded."""

    residual: Float[Tensor, "*batch pos d_model"]
    final_scale: Float[Tensor, "*batch pos"]
    layers: tuple[FrozenLayer, ...] = ()
    residuals: tuple[Float[Tensor, "*batch pos d_model"], ...] = ()
    """Before every layer, when recorded."""

    @property
    def frozen(self) -> Frozen:
        return Frozen(self.layers, self.final_scale)


def forward(
    weights: Weights,
    tokens: Int[Tensor, "*batch pos"],
    *,
    record: bool = False,
    scores: bool = True,
    frozen: Frozen | None = None,
    without: Set[HeadIndex] | Sequence[Set[HeadIndex]] = frozenset(),
    begin: tuple[int, Float[Tensor, "*batch pos d_model"]] | None = None,
) -> Pass:
    """Residual stream after the last layer; `logits(ends, pass.residual, pass.final_scale)` finishes it.

    `begin=(layer, residual)` starts before that layer with that residual stream instead of with the embedding.
    With several sets in `without` the result has one more leading axis: a pass for each set, all at once.

    Raises `TextError` for tokens outside the vocabulary or a text longer than the context.
    """
    _check(weights, tokens)
    ends = weights.ends
    positions = torch.arange(tokens.shape[-1], device=tokens.device)
    first, x = (0, embed(weights, ends, tokens)) if begin is None else begin
    x = x if isinstance(without, Set) else x.expand(len(without), *x.shape)
    layers: list[FrozenLayer] = []
    residuals: list[Tensor] = []
    for layer in range(first, weights.spec.n_layers):
        block = weights.block(layer)
        seen = None if frozen is None else frozen.layers[layer]
        residuals += [x] if record else []
        kept = _kept(block, without, tokens.dim() - 1, x)
        out, trace = _attention(block, ends, x, positions, seen, kept)
        mlp_out = _mlp(block, x if weights.spec.parallel else x + out, seen)
        x = x + out if mlp_out is None else x + out + mlp_out
        layers += [replace(trace, mlp=mlp_out, scores=trace.scores if scores else None)] if record else []
    final_scale = ends.final_norm.scale(x) if frozen is None else frozen.final_scale.expand(x.shape[:-1])
    return Pass(x, final_scale, tuple(layers), tuple(residuals))


def embed(weights: Weights, ends: Ends, tokens: Int[Tensor, "*batch pos"]) -> Float[Tensor, "*batch pos d_model"]:
    """Token embedding, plus learned positions where they enter the residual stream."""
    x = torch.nn.functional.embedding(tokens, ends.W_E.mT)
    if weights.spec.learned_positions and ends.W_pos is not None:
        x = x + ends.W_pos[:, : tokens.shape[-1]].mT
    return x


def logits(
    ends: Ends, residual: Float[Tensor, "*batch pos d_model"], scale: Float[Tensor, "*batch pos"]
) -> Float[Tensor, "*batch pos d_vocab"]:
    """Logits before any soft-cap: `W_U norm(x) + b_U`."""
    return linear(ends.final_norm.apply(residual, scale), ends.W_U, ends.b_U)


def soft_cap(x: Float[Tensor, "*any"], cap: float | int | None) -> Float[Tensor, "*any"]:
    return x if cap is None else cap * torch.tanh(x / cap)


# ---- attention ----


def _attention(
    block: Block, ends: Ends, x: Tensor, positions: Tensor, seen: FrozenLayer | None, kept: Tensor | None
) -> tuple[Tensor, FrozenLayer]:
    """What attention adds to the stream, and what it took (live, or from `seen`) to be linear."""
    norm, post = block.attention_norm, block.post_attention_norm
    scale = norm.scale(x) if seen is None else seen.attention_scale.expand(x.shape[:-1])
    read = norm.apply(x, scale)
    if seen is not None:
        out = _moved(block, read, seen.pattern, kept)
        return post.apply(out, seen.post_attention_scale.expand(x.shape[:-1])), seen
    queries, query_scale = queries_of(block, ends, read, positions)
    keys, key_scale = keys_of(block, ends, read, positions)
    scores = _scores(block, queries, keys, positions)
    pattern = _softmax(block, scores, positions)
    out = _moved(block, read, pattern, kept)
    post_scale = post.scale(out)
    return post.apply(out, post_scale), FrozenLayer(pattern, scale, post_scale, scores, query_scale, key_scale)


def queries_of(
    block: Block, ends: Ends, read: Tensor, positions: Tensor
) -> tuple[Float[Tensor, "*batch head pos d_head"], Float[Tensor, "*batch head pos"]]:
    """Queries as they enter the scores (normed, rotated), and the query norm's 1/σ."""
    return _projected(block, ends, read, positions, (block.W_Q, block.b_Q, block.W_QP), block.q_norm)


def keys_of(
    block: Block, ends: Ends, read: Tensor, positions: Tensor
) -> tuple[Float[Tensor, "*batch kv pos d_head"], Float[Tensor, "*batch kv pos"]]:
    """Keys as they enter the scores, one a key/value head, and the key norm's 1/σ."""
    return _projected(block, ends, read, positions, (block.W_K, block.b_K, block.W_KP), block.k_norm)


def _projected(
    block: Block,
    ends: Ends,
    read: Tensor,
    positions: Tensor,
    maps: tuple[Tensor, Tensor | None, Tensor | None],
    norm: Norm,
) -> tuple[Tensor, Tensor]:
    W, b, W_P = maps
    p = position_vectors(block, ends, positions, read.dtype)
    if p is not None and W_P is None:
        read = read + p
    vectors = split_heads(linear(read, W.flatten(0, 1), None if b is None else b.flatten()), W.shape[0])
    if p is not None and W_P is not None:
        vectors = vectors + split_heads(linear(p, W_P.flatten(0, 1)), W.shape[0])
    scale = norm.scale(vectors)
    return rotated(block, norm.apply(vectors, scale), positions), scale


def rotated(block: Block, vectors: Tensor, positions: Tensor) -> Tensor:
    where = block.attention.positions
    return where.rotate(vectors, positions) if isinstance(where, Rotary) else vectors


def _scores(block: Block, queries: Tensor, keys: Tensor, positions: Tensor) -> Tensor:
    scores = (queries * block.attention.score_scale) @ per_head(block, keys).mT
    where = block.attention.positions
    return scores + where.bias(positions, positions, scores.dtype) if isinstance(where, Alibi) else scores


def _softmax(block: Block, scores: Tensor, positions: Tensor) -> Tensor:
    lag = positions[:, None] - positions[None, :]
    hidden = lag < 0
    if block.attention.window is not None:
        hidden = hidden | (lag >= block.attention.window)
    # Added, not filled in: −∞ all the same, and a sixth faster in training.
    mask = torch.zeros(hidden.shape, dtype=scores.dtype, device=scores.device).masked_fill(hidden, -math.inf)
    masked = soft_cap(scores, block.attention.score_cap) + mask
    if block.sinks is None:
        return masked.softmax(-1)
    sink = block.sinks.to(masked.dtype)[:, None, None].expand(*masked.shape[:-1], 1)
    return torch.cat([masked, sink], dim=-1).softmax(-1)[..., :-1]


def _moved(block: Block, read: Tensor, pattern: Tensor, kept: Tensor | None) -> Tensor:
    """Sum of the heads, `Σ_h (A_h ⊗ W_O^h)(W_V^h x + b_V)`, plus b_O: concatenate and project."""
    n_kv = block.W_V.shape[0]
    b_V = None if block.b_V is None else block.b_V.flatten()
    values = per_head(block, split_heads(linear(read, block.W_V.flatten(0, 1), b_V), n_kv))
    mixed = attend(pattern.to(values.dtype), values)
    mixed = mixed if kept is None else mixed * kept
    W_O = block.W_O.transpose(0, 1).flatten(1)
    return linear(mixed.transpose(-3, -2).flatten(-2), W_O, block.b_O)


def _kept(block: Block, without: Set[HeadIndex] | Sequence[Set[HeadIndex]], batch: int, x: Tensor) -> Tensor | None:
    """0 for the heads to leave out, 1 for the others, as it multiplies `[*batch, head, pos, d_head]`; None for all."""
    sets = [without] if isinstance(without, Set) else without
    out = [[head for layer, head in heads if layer == block.layer] for heads in sets]
    if not any(out):
        return None
    kept = x.new_ones(len(sets), *[1] * batch, block.n_heads, 1, 1)
    for index, heads in enumerate(out):
        kept[index, ..., heads, :, :] = 0
    return kept[0] if isinstance(without, Set) else kept


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
    return x if block.group == 1 else x.repeat_interleave(block.group, dim=-3)


def _mlp(block: Block, x: Tensor, seen: FrozenLayer | None) -> Tensor | None:
    if block.mlp is None:
        return None
    if seen is not None and seen.mlp is not None:
        return seen.mlp
    out = block.mlp.apply(block.mlp_norm.apply(x, block.mlp_norm.scale(x)))
    return block.post_mlp_norm.apply(out, block.post_mlp_norm.scale(out))


def _check(weights: Weights, tokens: Tensor) -> None:
    spec = weights.spec
    if tokens.shape[-1] > spec.n_ctx:
        raise TextError(
            f"the text has {tokens.shape[-1]} tokens, the model's context is {spec.n_ctx}; shorten it to that"
        )
    if tokens.numel() and not 0 <= int(tokens.min()) <= int(tokens.max()) < spec.d_vocab:
        raise TextError(
            f"token ids must be from 0 to {spec.d_vocab - 1}, got {int(tokens.min())} to {int(tokens.max())}"
        )
