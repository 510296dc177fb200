"""Skip-trigrams `[source] … [destination] → [out]`: the effect of one head on one triple of tokens (framework §5).

A head's table is a product: how much the destination attends to the source, times what the source then writes. Both
factors are centred by what the softmax ignores: QK within each destination's row over sources, OV within each source's
column over outputs. Exact over the full vocabulary; memory is one block of columns.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from pathsum.lowrank import LowRank


@dataclass(frozen=True)
class Trigrams:
    """Triples of token ids with the two factors of their effect, strongest first."""

    source: Int[Tensor, " n"]
    destination: Int[Tensor, " n"]
    out: Int[Tensor, " n"]
    qk: Float[Tensor, " n"]
    """Centred score from destination to source, in score units (before the softmax)."""
    ov: Float[Tensor, " n"]
    """Centred logit of the output when the source is attended to fully, in nats."""

    @property
    def effect(self) -> Float[Tensor, " n"]:
        return self.qk * self.ov


def centred_qk(circuit: LowRank, score_scale: float) -> LowRank:
    """`scale · QK[destination, source]` less each destination's mean over sources."""
    right = circuit.right - circuit.right.mean(-1, keepdim=True)
    return LowRank(circuit.left * score_scale, right)


def centred_ov(circuit: LowRank) -> LowRank:
    """`OV[out, source]` less each source's mean over outputs."""
    return LowRank(circuit.left - circuit.left.mean(-2, keepdim=True), circuit.right)


def skip_trigrams(qk: LowRank, ov: LowRank, count: int, per_source: int = 1, block: int = 1024) -> Trigrams:
    """The `count` strongest triples by product of the centred factors, at most `per_source` of each source token.

    `qk [d_vocab, d_vocab]` with destinations as rows, `ov` with outputs as rows; only triples whose two factors are
    both positive count (a head attends *more* and raises the output).
    """
    k = min(per_source, qk.shape[-1])
    found = [_by_source(qk, ov, slice(start, start + block), k) for start in range(0, qk.shape[-1], block)]
    merged = Trigrams(*(torch.cat(parts) for parts in zip(*(_fields(one) for one in found), strict=True)))
    effect = merged.effect.where((merged.qk > 0) & (merged.ov > 0), -torch.inf)
    top = effect.topk(min(count, len(effect)))
    order = top.indices[top.values > 0]
    return Trigrams(*(part[order] for part in _fields(merged)))


def _by_source(qk: LowRank, ov: LowRank, sources: slice, k: int) -> Trigrams:
    """The k best triples of every source of a block: their ranks are among the k best of either factor."""
    destinations, outs = qk.columns(sources).topk(k, dim=0), ov.columns(sources).topk(k, dim=0)
    q, o = destinations.values.clamp_min(0), outs.values.clamp_min(0)
    products = (q[:, None, :] * o[None, :, :]).flatten(0, 1)
    best = products.topk(k, dim=0).indices
    d, o = best // k, best % k
    source = torch.arange(sources.start, sources.start + q.shape[-1]).expand_as(best)
    columns = (source, destinations.indices.gather(0, d), outs.indices.gather(0, o),
               destinations.values.gather(0, d), outs.values.gather(0, o))  # fmt: skip
    return Trigrams(*(part.flatten() for part in columns))


def _fields(one: Trigrams) -> tuple[Tensor, ...]:
    return one.source, one.destination, one.out, one.qk, one.ov
