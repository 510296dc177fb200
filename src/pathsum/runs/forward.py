"""The one forward pass: it trains, records and replays.

1. `forward(weights, tokens)` is the model, differentiable, and keeps nothing.
2. With `record=True` it also returns what a frozen run needs: patterns, norm scales, MLP outputs (`Frozen`). Scores,
   and patterns that are not kept, are made again from queries and keys when they are asked for.
3. With `frozen=` it replays: patterns, scales and MLP outputs are taken from there, so the pass is affine in what
   remains. `without=` leaves heads out, frozen or live, one set or several at once; `begin=` starts in the middle.

Shapes carry any leading batch axes: tokens `[*batch, pos]`, patterns `[*batch, head, dst, src]`.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import linear

from pathsum.errors import TextError
from pathsum.runs.attention import EVERY, QueriesAndKeys, attend, queries_and_keys, values_of
from pathsum.weights.blocks import Block, map_tensors
from pathsum.weights.weights import Ends, Weights

HeadIndex = tuple[int, int]


@dataclass(frozen=True)
class FrozenLayer:
    """What one layer did that is not linear. Scales are 1/σ, one a position; ones where there is no such norm."""

    attention_scale: Float[Tensor, "*batch pos"]
    post_attention_scale: Float[Tensor, "*batch pos"]
    query_scale: Float[Tensor, "*batch head pos"]
    key_scale: Float[Tensor, "*batch kv pos"]
    compared: QueriesAndKeys
    kept: Float[Tensor, "*batch head dst src"] | None
    """The pattern; None where it is made again whenever it is asked for."""
    mlp: Float[Tensor, "*batch pos d_model"] | None = None
    """What the MLP added to the residual stream."""

    @property
    def pattern(self) -> Float[Tensor, "*batch head dst src"]:
        """Of all heads; ask once and hold it where it is used more than once."""
        return self.patterns_of(EVERY)

    def patterns_of(self, heads: slice) -> Float[Tensor, "*batch some dst src"]:
        """Of some heads of the layer."""
        found = self.compared.pattern(heads) if self.kept is None else self.kept[..., heads, :, :]
        return found.to(self.attention_scale.dtype)

    @property
    def scores(self) -> Float[Tensor, "*batch head dst src"]:
        """Of all heads, before cap and mask: what their expansion sums to. Made when asked for, and not kept."""
        return self.scores_of(EVERY)

    def scores_of(self, heads: slice) -> Float[Tensor, "*batch some dst src"]:
        """Of some heads of the layer."""
        return self.compared.scores(heads).to(self.attention_scale.dtype)


@dataclass(frozen=True)
class Frozen:
    """A recorded run's patterns, norm scales and MLP outputs: given them the model is linear in its sources."""

    layers: tuple[FrozenLayer, ...]
    final_scale: Float[Tensor, "*batch pos"]

    def to(self, dtype: torch.dtype) -> "Frozen":
        """In another dtype; queries and keys stay in theirs, so that what is made of them stays what it was."""
        wide = map_tensors(self, lambda tensor: tensor.to(dtype))
        both = zip(wide.layers, self.layers, strict=True)
        return replace(wide, layers=tuple(replace(new, compared=old.compared) for new, old in both))


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
    patterns: int | None = None,
    frozen: Frozen | None = None,
    without: Set[HeadIndex] | Sequence[Set[HeadIndex]] = frozenset(),
    begin: tuple[int, Float[Tensor, "*batch pos d_model"]] | None = None,
) -> Pass:
    """Residual stream after the last layer; `logits(ends, pass.residual, pass.final_scale)` finishes it.

    `patterns=` is of how many layers, the last ones, recorded patterns are kept; None keeps all.
    `begin=(layer, residual)` starts before that layer with that residual stream instead of with the embedding.
    With several sets in `without` the result has one more leading axis: a pass for each set, all at once.

    Raises `TextError` for tokens outside the vocabulary or a text longer than the context.
    """
    _check(weights, tokens)
    ends, n_layers = weights.ends, weights.spec.n_layers
    first, x = (0, embed(weights, ends, tokens)) if begin is None else begin
    x = x if isinstance(without, Set) else x.expand(len(without), *x.shape)
    layers: list[FrozenLayer] = []
    residuals: list[Tensor] = []
    for layer in range(first, n_layers):
        block = weights.block(layer)
        seen = None if frozen is None else frozen.layers[layer]
        residuals += [x] if record else []
        kept = _kept(block, without, tokens.dim() - 1, x)
        out, trace = _attention(block, ends, x, seen, kept)
        mlp_out = _mlp(block, x if weights.spec.parallel else x + out, seen)
        x = x + out if mlp_out is None else x + out + mlp_out
        if record:
            forgotten = patterns is not None and layer < n_layers - patterns
            layers.append(replace(trace, mlp=mlp_out, kept=None if forgotten else trace.kept))
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


# ---- attention ----


def _attention(
    block: Block, ends: Ends, x: Tensor, seen: FrozenLayer | None, kept: Tensor | None
) -> tuple[Tensor, FrozenLayer]:
    """What attention adds to the stream, and what it took (live, or from `seen`) to be linear."""
    norm, post = block.attention_norm, block.post_attention_norm
    scale = norm.scale(x) if seen is None else seen.attention_scale.expand(x.shape[:-1])
    read = norm.apply(x, scale)
    if seen is not None:
        out = _moved(block, read, seen.pattern, kept)
        return post.apply(out, seen.post_attention_scale.expand(x.shape[:-1])), seen
    compared, query_scale, key_scale = queries_and_keys(block, ends, read)
    pattern = compared.pattern()
    out = _moved(block, read, pattern, kept)
    post_scale = post.scale(out)
    return post.apply(out, post_scale), FrozenLayer(scale, post_scale, query_scale, key_scale, compared, pattern)


def _moved(block: Block, read: Tensor, pattern: Tensor, kept: Tensor | None) -> Tensor:
    """Sum of the heads, `Σ_h (A_h ⊗ W_O^h)(W_V^h x + b_V)`, plus b_O: concatenate and project."""
    values = values_of(block, read, block.b_V)
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
