"""The two sides of a head's scores: its queries and its keys, each an affine map of the stream in a frozen run.

    R(p) S_q Σ_t C_t (W (S x + P) + b)_{p−t} + b'

Linear in the stream's parts (`of`), whatever these are: orders, sources, single paths; the sum over taps t has one term
(`of_tap`) where queries or keys are not mixed over positions. What does not come from the stream is apart
(`constants`): `positions`, added to queries and keys only, and `bias`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import linear

from pathsum.paths.logits import Expansion
from pathsum.paths.paths import Path, path_counts, source_layer
from pathsum.runs.attention import rotated
from pathsum.runs.forward import FrozenLayer
from pathsum.runs.graded import FrozenRun
from pathsum.runs.linear import each_head_output, heads_output
from pathsum.weights.blocks import Block
from pathsum.weights.norms import Norm
from pathsum.weights.taps import Taps, mixed, shifted, width
from pathsum.weights.weights import position_vectors


@dataclass(frozen=True, repr=False)
class Side:
    """The queries of one head, or the keys of its key/value head."""

    frozen: FrozenRun
    block: Block
    W: Float[Tensor, "d_head d_model"]
    W_P: Float[Tensor, "d_head d_model"] | None
    b: Float[Tensor, " d_head"] | None
    norm: Norm
    scale: Float[Tensor, "*batch pos"]
    """1/σ of the norm of queries or keys; ones where there is none."""
    taps: Taps

    def of(self, x: Float[Tensor, "*any pos d_model"]) -> Float[Tensor, "*any pos d_head"]:
        """The share of a part of the stream before the layer."""
        return self._finished(mixed(self._read(x), self.taps))

    def of_tap(self, x: Float[Tensor, "*any pos d_model"], tap: int) -> Float[Tensor, "*any pos d_head"]:
        """The same through one tap: what the stream `tap` positions before gives."""
        return self._finished(shifted(self._read(x), self.taps, tap))

    def by_lag(self, x: Float[Tensor, "lag *batch pos d_model"]) -> Float[Tensor, "lag *batch pos d_head"]:
        """`of` parts of lag 0, 1, … and, last, further: what is read through tap t is t further back."""
        last, read = len(x) - 1, self._read(x)
        found = torch.zeros_like(read)
        for tap in range(self.width):
            found.index_add_(0, (torch.arange(len(x)) + tap).clamp_max(last), shifted(read, self.taps, tap))
        return self._finished(found)

    def by_tap(self, x: Float[Tensor, "*any pos d_model"]) -> dict[str, Float[Tensor, "*any pos d_head"]]:
        """`of` as the sum that it is: `tap 0`, the position itself, `tap 1`, the one before, …"""
        return {f"tap {tap}": self.of_tap(x, tap) for tap in range(self.width)}

    @property
    def width(self) -> int:
        """How many taps there are."""
        return width(self.taps)

    def constants(self) -> dict[str, Float[Tensor, "*batch pos d_head"]]:
        """`positions` and `bias`, those that there are."""
        found: dict[str, Tensor] = {}
        shape = (*self.frozen.run.tokens.shape, self.W.shape[0])
        p = position_vectors(self.block, self.frozen.ends, self._where, self.W.dtype)
        if p is not None:
            found["positions"] = self._scaled(
                mixed(linear(p, self.W if self.W_P is None else self.W_P), self.taps).expand(shape)
            )
        if self.b is not None or self.norm.bias is not None:
            b = self.W.new_zeros(shape) if self.b is None else mixed(self.b.expand(shape), self.taps)
            bias = self._scaled(b)
            found["bias"] = bias if self.norm.bias is None else bias + self.norm.bias
        return {name: self._rotated(vectors) for name, vectors in found.items()}

    @property
    def _where(self) -> Tensor:
        return torch.arange(self.frozen.run.tokens.shape[-1])

    def _read(self, x: Tensor) -> Tensor:
        """`W S x`."""
        seen = self.frozen.run.frozen.layers[self.block.layer]
        return linear(x * seen.attention_scale.unsqueeze(-1), self.W)

    def _finished(self, x: Tensor) -> Tensor:
        return self._rotated(self._scaled(x))

    def _scaled(self, x: Tensor) -> Tensor:
        return x if self.norm.kind == "none" else x * self.scale.unsqueeze(-1)

    def _rotated(self, x: Tensor) -> Tensor:
        return rotated(self.block, x, self._where)


def query_side(frozen: FrozenRun, layer: int, index: int) -> Side:
    """The query side of head `index` of a layer."""
    block, seen = frozen.blocks[layer], frozen.run.frozen.layers[layer]
    maps = _of_one(index, block.W_Q, block.W_QP, block.b_Q)
    taps = block.head(index).taps_Q
    return Side(frozen, block, *maps, block.q_norm.of(index), seen.query_scale[..., index, :], taps)


def key_side(frozen: FrozenRun, layer: int, index: int) -> Side:
    """The key side of the same head: that of the key/value head it shares."""
    block, seen = frozen.blocks[layer], frozen.run.frozen.layers[layer]
    kv = index // block.group
    maps = _of_one(kv, block.W_K, block.W_KP, block.b_K)
    return Side(frozen, block, *maps, block.k_norm.of(kv), seen.key_scale[..., kv, :], block.head(index).taps_K)


def _of_one(index: int, W: Tensor, *others: Tensor | None) -> tuple[Tensor, Tensor | None, Tensor | None]:
    W_P, b = (None if one is None else one[index] for one in others)
    return W[index], W_P, b


# ---- parts of the stream before a layer ----


def source_streams(expansion: Expansion, layer: int) -> dict[str, Float[Tensor, "*batch pos d_model"]]:
    """For every source before the layer, the sum of all its paths, of any order, into the stream there; one pass."""
    names = sources_before(expansion.sources, layer)
    x = torch.stack([expansion.sources[name] for name in names])
    for block, seen in list(expansion.frozen.layers)[:layer]:
        # In the order of their layers: those written later come after.
        written = sum(source_layer(name) < block.layer for name in names)
        x[:written] += heads_output(block, seen, x[:written])
    return dict(zip(names, x, strict=True))


def lag_streams(expansion: Expansion, layer: int, lags: int) -> dict[str, Float[Tensor, "*batch pos d_model"]]:
    """The stream before the layer by how far back what it says comes from: `lag 0` … `lag {lags − 1}`, and `further`.

    Whatever enters the stream at a position (embedding, MLP output, bias) is of lag 0 there; a head that moves it from
    j to i adds i − j, and t more through tap t of its values. Lags only grow, so that those up to a bound are exact
    without the others.
    """
    x = torch.zeros(lags, *expansion.sources["embed"].shape, dtype=expansion.sources["embed"].dtype)
    total = x[0].clone()
    for source in _written(expansion, -1):
        x[0], total = x[0] + source, total + source
    for block, seen in list(expansion.frozen.layers)[:layer]:
        total = sum(_written(expansion, block.layer), total + heads_output(block, seen, total))
        moved, pattern = torch.zeros_like(x), seen.pattern
        for lag, tap in product(range(lags), range(block.width("V"))):
            # Of the pattern, what moves by exactly this many positions.
            banded, by = replace(seen, kept=pattern.tril(-lag).triu(-lag)), lag + tap
            moved[by:] += heads_output(block.with_values_of(tap), banded, x[: max(0, lags - by)])
        x = x + moved
        x[0] = sum(_written(expansion, block.layer), x[0])
    return {f"lag {lag}": part for lag, part in enumerate(x)} | {"further": total - x.sum(0)}


def _written(expansion: Expansion, layer: int) -> list[Tensor]:
    return [vectors for name, vectors in expansion.sources.items() if source_layer(name) == layer]


def paths_into(
    expansion: Expansion, layer: int, max_order: int
) -> Iterator[tuple[list[Path], Float[Tensor, "path *batch pos d_model"]]]:
    """Every path of at most `max_order` heads into the stream before the layer, some at a time.

    Those that differ in their last head alone come together; what longer paths share is computed once.
    """
    names = sources_before(expansion.sources, layer)
    for name in names:
        yield [Path(name)], expansion.sources[name][None]
    for block, seen in list(expansion.frozen.layers)[:layer] if max_order else ():
        # Held for all sources: a long run makes its patterns again whenever they are asked for.
        held = replace(seen, kept=seen.pattern)
        for name in names:
            if source_layer(name) < block.layer:
                yield from _through(expansion, layer, max_order, Path(name), expansion.sources[name], block, held)


def stream_counts(expansion: Expansion, layer: int) -> list[int]:
    """How many paths into the stream before the layer have 0, 1, … heads."""
    total, n_heads = [0] * (layer + 1), expansion.run.model.spec.n_heads
    for name in sources_before(expansion.sources, layer):
        for order, count in enumerate(path_counts(layer, n_heads, source_layer(name))):
            total[order] += count
    return total


def sources_before(sources: Mapping[str, Tensor], layer: int) -> list[str]:
    """Names of the sources that are in the stream before the layer, in the order of the layers that write them."""
    return [name for name in sources if source_layer(name) < layer]


def _through(
    expansion: Expansion, layer: int, max_order: int, path: Path, x: Tensor, block: Block, seen: FrozenLayer
) -> Iterator[tuple[list[Path], Tensor]]:
    """What the path wrote, through each head of a block, then on through those of later ones."""
    outputs = each_head_output(block, seen, x).movedim(-3, 0)
    found = [Path(path.source, (*path.heads, (block.layer, index))) for index in range(block.n_heads)]
    yield found, outputs
    if path.order + 1 < max_order:
        for longer, output in zip(found, outputs, strict=True):
            for later, then in list(expansion.frozen.layers)[block.layer + 1 : layer]:
                yield from _through(expansion, layer, max_order, longer, output, later, then)
