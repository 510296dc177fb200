"""Numbers read off a head's scores, taken apart without a term's scores ever being formed.

1. A readout is `Σ_ij w_ij score_ij`: one pair, the mean over a set of pairs, or anything else linear in the scores.
2. The weights go to the keys: `k'_i = Σ_j w_ij k_j`, so that a (query part, key part) adds `scale · Σ_i q_iᵀ k'_i`.
3. Over all parts that is one matrix product, for the destinations that have a weight: d_head numbers each a part.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from pathsum.errors import ExpansionTooLarge, NotApplicable
from pathsum.paths.logits import Expansion
from pathsum.paths.score_sides import Side, lag_streams, paths_into, source_streams, stream_counts
from pathsum.runs.graded import graded_streams, streams

Parts = tuple[list[str], list[Tensor]]
"""Names, and what they stand for, in as many tensors as there are groups."""
HELD = 1 << 28
"""Numbers of queries and keys of single paths that may be held at once: 1 GB in float32."""


@dataclass(frozen=True)
class ScoreShare:
    """What one (query part, key part) adds to each readout."""

    query: str
    key: str
    values: Float[Tensor, " read"]


@dataclass(frozen=True)
class ScoreShares:
    """Readouts of a head's scores by (query part, key part). All values, `distance` and `longer` sum to `target`."""

    queries: tuple[str, ...]
    keys: tuple[str, ...]
    values: Float[Tensor, "read query key"]
    distance: Float[Tensor, " read"]
    """ALiBi's; zero where there is none."""
    longer: Float[Tensor, " read"]
    """Pairs with more heads on either side than are listed; zero where all are."""
    target: Float[Tensor, " read"]
    """The same numbers of the run's own scores."""
    size: Float[Tensor, " read"]
    """`Σ|w| · max|scores|`, what the error is relative to."""

    @property
    def error(self) -> float:
        """`max|Σ − target| / (Σ|w| · max|scores|)`: at most the error of the scores' whole expansion."""
        total = self.values.sum((-1, -2)) + self.distance + self.longer
        return ((total - self.target).abs() / self.size).max().item()

    def strongest(self, top: int, by: int = -1) -> list[ScoreShare]:
        """The `top` pairs of parts with the largest size of readout `by`, largest first."""
        sizes = self.values[by].abs().flatten()
        # Only what can be among them is sorted: a deep model has millions of pairs.
        least = sizes.topk(min(top, len(sizes))).values.min() if top and len(sizes) else torch.inf
        places = (sizes >= least).nonzero().flatten()
        best = places[sizes[places].argsort(descending=True, stable=True)][:top]
        return [self._share(*divmod(place, len(self.keys))) for place in best.tolist()]

    def rest(self, listed: Iterable[ScoreShare]) -> Float[Tensor, " read"]:
        """What the parts that are not listed add; `distance` and `longer` are apart."""
        return self.values.sum((-1, -2)) - sum((one.values for one in listed), torch.zeros_like(self.target))

    def share(self, query: str, key: str) -> ScoreShare:
        """One pair of parts by their names."""
        return self._share(self.queries.index(query), self.keys.index(key))

    def _share(self, query: int, key: int) -> ScoreShare:
        return ScoreShare(self.queries[query], self.keys[key], self.values[:, query, key])


