"""Skip-trigrams `[source] … [destination] → [out]`: the effect of one head on one triple of tokens.

A head's table is a product: how much the destination attends to the source, times what the source then writes. Both
factors are centred by what the softmax ignores: QK within each destination's row over sources, OV within each source's
column over outputs. Of the four combinations of signs one is listed, positive with positive: the destination attends
*more* and the output is *raised*. (Positive with negative is an output that is lowered. A negative score is attention
withheld: the head then does less of what it does, whatever the sign of OV, so such products are no effect of it.)

The strongest over all sources, exactly, without looking at most of either table:

1. A source's best triple is at most (its best output) × (its best destination), and each of these at most the product
   of two lengths (`balanced_lengths`). Sources are visited by that bound, a block at a time.
2. Of a block, the best output of every source is looked up, but only among outputs long enough to matter: with it the
   source's bound must still beat the `count`-th best triple so far. Then the best destination of those that are left.
3. Only of sources that still do are the triples themselves listed.

Memory is one block of columns.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from pathsum.extremes import ENTRIES, ROUNDING, balanced_lengths
from pathsum.lowrank import LowRank

BLOCK = 4 * ENTRIES
"""Entries in a block of columns: 64 MB in float32."""


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

    def __getitem__(self, places: slice) -> "Trigrams":
        return Trigrams(*(part[places] for part in _fields(self)))


def centred_qk(circuit: LowRank, score_scale: float) -> LowRank:
    """`scale · QK[destination, source]` less each destination's mean over sources."""
    right = circuit.right - circuit.right.mean(-1, keepdim=True)
    return LowRank(circuit.left * score_scale, right)


def centred_ov(circuit: LowRank) -> LowRank:
    """`OV[out, source]` less each source's mean over outputs."""
    return LowRank(circuit.left - circuit.left.mean(-2, keepdim=True), circuit.right)


def skip_trigrams(
    qk: LowRank,
    ov: LowRank,
    count: int,
    per_source: int = 1,
    block: int | None = None,
    sources: Int[Tensor, " source"] | None = None,
    tokens: Int[Tensor, " token"] | None = None,
) -> Trigrams:
    """The `count` strongest triples by product of the centred factors, at most `per_source` of each source token.

    `qk [d_vocab, d_vocab]` with destinations as rows, `ov` with outputs as rows, `sources` as columns of both; only
    triples whose two factors are both positive count. `sources` and `tokens` (destinations and outputs) leave out all
    others; None leaves out none. `block` sources are visited at once.
    """
    sources, tokens = (torch.arange(qk.shape[1]) if ids is None else ids for ids in (sources, tokens))
    found = _strongest(_Side.of(qk, tokens, sources), _Side.of(ov, tokens, sources), count, per_source, block)
    return Trigrams(sources[found.source], tokens[found.destination], tokens[found.out], found.qk, found.ov)


@dataclass(frozen=True)
class _Side:
    """One circuit, its rows by length, longest first."""

    rows: Int[Tensor, " m"]
    left: Float[Tensor, "m r"]
    columns: Float[Tensor, "n r"]
    heights: Float[Tensor, " m"]
    widths: Float[Tensor, " n"]

    @classmethod
    def of(cls, circuit: LowRank, rows: Int[Tensor, " m"], columns: Int[Tensor, " n"]) -> "_Side":
        left, right = circuit.left[rows], circuit.right[:, columns]
        heights, widths = balanced_lengths(left, right)
        heights, order = heights.sort(descending=True)
        return cls(order, left[order], right.mT.contiguous(), heights, widths)

    @property
    def bounds(self) -> Float[Tensor, " n"]:
        """No entry of a column is larger."""
        return self.heights[:1].sum() * self.widths

    def peaks(self, columns: Int[Tensor, " k"], limits: Float[Tensor, " k"]) -> Float[Tensor, " k"]:
        """The largest entry of each column where it is above its limit; where it is not, something no larger than that.

        Rows too short to reach any of the limits are left out.
        """
        ratio = (self.widths[columns] / limits.clamp_min(1e-300)).amax()
        reach = int((self.heights * ratio * (1 + ROUNDING) > 1).sum())
        if not reach:
            return torch.zeros_like(limits)
        return (self.columns[columns] @ self.left[:reach].mT).amax(1).clamp_min(0).to(limits.dtype)

    def top(self, columns: Int[Tensor, " k"], most: int) -> tuple[Float[Tensor, "k t"], Int[Tensor, "k t"]]:
        """The largest entries of each column, largest first, and their rows."""
        values, places = (self.columns[columns] @ self.left.mT).topk(min(most, len(self.left)), dim=1)
        return values, self.rows[places]


def _strongest(qk: _Side, ov: _Side, count: int, per_source: int, block: int | None) -> Trigrams:
    """`skip_trigrams`, with tokens by their place among the rows and columns of the two sides."""
    bounds, order = (qk.bounds * ov.bounds).sort(descending=True)
    block = max(1, BLOCK // max(1, len(qk.left), len(ov.left))) if block is None else block
    best = _by_source(qk, ov, order[:0], 1)
    for start in range(0, len(order) if count else 0, block):
        least = best.effect[-1].double() / (1 + ROUNDING) if len(best.qk) == count else bounds.new_zeros(())
        if bounds[start] <= least:
            break
        columns = order[start : start + block][bounds[start : start + block] > least]
        raised = ov.peaks(columns, least / qk.bounds[columns])
        columns, raised = _where(raised * qk.bounds[columns] > least, columns, raised)
        if len(columns):
            attended = qk.peaks(columns, least / raised)
            columns, _ = _where(attended * raised > least, columns, raised)
        best = _merged(best, _by_source(qk, ov, columns, per_source), count)
    return best


def _where(chosen: Tensor, *parts: Tensor) -> list[Tensor]:
    return [part[chosen] for part in parts]


def _by_source(qk: _Side, ov: _Side, columns: Int[Tensor, " k"], most: int) -> Trigrams:
    """The `most` best triples of every source.

    The a-th best destination with the b-th best output is beaten by a · b − 1 others: only a · b ≤ `most` can be among
    the best.
    """
    (q, destinations), (o, outs) = qk.top(columns, most), ov.top(columns, most)
    a = torch.arange(q.shape[1]).repeat_interleave(o.shape[1])
    b = torch.arange(o.shape[1]).repeat(q.shape[1])
    a, b = _where((a + 1) * (b + 1) <= most, a, b)
    effects = q.clamp_min(0)[:, a] * o.clamp_min(0)[:, b]
    best = effects.topk(min(most, len(a)), dim=1).indices
    a, b = a[best], b[best]
    parts = (columns[:, None].expand_as(best), destinations.gather(1, a), outs.gather(1, b), q.gather(1, a),
             o.gather(1, b))  # fmt: skip
    return Trigrams(*(part.flatten() for part in parts))


def _merged(a: Trigrams, b: Trigrams, count: int) -> Trigrams:
    """The `count` strongest of both whose factors are positive."""
    merged = Trigrams(*(torch.cat(parts) for parts in zip(_fields(a), _fields(b), strict=True)))
    effect = merged.effect.where((merged.qk > 0) & (merged.ov > 0), -torch.inf)
    top = effect.topk(min(count, len(effect)))
    order = top.indices[top.values > 0]
    return Trigrams(*(part[order] for part in _fields(merged)))


def _fields(one: Trigrams) -> tuple[Tensor, ...]:
    return one.source, one.destination, one.out, one.qk, one.ov
