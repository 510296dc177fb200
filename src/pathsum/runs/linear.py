"""A frozen layer as the linear map it is: `x ↦ S_post Σ_h A_h S x ⊗ W_OV^h`, and the constants beside it.

Everything here is of folded weights. `x` may carry extra leading axes (order, path) before the run's own batch axes.
"""

from math import prod

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import linear

from pathsum.runs.attention import attend, one_heads_values, split_heads, values_of
from pathsum.runs.forward import FrozenLayer
from pathsum.weights.blocks import Block
from pathsum.weights.taps import mixed_transposed

AT_ONCE = 1 << 25
"""Numbers of covectors that pass a layer's heads backward at once: 128 MB in float32."""


def mixed_values(block: Block, seen: FrozenLayer, x: Float[Tensor, "*any pos d_model"]) -> Tensor:
    """`A_h S x W_V^hᵀ` for every head, `[..., head, pos, d_head]`."""
    return attend(seen.pattern, values_of(block, x * seen.attention_scale.unsqueeze(-1)))


def heads_output(block: Block, seen: FrozenLayer, x: Float[Tensor, "*any pos d_model"]) -> Tensor:
    """All heads of the layer acting on `x`, summed: `[..., pos, d_model]`."""
    mixed = mixed_values(block, seen, x)
    W_O = block.W_O.transpose(0, 1).flatten(1)
    return linear(mixed.transpose(-3, -2).flatten(-2), W_O) * seen.post_attention_scale.unsqueeze(-1)


def each_head_output(block: Block, seen: FrozenLayer, x: Float[Tensor, "*any pos d_model"]) -> Tensor:
    """Every head of the layer acting on `x`, apart: `[..., head, pos, d_model]`."""
    mixed = mixed_values(block, seen, x)
    return mixed @ block.W_O.mT * seen.post_attention_scale[..., None, :, None]


def one_head_output(
    block: Block, seen: FrozenLayer, index: int, x: Float[Tensor, "*any pos d_model"]
) -> Float[Tensor, "*any pos d_model"]:
    """One head of the layer acting on `x`, without the others."""
    values = one_heads_values(block, index, x * seen.attention_scale.unsqueeze(-1))
    mixed = attend(seen.patterns_of(slice(index, index + 1)), values.unsqueeze(-3)).squeeze(-3)
    return linear(mixed, block.W_O[index]) * seen.post_attention_scale.unsqueeze(-1)


def bias_source(block: Block, seen: FrozenLayer) -> Float[Tensor, "*batch pos d_model"] | None:
    """The layer's constant: `S_post (b_O + Σ_h W_O^h Σ_j A_ij b_V^h) + β_post`; None without biases.

    Mixed over positions, b_V is what the taps reach of it at j: less at the start of the text.
    """
    shape = (*seen.attention_scale.shape, -1)
    total = None if block.b_O is None else block.b_O.expand(shape)
    if block.b_V is not None:
        carried = _carried_bias(block, seen, block.b_V)
        total = carried if total is None else total + carried
    if total is not None:
        total = total * seen.post_attention_scale.unsqueeze(-1)
    beta = block.post_attention_norm.bias
    if beta is not None:
        total = beta.expand(shape) if total is None else total + beta
    return total


def _carried_bias(block: Block, seen: FrozenLayer, b_V: Float[Tensor, "kv d_head"]) -> Tensor:
    """`Σ_h W_O^h Σ_j A_ij b_j^h`, `[*batch, pos, d_model]`."""
    if block.taps("V") is None:
        moved = (block.W_O @ b_V.repeat_interleave(block.group, dim=0).unsqueeze(-1)).squeeze(-1)
        return torch.einsum("...hi,hd->...id", seen.pattern.sum(-1), moved)
    nothing = b_V.new_zeros(seen.attention_scale.shape[-1], block.W_V.shape[-1])
    return torch.einsum("...hie,hde->...id", seen.pattern @ values_of(block, nothing, b_V), block.W_O)


# ---- transposes: covectors, backward ----


def head_covectors(block: Block, seen: FrozenLayer, g: Float[Tensor, "*any pos d_model"]) -> Tensor:
    """What covectors `g` on the layer's output are on every head's mixed values: `W_O^hᵀ S_post g`.

    `[..., head, pos, d_head]`; the inner product with `mixed_values(x)` is what each head adds to `⟨g, output⟩`.
    """
    scaled = g * seen.post_attention_scale.unsqueeze(-1)
    return split_heads(linear(scaled, block.W_O.mT.flatten(0, 1)), block.n_heads)


def each_head_transposed(block: Block, seen: FrozenLayer, r: Float[Tensor, "*any head pos d_head"]) -> Tensor:
    """From covectors on mixed values to those on the layer's input: `S A_hᵀ r W_V^h`, `[..., head, pos, d_model]`."""
    W_V = block.W_V.repeat_interleave(block.group, dim=0)
    # A broadcast product would copy W_V for every leading axis.
    read = torch.einsum("...hpe,hed->...hpd", values_transposed(block, seen, r), W_V)
    return read * seen.attention_scale[..., None, :, None]


def values_transposed(block: Block, seen: FrozenLayer, r: Float[Tensor, "*any head pos d_head"]) -> Tensor:
    """From covectors on mixed values to those on what W_V gives, before it is mixed by taps: `Cᵀ A_hᵀ r`."""
    return mixed_transposed(attend(seen.pattern.mT, r), block.taps_by_head("V"))


def one_head_transposed(
    block: Block, seen: FrozenLayer, index: int, g: Float[Tensor, "*any pos d_model"]
) -> Float[Tensor, "*any pos d_model"]:
    """The transpose of `one_head_output`."""
    r = linear(g * seen.post_attention_scale.unsqueeze(-1), block.W_O[index].mT)
    moved = attend(seen.patterns_of(slice(index, index + 1)).mT, r.unsqueeze(-3)).squeeze(-3)
    moved = mixed_transposed(moved, block.head(index).taps_V)
    return linear(moved, block.W_V[index // block.group].mT) * seen.attention_scale.unsqueeze(-1)


def heads_transposed(block: Block, seen: FrozenLayer, g: Float[Tensor, "*any pos d_model"]) -> Tensor:
    """The transpose of `heads_output`: `⟨heads_output(x), g⟩ = ⟨x, heads_transposed(g)⟩`, `[..., pos, d_model]`."""
    back, W_V, own = seen.pattern.mT, block.W_V.flatten(0, 1).mT, seen.attention_scale.dim() + 1
    flat = g.reshape(-1, *g.shape[g.dim() - own :])
    found = torch.empty_like(flat)
    # A few at a time: on the way there are several copies of them.
    for some, out in zip(*(each.split(max(1, AT_ONCE // prod(flat.shape[1:]))) for each in (flat, found)), strict=True):
        moved = attend(back, head_covectors(block, seen, some))
        by_values = mixed_transposed(moved.unflatten(-3, (-1, block.group)).sum(-3), block.taps("V"))
        out[:] = linear(by_values.transpose(-3, -2).flatten(-2), W_V) * seen.attention_scale[..., None]
    return found.view(g.shape)
