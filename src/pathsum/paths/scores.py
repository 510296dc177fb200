"""The exact expansion of a head's attention scores: a sum over (query path, key path).

    score[i, j] = scale · Σ_{p, q} (R(i) W_Q S_i x_i^p)ᵀ (R(j) W_K S_j x_j^q)

Beside the residual stream's orders each side has what does not come from it: `positions` (added to queries and keys
only) and `bias`. Scores are those before any soft-cap and mask; ALiBi's own bias is the part `distance`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import linear

from pathsum.errors import ExpansionTooLarge, NotApplicable
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
    """Scores by (query part, key part)."""

    queries: tuple[str, ...]
    """What the query parts are: orders 0, 1, …, then `positions` and `bias` where the layer has them."""
    keys: tuple[str, ...]
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
        queries, keys = self._sides(next(islice(graded_streams(self.expansion.frozen), self.layer, None)))
        scale = self.block.attention.score_scale
        scores = torch.stack([torch.stack([scale * q @ k.mT for k in keys.values()]) for q in queries.values()])
        return ScoreSplit(tuple(queries), tuple(keys), scores, self._distance(), self._target())

    def check(self, g: Float[Tensor, "order *batch pos d_model"]) -> float:
        """`by_order().check()` from the graded stream before the layer, each term let go of once it is added."""
        queries, keys = self._sides(g)
        total, every = torch.zeros_like(self._target()), torch.stack(list(keys.values()))
        for q in queries.values():
            total += (self.block.attention.score_scale * q @ every.mT).sum(0)
        split = ScoreSplit(("all",), ("all",), total[None, None], self._distance(), self._target())
        return split.check()

    def _sides(self, g: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        parts = {str(order): stream for order, stream in enumerate(g)}
        return self._queries(parts), self._keys(parts)

    def _distance(self) -> Tensor | None:
        where = torch.arange(self.expansion.run.tokens.shape[-1])
        alibi = self.block.attention.positions
        return alibi.bias(where, where, self._target().dtype)[self.index] if isinstance(alibi, Alibi) else None

    def _target(self) -> Tensor:
        recorded = self.expansion.run.frozen.layers[self.layer].scores
        if recorded is None:
            raise NotApplicable("the run was recorded without its scores: run it with scores=True")
        return recorded[..., self.index, :, :]

    def terms(self, max_order: int | None = None, limit: int = 100_000) -> Iterator[ScoreTerm]:
        """Every (query path, key path) with at most `max_order` heads a side, one at a time.

        Raises `ExpansionTooLarge` when there are more than `limit` pairs.
        """
        paths = self._paths(self.layer if max_order is None else max_order)
        if len(paths) ** 2 > limit:
            raise ExpansionTooLarge(
                f"{len(paths) ** 2:,} pairs of paths; pass a smaller max_order= or a larger limit= (now {limit:,})"
            )
        queries, keys = self._queries(paths), self._keys(paths)
        scale = self.block.attention.score_scale
        return (
            ScoreTerm(q_name, k_name, scale * q @ k.mT) for q_name, q in queries.items() for k_name, k in keys.items()
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

    def _queries(self, parts: dict[str, Tensor]) -> dict[str, Tensor]:
        """The head's query vectors from each part, and from what is not of the residual stream."""
        block, seen = self.block, self.expansion.run.frozen.layers[self.layer]
        W, W_P, b = (None if x is None else x[self.index] for x in (block.W_Q, block.W_QP, block.b_Q))
        return self._vectors(parts, (W, W_P, b), block.q_norm.of(self.index), seen.query_scale[..., self.index, :])

    def _keys(self, parts: dict[str, Tensor]) -> dict[str, Tensor]:
        """The same for the keys of the head's key/value head."""
        block, seen = self.block, self.expansion.run.frozen.layers[self.layer]
        kv = self.index // block.group
        W, W_P, b = (None if x is None else x[kv] for x in (block.W_K, block.W_KP, block.b_K))
        return self._vectors(parts, (W, W_P, b), block.k_norm.of(kv), seen.key_scale[..., kv, :])

    def _vectors(self, parts: dict[str, Tensor], maps: tuple, norm: Norm, scale: Tensor) -> dict[str, Tensor]:
        W, W_P, b = maps
        frozen = self.expansion.frozen
        where = torch.arange(frozen.run.tokens.shape[-1])
        seen = frozen.run.frozen.layers[self.layer]
        # All parts at once: a deep model has as many as it has layers, and every one would be rotated by itself.
        stacked = torch.stack(list(parts.values())) * seen.attention_scale.unsqueeze(-1)
        found = dict(zip(parts, linear(stacked, W), strict=True))
        shape = (*frozen.run.tokens.shape, W.shape[0])
        p = position_vectors(self.block, frozen.ends, where, W.dtype)
        if p is not None:
            found["positions"] = linear(p, W if W_P is None else W_P).expand(shape)
        if b is not None or norm.bias is not None:
            found["bias"] = W.new_zeros(shape) if b is None else b.expand(shape)
        vectors = _scaled(norm, torch.stack(list(found.values())), scale)
        if norm.bias is not None:
            # Added after the scale, to the last part: the bias.
            vectors = torch.cat([vectors[:-1], vectors[-1:] + norm.bias])
        return dict(zip(found, rotated(self.block, vectors, where), strict=True))


def _scaled(norm: Norm, x: Tensor, scale: Tensor) -> Tensor:
    return x if norm.kind == "none" else x * scale.unsqueeze(-1)


@torch.no_grad()
def expand_scores(run: Run, head: str) -> ScoreExpansion:
    """The exact expansion of one head's attention scores.

    >>> pathsum.expand_scores(run, "L1H6").by_order().scores      # [query order, key order, dst, src]
    """
    return head_scores(Expansion(frozen_run(run)), head)


def head_scores(expansion: Expansion, head: str) -> ScoreExpansion:
    """`expand_scores` of a run that is expanded already."""
    return ScoreExpansion(expansion, *head_index(head, expansion.run.model.spec))


@torch.no_grad()
def score_errors(expansion: Expansion) -> dict[str, float]:
    """Reconstruction error of every head's scores by order, in one graded pass for all heads."""
    errors: dict[str, float] = {}
    for (block, _), g in zip(expansion.frozen.layers, graded_streams(expansion.frozen), strict=False):
        for index in range(block.n_heads):
            errors[f"L{block.layer}H{index}"] = ScoreExpansion(expansion, block.layer, index).check(g)
    return errors
