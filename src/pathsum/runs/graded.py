"""The residual stream by order: one pass that gives every order's share exactly.

1. `g[0]` starts as the embedding; higher orders start empty.
2. In every layer each order's stream passes the layer's heads, frozen, and lands one order up: `g[k] += heads(g[k−1])`.
3. Biases and MLP outputs are sources: they enter at order 0.
4. The final map makes of `g[k]` the logits of all paths with exactly k heads; all orders' sum is the run's.

Equal to the paper's n+1-pass procedure, at the cost of one pass per kept order (“Term Importance Analysis”).
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from pathsum.runs.forward import FrozenLayer, embed
from pathsum.runs.linear import bias_source, heads_output, one_head_output
from pathsum.runs.run import Run
from pathsum.weights.blocks import Block
from pathsum.weights.weights import Ends, Weights

ORDERS = 8
"""Of the graded stream that pass a layer's heads at once."""


@dataclass(frozen=True, repr=False)
class FrozenRun:
    """A run with its weights folded: what every expansion works on. MLPs are sources, so their weights are not here."""

    run: Run
    weights: Weights
    ends: Ends
    blocks: tuple[Block, ...]
    """Without their MLPs."""

    def __repr__(self) -> str:
        return f"FrozenRun({self.run!r})"

    @property
    def layers(self) -> Iterator[tuple[Block, FrozenLayer]]:
        """Each layer with what was recorded in it."""
        return zip(self.blocks, self.run.frozen.layers, strict=True)

    def token_embedding(self) -> Float[Tensor, "*batch pos d_model"]:
        """`W_E`'s columns at the run's tokens: the source `embed`."""
        return torch.nn.functional.embedding(self.run.tokens, self.ends.W_E.mT)

    def position_embedding(self) -> Float[Tensor, "*batch pos d_model"] | None:
        """Learned positions, where they enter the residual stream."""
        if not self.weights.spec.learned_positions or self.ends.W_pos is None:
            return None
        tokens = self.run.tokens
        return self.ends.W_pos[:, : tokens.shape[-1]].mT.expand(*tokens.shape, -1)

    def carry(
        self, x: Float[Tensor, "*any pos d_model"], heads: Iterable[tuple[int, int]]
    ) -> Float[Tensor, "*any pos d_model"]:
        """`x` through these heads, one after the other, alone: what a path writes to the residual stream."""
        for layer, index in heads:
            x = one_head_output(self.blocks[layer], self.run.frozen.layers[layer], index, x)
        return x

    def unembed(self, x: Float[Tensor, "*any pos d_model"]) -> Float[Tensor, "*any pos d_vocab"]:
        """`W_U S_f x`, without the bias."""
        return torch.nn.functional.linear(x * self.run.frozen.final_scale.unsqueeze(-1), self.ends.W_U)


def frozen_run(run: Run, folded: Weights | None = None) -> FrozenRun:
    """Fold the run's weights; exact, so the recorded patterns and scales stay true, in the folded weights' dtype.

    `folded` are these weights, where they are in memory already.
    """
    weights = run.weights.fold().load_attention() if folded is None else folded
    blocks = tuple(weights.attention(layer) for layer in range(weights.spec.n_layers))
    ends = weights.ends
    if run.residual.dtype != ends.W_E.dtype:
        run = replace(run, frozen=run.frozen.to(ends.W_E.dtype))
    return FrozenRun(run, weights, ends, blocks)


@torch.no_grad()
def graded_streams(
    frozen: FrozenRun, sources: Callable[[str], bool] = lambda name: True
) -> Iterator[Float[Tensor, "order *batch pos d_model"]]:
    """The graded residual stream before layer 0, 1, …, and last after the final layer.

    Before layer l it has l + 1 orders: no path has met more heads than it has passed layers. All are views of one
    tensor, which the next step overwrites. `sources` says of a name (`embed`, `pos`, `L0.bias`, `L0.mlp`, …) whether
    its paths are in.
    """
    x = _embedded(frozen, sources)
    g = x.new_zeros(len(frozen.blocks) + 1, *x.shape)
    g[0] = x
    for layer, (block, seen) in enumerate(frozen.layers, start=1):
        yield g[:layer]
        # From the highest order down: what a layer reads has not changed yet.
        for orders in torch.arange(layer).split(ORDERS)[::-1]:
            begin, end = int(orders[0]), int(orders[-1]) + 1
            g[begin + 1 : end + 1] += heads_output(block, seen, g[begin:end])
        for name, source in layer_sources(block, seen).items():
            if sources(name):
                g[0] += source
    yield g


@torch.no_grad()
def streams(frozen: FrozenRun) -> Iterator[Float[Tensor, "*batch pos d_model"]]:
    """The residual stream before layer 0, 1, …, and last after the final layer: all orders' sum, at the cost of one."""
    x = embed(frozen.weights, frozen.ends, frozen.run.tokens)
    for block, seen in frozen.layers:
        yield x
        x = sum(layer_sources(block, seen).values(), x + heads_output(block, seen, x))
    yield x


@torch.no_grad()
def direct_streams(frozen: FrozenRun) -> Iterator[Float[Tensor, "*batch pos d_model"]]:
    """The same of order 0 alone: the embedding and what biases and MLPs have written."""
    x = embed(frozen.weights, frozen.ends, frozen.run.tokens)
    for block, seen in frozen.layers:
        yield x
        x = sum(layer_sources(block, seen).values(), x)
    yield x


def _embedded(frozen: FrozenRun, sources: Callable[[str], bool]) -> Float[Tensor, "*batch pos d_model"]:
    """What there is before the first layer, of these sources."""
    x = frozen.token_embedding()
    found = {"embed": x} | ({} if (pos := frozen.position_embedding()) is None else {"pos": pos})
    return sum((source for name, source in found.items() if sources(name)), torch.zeros_like(x))


def layer_sources(block: Block, seen: FrozenLayer) -> dict[str, Tensor]:
    """What the layer writes whatever its heads read, by source: biases, and the MLP's recorded output."""
    parts = {"bias": bias_source(block, seen), "mlp": seen.mlp}
    return {f"L{block.layer}.{kind}": source for kind, source in parts.items() if source is not None}


def last(each: Iterable[Tensor]) -> Tensor:
    """The last of them, the others let go of as they come."""
    return deque(each, maxlen=1).pop()


def graded(
    frozen: FrozenRun, sources: Callable[[str], bool] = lambda name: True
) -> Float[Tensor, "order *batch pos d_model"]:
    """The graded residual stream after the last layer, `n_layers + 1` orders."""
    return last(graded_streams(frozen, sources))
