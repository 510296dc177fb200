"""The exact expansion of a head's attention scores: a sum over (query path, key path).

    score[i, j] = scale · Σ_{p, q} (R(i) W_Q S_i x_i^p)ᵀ (R(j) W_K S_j x_j^q)

Beside the residual stream's orders each side has what does not come from it: `positions` (added to queries and keys
only) and `bias`. Scores are those before any soft-cap and mask; ALiBi's own bias is the part `distance`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import linear

from pathsum.errors import ExpansionTooLarge
from pathsum.paths.logits import Expansion, relative_error
from pathsum.paths.paths import Path, chains, source_layer
from pathsum.runs.forward import rotated
from pathsum.runs.graded import frozen_run, graded_streams
from pathsum.runs.run import Run
from pathsum.weights.blocks import Block
from pathsum.weights.norms import Norm
from pathsum.weights.positions import Alibi
from pathsum.weights.weights import head_index, position_vectors


@dataclass(frozen=True)
class ScoreTerm:
    """The share of one pair of paths in a head's scores."""

    query: str
    key: str
    scores: Float[Tensor, "*batch dst src"]


@dataclass(frozen=True)
class ScoreSplit:
    """Scores by (query part, key part); `labels` name both axes."""

    labels: tuple[str, ...]
    scores: Float[Tensor, "query key *batch dst src"]
    distance: Float[Tensor, "dst src"] | None
    target: Float[Tensor, "*batch dst src"]

    def check(self) -> float:
        """`max|Σ − scores| / max|scores|` over the causal entries."""
        total = self.scores.sum((0, 1))
        total = total if self.distance is None else total + self.distance
        causal = torch.ones(total.shape[-2:], dtype=torch.bool).tril()
        return relative_error(total[..., causal], self.target[..., causal])


@dataclass(frozen=True)
class ScoreExpansion:
    """The scores of one head, taken apart."""

    expansion: Expansion
    layer: int
    index: int

    @property
    def block(self) -> Block:
        return self.expansion.frozen.blocks[self.layer]

    def by_order(self) -> ScoreSplit:
        """By (order of the query's paths, order of the key's paths), in one graded pass."""
        for layer, g in enumerate(graded_streams(self.expansion.frozen)):
            if layer == self.layer:
                labels, queries, keys = self._sides({str(k): g[k] for k in range(len(g))})
                return self._split(labels, queries, keys)
        raise AssertionError("the layer was checked on construction")

    def terms(self, max_order: int | None = None, limit: int = 100_000) -> Iterator[ScoreTerm]:
        """Every (query path, key path) with at most `max_order` heads a side, one at a time.

        Raises `ExpansionTooLarge` when there are more than `limit` pairs.
        """
        paths = self._paths(self.layer if max_order is None else max_order)
        if len(paths) ** 2 > limit:
            raise ExpansionTooLarge(
                f"{len(paths) ** 2:,} pairs of paths; pass a smaller max_order= or a larger limit= (now {limit:,})"
            )
        labels, queries, keys = self._sides(paths)
        scale = self.block.attention.score_scale
        return (
            ScoreTerm(q_name, k_name, scale * q @ k.mT)
            for q_name, q in zip(labels, queries, strict=True)
            for k_name, k in zip(labels, keys, strict=True)
        )

    def _paths(self, max_order: int) -> dict[str, Tensor]:
        spec, found = self.expansion.run.model.spec, {}
        for source, vectors in self.expansion.sources.items():
            for chain in chains(spec, source_layer(source), max_order):
                if (chain[-1][0] if chain else source_layer(source)) < self.layer:
                    x = vectors
                    for head in chain:
                        x = self.expansion._step(x, head)
                    found[str(Path(source, chain))] = x
        return found

    def _sides(self, parts: dict[str, Tensor]) -> tuple[tuple[str, ...], list[Tensor], list[Tensor]]:
        """Labels, and the head's query and key vectors for each part and for what is not from the residual stream."""
        block, kv = self.block, self.index // self.block.group
        seen = self.expansion.run.frozen.layers[self.layer]
        sides = []
        for W, W_P, b, norm, scale, i in (
            (block.W_Q, block.W_QP, block.b_Q, block.q_norm, seen.query_scale[..., self.index, :], self.index),
            (block.W_K, block.W_KP, block.b_K, block.k_norm, seen.key_scale[..., kv, :], kv),
        ):
            W_P = W if W_P is None else W_P
            vectors = [linear(x * seen.attention_scale.unsqueeze(-1), W[i]) for x in parts.values()]
            extra = {"positions": self._positions(W_P[i]), "bias": self._bias(b, i)}
            sides.append(([*vectors, *extra.values()], norm, scale))
        present = [any(side[0][len(parts) + n] is not None for side in sides) for n in (0, 1)]
        labels = (*parts, *(name for name, here in zip(("positions", "bias"), present, strict=True) if here))
        shaped = [self._shaped(vectors, len(parts), present, norm, scale) for vectors, norm, scale in sides]
        return labels, shaped[0], shaped[1]

    def _shaped(self, vectors: list[Tensor | None], n: int, present: list[bool], norm: Norm, scale: Tensor) -> list:
        kept = vectors[:n] + [v for v, here in zip(vectors[n:], present, strict=True) if here]
        zero = torch.zeros_like(vectors[0]) if vectors[0] is not None else None
        where = torch.arange(self.expansion.run.tokens.shape[-1])
        return [rotated(self.block, _scaled(norm, zero if v is None else v + zero, scale), where) for v in kept]

    def _positions(self, W: Tensor) -> Tensor | None:
        where = torch.arange(self.expansion.run.tokens.shape[-1])
        p = position_vectors(self.block, self.expansion.frozen.ends, where, W.dtype)
        return None if p is None else linear(p, W)

    def _bias(self, b: Tensor | None, index: int) -> Tensor | None:
        return None if b is None else b[index].expand(self.expansion.run.tokens.shape[-1], -1)

    def _split(self, labels: tuple[str, ...], queries: list[Tensor], keys: list[Tensor]) -> ScoreSplit:
        scale = self.block.attention.score_scale
        scores = torch.stack([torch.stack([scale * q @ k.mT for k in keys]) for q in queries])
        where, distance = torch.arange(scores.shape[-1]), None
        if isinstance(alibi := self.block.attention.positions, Alibi):
            distance = alibi.bias(where, where, scores.dtype)[self.index]
        target = self.expansion.run.frozen.layers[self.layer].scores[..., self.index, :, :]
        return ScoreSplit(labels, scores, distance, target)


def _scaled(norm: Norm, x: Tensor, scale: Tensor) -> Tensor:
    return x if norm.kind == "none" else x * scale.unsqueeze(-1)


@torch.no_grad()
def expand_scores(run: Run, head: str) -> ScoreExpansion:
    """The exact expansion of one head's attention scores.

    >>> pathsum.expand_scores(run, "L1H6").by_order().scores      # [query order, key order, dst, src]
    """
    layer, index = head_index(head, run.model.spec)
    return ScoreExpansion(Expansion(frozen_run(run)), layer, index)
