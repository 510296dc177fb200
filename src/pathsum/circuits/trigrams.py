"""Skip-trigrams `[source] … [destination] → [out]`: the effect of one head on one triple of tokens (framework §5).

A head's table is a product: how much the destination attends to the source, times what the source then writes. Both
factors are centred by what the softmax ignores: QK within each destination's row over sources, OV within each source's
column over outputs. Exact over the full vocabulary; memory is one block of columns.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from pathsum.extremes import ENTRIES, ROUNDING, balanced_lengths
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


def skip_trigrams(qk: LowRank, ov: LowRank, count: int, per_source: int = 1, block: int | None = None) -> Trigrams:
    """The `count` strongest triples by product of the centred factors, at most `per_source` of each source token.

    `qk [d_vocab, d_vocab]` with destinations as rows, `ov` with outputs as rows; only triples whose two factors are
    both positive count (a head attends *more* and raises the output). Exact: sources are visited by the most that
    their triples can be, until that falls below what was found. `block` sources are visited at once.
    """
    bounds, sources = (_most(qk) * _most(ov)).sort(descending=True)
    block = max(1, ENTRIES // len(sources)) if block is None else block
    best = _by_source(qk, ov, sources[:0], 1)
    for start in range(0, len(sources), block):
        if len(best.qk) == count and bounds[start] * (1 + ROUNDING) <= best.effect[-1]:
            break
        found = _by_source(qk, ov, sources[start : start + block], min(per_source, len(sources)))
        best = _strongest(best, found, count)
    return best


def _most(circuit: LowRank) -> Float[Tensor, " source"]:
    """A bound on the entries of each column."""
    heights, widths = balanced_lengths(circuit.left, circuit.right)
    return heights.amax() * widths


def _by_source(qk: LowRank, ov: LowRank, sources: Int[Tensor, " source"], k: int) -> Trigrams:
    """The k best triples of every source: their ranks are among the k best of either factor."""
    destinations, outs = qk.T.rows(sources).topk(k, dim=1), ov.T.rows(sources).topk(k, dim=1)
    q, o = destinations.values.clamp_min(0), outs.values.clamp_min(0)
    best = (q[:, :, None] * o[:, None, :]).flatten(1).topk(k, dim=1).indices
    d, o = best // k, best % k
    columns = (sources[:, None].expand_as(best), destinations.indices.gather(1, d), outs.indices.gather(1, o),
               destinations.values.gather(1, d), outs.values.gather(1, o))  # fmt: skip
    return Trigrams(*(part.flatten() for part in columns))


def _strongest(a: Trigrams, b: Trigrams, count: int) -> Trigrams:
    """The `count` strongest of both whose factors are positive."""
    merged = Trigrams(*(torch.cat(parts) for parts in zip(_fields(a), _fields(b), strict=True)))
    effect = merged.effect.where((merged.qk > 0) & (merged.ov > 0), -torch.inf)
    top = effect.topk(min(count, len(effect)))
    order = top.indices[top.values > 0]
    return Trigrams(*(part[order] for part in _fields(merged)))


def _fields(one: Trigrams) -> tuple[Tensor, ...]:
    return one.source, one.destination, one.out, one.qk, one.ov
