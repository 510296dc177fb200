"""The exact expansion of a head's attention scores: a sum over (query path, key path).

    score[i, j] = scale · Σ_{p, q} (R(i) W_Q S_i x_i^p)ᵀ (R(j) W_K S_j x_j^q)

Where queries or keys are mixed over positions, `W_Q S_i x_i` is `Σ_t C_t W_Q S_{i−t} x_{i−t}`, and `by_tap` tells these
apart.

Beside the residual stream's parts (orders, sources, paths) each side has what does not come from it: `positions` (added
to queries and keys only) and `bias`. Scores are those before any soft-cap and mask; ALiBi's own bias is the part
`distance`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, product

import torch
from jaxtyping import Bool, Float, Real
from torch import Tensor

from pathsum.errors import ExpansionTooLarge, NotApplicable
from pathsum.paths.logits import Expansion
from pathsum.paths.qk_term import QKTerm, path_before, qk_term
from pathsum.paths.score_pairs import Pairs, pair_mask, pair_weights, visible_sources
from pathsum.paths.score_readout import ScoreReadout
from pathsum.paths.score_sides import Side, key_side, paths_into, query_side, source_streams, stream_counts
from pathsum.paths.table import relative_error
from pathsum.runs.graded import frozen_run, graded_streams, streams
from pathsum.runs.run import Run
from pathsum.weights.blocks import Block
from pathsum.weights.positions import Alibi
from pathsum.weights.weights import head_index


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
    """What the query parts are: orders 0, 1, … or sources, then `positions` and `bias` where the layer has them."""
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
        """The head's layer, of folded weights."""
        return self.expansion.frozen.blocks[self.layer]

    @property
    def head(self) -> str:
        """The head's name, as `L1H6`."""
        return f"L{self.layer}H{self.index}"

    # ---- all scores ----

    def by_order(self) -> ScoreSplit:
        """By (order of the query's paths, order of the key's paths), in one graded pass."""
        g = next(islice(graded_streams(self.expansion.frozen), self.layer, None))
        return self._split([str(order) for order in range(len(g))], g)

    @torch.no_grad()
    def by_source(self) -> ScoreSplit:
        """By (source of the query's paths, source of the key's paths), all orders together, in one pass."""
        found = source_streams(self.expansion, self.layer)
        return self._split(list(found), torch.stack(list(found.values())))

    @torch.no_grad()
    def by_tap(self) -> ScoreSplit:
        """By (tap of the query, tap of the key), all paths together: `tap 0` is the position itself, `tap 1` the one
        before. Of a head whose queries or keys are not mixed over positions that side has tap 0 alone.

        >>> pathsum.expand_scores(run, "L0H1").by_tap().queries      # positions and bias are beside the taps
        ('tap 0', 'positions')
        """
        x = next(islice(streams(self.expansion.frozen), self.layer, None))
        return self._pairs(self.queries.by_tap(x), self.keys.by_tap(x))

    def check(self, g: Float[Tensor, "order *batch pos d_model"]) -> float:
        """`by_order().check()` from the graded stream before the layer, each term let go of once it is added."""
        q = torch.cat([self.queries.of(g), *(one[None] for one in self.queries.constants().values())])
        k = torch.cat([self.keys.of(g), *(one[None] for one in self.keys.constants().values())])
        total = torch.zeros_like(self.scores)
        for each in q:
            total += (self.block.attention.score_scale * each @ k.mT).sum(0)
        split = ScoreSplit(("all",), ("all",), total[None, None], self._distance(), self.scores)
        return split.check()

    # ---- single terms ----

    def terms(self, max_order: int | None = None, most: int = 100_000) -> Iterator[ScoreTerm]:
        """Every (query path, key path) with at most `max_order` heads a side, one at a time.

        Raises `ExpansionTooLarge` when there are more than `most` pairs.
        """
        max_order = self.layer if max_order is None else min(max_order, self.layer)
        n = sum(stream_counts(self.expansion, self.layer)[: max_order + 1])
        if n**2 > most:
            raise ExpansionTooLarge(
                f"{n**2:,} pairs of paths; pass a smaller max_order= or a larger most= (now {most:,})"
            )
        return self._terms(max_order)

    def _terms(self, max_order: int) -> Iterator[ScoreTerm]:
        queries: dict[str, Tensor] = {}
        keys: dict[str, Tensor] = {}
        for paths, x in paths_into(self.expansion, self.layer, max_order):
            names = [path.name for path in paths]
            queries |= dict(zip(names, self.queries.of(x), strict=True))
            keys |= dict(zip(names, self.keys.of(x), strict=True))
        queries, keys = queries | self.queries.constants(), keys | self.keys.constants()
        scale = self.block.attention.score_scale
        for (query, q), (key, k) in product(queries.items(), keys.items()):
            yield ScoreTerm(query, key, scale * q @ k.mT)

    @torch.no_grad()
    def term(self, query: str, key: str) -> ScoreTerm:
        """One (query path, key path) by name, such as `"embed"` and `"embed → L0H3"`; `positions` and `bias` too.

        Raises `NotApplicable` for a path that does not end before the head, or a part this head does not have.
        """
        q, k = self._side_of(self.queries, query), self._side_of(self.keys, key)
        return ScoreTerm(query, key, self.block.attention.score_scale * q @ k.mT)

    def weights_of(
        self, query: str = "embed", key: str = "embed", delta: float | int | None = None, taps: tuple[int, int] = (0, 0)
    ) -> QKTerm:
        """The weights of one (query path, key path): `W_Eᵀ … W_QK … W_E`, with its matching score.

        `taps` of the head's query and key, where these are mixed over positions.

        >>> round(pathsum.expand_scores(run, "L1H1").weights_of("embed", "embed → L0H0").matching_score, 2)
        0.98
        """
        return qk_term(self.expansion.frozen.weights, self.head, query, key, delta, taps)

    # ---- numbers read off the scores ----

    @torch.no_grad()
    def toward(self, weights: Real[Tensor, "read *batch dst src"]) -> ScoreReadout:
        """The numbers `Σ_ij w_ij score_ij` as sums over pairs of parts, without a term's scores ever being formed.

        Raises `NotApplicable` for weights of another shape, or on sources that the head cannot see.
        """
        recorded, n = self.scores, self.expansion.run.tokens.shape[-1]
        weights = weights.to(recorded.dtype)
        if weights.shape[1:] != recorded.shape:
            raise NotApplicable(f"weights are [read, {list(recorded.shape)}] here, not {list(weights.shape)}")
        if (weights * ~self.visible != 0).any():
            raise NotApplicable("weights must be zero on what causality or the layer's window hides")
        distance = self._distance()
        distance = recorded.new_zeros(n, n) if distance is None else distance
        read = lambda scores: (weights * scores).flatten(1).sum(1)
        size = weights.abs().flatten(1).sum(1) * (recorded * self.visible).abs().max()
        size = torch.where(size == 0, torch.ones_like(size), size)
        return ScoreReadout(self.expansion, self.queries, self.keys, weights, read(recorded), read(distance), size)

    def at(self, pairs: Pairs) -> ScoreReadout:
        """Two numbers: the mean score over a set of pairs; and *centred*, the same less the mean over all sources.

        The softmax sees only what a score has beyond those of the other sources that its destination can attend to.
        `pairs`: "induction" (the source comes after an earlier copy of the destination's token), "previous", a list of
        (destination, source), or a mask `[*batch, dst, src]`.

        >>> (first,) = pathsum.expand_scores(run, "L1H1").at("induction").by_path(max_order=1).strongest(1)
        >>> print(first.query, "with", first.key)
        embed → L0H2 with embed → L0H0
        """
        mask = pair_mask(self.expansion.run.tokens, self.visible, pairs)
        return self.toward(pair_weights(mask, self.visible, self.scores.dtype))

    @cached_property
    def scores(self) -> Float[Tensor, "*batch dst src"]:
        """The run's own scores of the head."""
        seen = self.expansion.run.frozen.layers[self.layer]
        return seen.scores_of(slice(self.index, self.index + 1)).squeeze(-3)

    @cached_property
    def pattern(self) -> Float[Tensor, "*batch dst src"]:
        """Where the head looks: the run's own pattern of it."""
        seen = self.expansion.run.frozen.layers[self.layer]
        return seen.patterns_of(slice(self.index, self.index + 1)).squeeze(-3)

    @property
    def visible(self) -> Bool[Tensor, "dst src"]:
        """Which sources each destination can attend to."""
        return visible_sources(self.expansion.run.tokens.shape[-1], self.block.attention.window)

    # ---- parts ----

    @cached_property
    def queries(self) -> Side:
        """The head's queries as a map of the stream before its layer."""
        return query_side(self.expansion.frozen, self.layer, self.index)

    @cached_property
    def keys(self) -> Side:
        """The head's keys likewise."""
        return key_side(self.expansion.frozen, self.layer, self.index)

    def _side_of(self, side: Side, name: str) -> Float[Tensor, "*batch pos d_head"]:
        constants = side.constants()
        if name in constants:
            return constants[name]
        if name in ("positions", "bias"):
            raise NotApplicable(f"{self.head} has no {name} on that side")
        path = self.expansion._known(path_before(name, self.layer, self.expansion.run.model.spec))
        return side.of(self.expansion.frozen.carry(self.expansion.sources[path.source], path.heads))

    def _split(self, names: list[str], x: Float[Tensor, "part *batch pos d_model"]) -> ScoreSplit:
        return self._pairs(*(dict(zip(names, side.of(x), strict=True)) for side in (self.queries, self.keys)))

    def _pairs(self, queries: dict[str, Tensor], keys: dict[str, Tensor]) -> ScoreSplit:
        """Every query part with every key part, `positions` and `bias` among them."""
        queries, keys = queries | self.queries.constants(), keys | self.keys.constants()
        every, scale = torch.stack(list(keys.values())), self.block.attention.score_scale
        scores = torch.stack([scale * q @ every.mT for q in queries.values()])
        return ScoreSplit(tuple(queries), tuple(keys), scores, self._distance(), self.scores)

    def _distance(self) -> Tensor | None:
        where = torch.arange(self.expansion.run.tokens.shape[-1])
        alibi = self.block.attention.positions
        return alibi.bias(where, where, self.scores.dtype)[self.index] if isinstance(alibi, Alibi) else None


@torch.no_grad()
def expand_scores(run: Run, head: str) -> ScoreExpansion:
    """The exact expansion of one head's attention scores: `score[i, j] = scale · Σ_{p, q} (W_Q x_i^p)ᵀ (W_K x_j^q)`.

    `scores [query part, key part, dst, src]`, before any soft-cap and mask; differences of scores are log-odds of
    attention, in nats. Raises `NotApplicable` for an unknown head. Paper: “Path Expansion of Attention Scores
    QK Circuit”.

    >>> run = pathsum.run(pathsum.open("two-layer-small"), "Mr Dursley was proud. Mr D")
    >>> split = pathsum.expand_scores(run, "L1H1").by_order()
    >>> print(split.scores.shape, split.queries, split.check() < 1e-5)
    torch.Size([3, 3, 14, 14]) ('0', '1', 'positions') True
    """
    if not isinstance(run, Run):
        raise NotApplicable(f"expand_scores() takes a run, not {type(run).__name__}: pathsum.run(…) gives one")
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