@dataclass(frozen=True, repr=False)
class ScoreReadout:
    """`Σ_ij w_ij score_ij`, one number for each row of weights, as sums over (query part, key part)."""

    expansion: Expansion
    queries: Side
    keys: Side
    weights: Float[Tensor, "read *batch dst src"]
    target: Float[Tensor, " read"]
    distance: Float[Tensor, " read"]
    size: Float[Tensor, " read"]

    @cached_property
    @torch.no_grad()
    def by_order(self) -> ScoreShares:
        """By (order of the query's paths, order of the key's paths), in one graded pass."""
        g = next(islice(graded_streams(self.expansion.frozen), self._layer, None))
        return self._shares([([str(order) for order in range(len(g))], g)])

    @cached_property
    @torch.no_grad()
    def by_source(self) -> ScoreShares:
        """By (source of the query's paths, source of the key's paths), all orders together, in one pass."""
        found = source_streams(self.expansion, self._layer)
        return self._shares([(list(found), torch.stack(list(found.values())))])

    @torch.no_grad()
    def by_lag(self, lags: int = 3) -> ScoreShares:
        """By how far back (what the query says, what the key says) was read: `lag 0` … and `further`; all paths.

        A head that compares its own token with the token before the source has `lag 0` with `lag 1`, whichever heads of
        earlier layers carry these, or taps of its own queries and keys.
        """
        if lags < 1:
            raise NotApplicable(f"lags is {lags}; there must be at least one, lag 0")
        found = lag_streams(self.expansion, self._layer, lags)
        x = torch.stack(list(found.values()))
        return self._of_sides(*(dict(zip(found, side.by_lag(x), strict=True)) for side in (self.queries, self.keys)))

    @cached_property
    @torch.no_grad()
    def by_tap(self) -> ScoreShares:
        """By (tap of the query, tap of the key): `tap 0`, the position itself, `tap 1`, the one before …; all paths."""
        x = next(islice(streams(self.expansion.frozen), self._layer, None))
        return self._of_sides(self.queries.by_tap(x), self.keys.by_tap(x))

    @torch.no_grad()
    def by_path(self, max_order: int | None = None, most: int = 20_000_000) -> ScoreShares:
        """By (query path, key path), those with at most `max_order` heads on either side.

        Raises `ExpansionTooLarge` when there are more than `most` pairs, or they do not fit in memory.
        """
        max_order = self._layer if max_order is None else min(max_order, self._layer)
        self._bounded(max_order, most)
        groups = (([path.name for path in paths], x) for paths, x in paths_into(self.expansion, self._layer, max_order))
        return self._shares(groups, self._longer(max_order))

    @property
    def _layer(self) -> int:
        return self.queries.block.layer

    @cached_property
    def _rows(self) -> Bool[Tensor, " dst"]:
        """The destinations that have a weight."""
        used = (self.weights != 0).any(-1)
        return used.flatten(0, -2).any(0)

    def _shares(self, groups: Iterable[tuple[list[str], Tensor]], longer: Tensor | None = None) -> ScoreShares:
        """Of parts of the stream before the layer, and of what each side has beside it."""
        names, q, k = [], [], []
        for found, x in groups:
            names += found
            q.append(self._queried(self.queries.of(x)))
            k.append(self._keyed(self.keys.of(x)))
        return self._summed((names, q), (names, k), longer)

    def _of_sides(self, queries: dict[str, Tensor], keys: dict[str, Tensor]) -> ScoreShares:
        """Of parts of the queries and parts of the keys, and of what each side has beside them."""
        q, k = (torch.stack(list(parts.values())) for parts in (queries, keys))
        return self._summed((list(queries), [self._queried(q)]), (list(keys), [self._keyed(k)]))

    def _summed(self, queries: Parts, keys: Parts, longer: Tensor | None = None) -> ScoreShares:
        """Every query part with every key part, `positions` and `bias` among them."""
        more_q, more_k = self.queries.constants(), self.keys.constants()
        q = [*queries[1], *(self._queried(vectors[None]) for vectors in more_q.values())]
        k = [*keys[1], *(self._keyed(vectors[None]) for vectors in more_k.values())]
        scale = self.queries.block.attention.score_scale
        values = scale * torch.einsum("qf,rkf->rqk", torch.cat(q), torch.cat(k, 1))
        longer = torch.zeros_like(self.target) if longer is None else longer
        sides = (*queries[0], *more_q), (*keys[0], *more_k)
        return ScoreShares(*sides, values, self.distance, longer, self.target, self.size)

    def _queried(self, queries: Float[Tensor, "part *batch pos d_head"]) -> Float[Tensor, "part numbers"]:
        return queries[..., self._rows, :].flatten(1)

    def _keyed(self, keys: Float[Tensor, "part *batch pos d_head"]) -> Float[Tensor, "read part numbers"]:
        return (self.weights[..., self._rows, :].unsqueeze(1) @ keys).flatten(2)

    def _longer(self, max_order: int) -> Tensor:
        """From the sums by order: all that has a longer path on either side."""
        kept = lambda names: torch.tensor([not (name.isdecimal() and int(name) > max_order) for name in names])
        orders = self.by_order
        listed = kept(orders.queries)[:, None] & kept(orders.keys)
        return (orders.values * ~listed).sum((-1, -2))

    def _bounded(self, max_order: int, most: int) -> None:
        n = sum(stream_counts(self.expansion, self._layer)[: max_order + 1])
        if n**2 > most:
            raise ExpansionTooLarge(
                f"{n**2:,} pairs of paths with at most {max_order} heads a side; "
                f"pass a smaller max_order= or a larger most= (now {most:,})"
            )
        texts = self.weights[0, ..., 0, 0].numel()
        held = n * int(self._rows.sum()) * texts * self.queries.W.shape[0] * (1 + len(self.weights))
        if held > HELD:
            raise ExpansionTooLarge(
                f"queries and keys of {n:,} paths at {int(self._rows.sum())} destinations are {held:,} numbers, "
                f"{HELD:,} fit; pass a smaller max_order= or pairs with fewer destinations"
            )
