"""The circuits over tokens: thin products from vocabulary to vocabulary, never formed.

All are of folded weights: `fold()` first, so that the gains and centring of norms are in them. Of queries, keys and
values that are mixed over positions they are what tap 0 says, the token itself, unless other taps are asked for.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from pathsum.errors import NotApplicable
from pathsum.lowrank import LowRank
from pathsum.weights.blocks import Block, Which
from pathsum.weights.weights import Weights

MIXED: dict[Which, str] = {"Q": "queries", "K": "keys", "V": "values"}


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


def score_circuit(weights: Weights, layer: int, delta: float | int | None = None) -> LowRank:
    """`(W_Q W_E + b_Q)ᵀ R(Δ)ᵀ W_K W_E` of a layer's heads, `[head, d_vocab, d_vocab]`: QK with the queries' bias.

    `b_Qᵀ R(Δ)ᵀ W_K x_j` is a term of every source, the same for all destinations, and survives the softmax. The keys'
    bias does not: at one Δ it adds the same to all sources, so it is left out here (`rotary_curve` has it). A bias has
    gone through all taps.
    """
    circuit, bias = qk_circuit(weights, layer, delta), query_bias(weights.attention(layer))
    return circuit if bias is None else LowRank(circuit.left + bias[:, None, :], circuit.right)


def ov_circuit(weights: Weights, layer: int) -> LowRank:
    """`W_U W_OV W_E` of a layer's heads, `[head, d_vocab, d_vocab]`: what attending to a source (column) writes."""
    block, ends = weights.attention(layer), weights.ends
    # Heads that share their values read the same: that side is made once for each key/value head.
    return LowRank(ends.W_U @ block.W_O, (block.reader("V") @ ends.W_E).repeat_interleave(block.group, dim=0))


def layer_OV(weights: Weights, layer: int, tap: int = 0) -> LowRank:
    """`W_OV(t) = W_O C_t W_V` of every head of a layer, `[head, d_model, d_model]`; `W_O W_V` without taps.

    Raises `NotApplicable` for a tap that is not there.
    """
    return _stacked([head.OV_through(tap) for head in weights.attention(layer).heads])


def layer_QK(weights: Weights, layer: int, delta: float | int | None = None, taps: tuple[int, int] = (0, 0)) -> LowRank:
    """`W_QK(Δ)` of every head of a layer, `[head, d_model, d_model]`, through these taps of query and key.

    Raises `NotApplicable` for a rotary layer without `delta`, or with one that is not a single finite number; for a tap
    that is not there.
    """
    if delta is not None and not (isinstance(delta, int | float) and math.isfinite(delta)):
        raise NotApplicable(f"delta is {delta!r}; here it must be one distance, a finite number")
    return _stacked([head.QK(delta, taps) for head in weights.attention(layer).heads])


def left_out(weights: Weights, every_tap: bool = False) -> dict[str, str]:
    """What W_QK read off weights alone leaves out, by layer: such numbers are approximate.

    Scales depend on the text; exact in a frozen run, where they are recorded. Taps beyond 0, of queries, keys or values
    that are mixed over positions, are matrices of their own: `every_tap` is of readings that have them all. Layers that
    leave nothing out are absent.
    """
    found = {}
    for layer, facts in enumerate(weights.spec.layers):
        block = weights.attention(layer)
        normed = block.q_norm.kind != "none" or block.k_norm.kind != "none"
        parts = ["the scales of the norms of queries and keys"] * normed
        parts += [] if facts.score_cap is None else [f"the soft-cap of scores at {facts.score_cap:g}"]
        mixed = [name for which, name in MIXED.items() if block.width(which) > 1]
        parts += [f"taps beyond 0 of {', '.join(mixed)}"] if mixed and not every_tap else []
        if parts:
            found[f"L{layer}"] = " and ".join(parts)
    return found


def query_bias(block: Block) -> Float[Tensor, "head d_head"] | None:
    """What every query of a folded layer has whatever it reads: b_Q and the bias of the queries' norm, if any.

    Through all taps: what it is away from the start of the text.
    """
    return _sum(block.W_Q, _through_taps(block.b_Q, block.taps("Q")), block.q_norm.bias)


def key_bias(block: Block) -> Float[Tensor, "kv d_head"] | None:
    """The same of every key: b_K and the bias of the keys' norm."""
    return _sum(block.W_K, _through_taps(block.b_K, block.taps("K")), block.k_norm.bias)


def _through_taps(b: Tensor | None, taps: Tensor | None) -> Tensor | None:
    return b if b is None or taps is None else b * taps.sum(-2)


def _sum(W: Tensor, *biases: Tensor | None) -> Tensor | None:
    """One vector a head of W; a norm's may be the same for all heads."""
    parts = [bias.expand(W.shape[:2]) for bias in biases if bias is not None]
    return torch.stack(parts).sum(0) if parts else None


def _stacked(matrices: list[LowRank]) -> LowRank:
    lefts: list[Float[Tensor, "m r"]] = [matrix.left for matrix in matrices]
    return LowRank(torch.stack(lefts), torch.stack([matrix.right for matrix in matrices]))
