"""The strongest of all paths to a number read off the logits, found backward from it.

1. A node is a chain of heads that ends at the logits, with the covector that it leaves on the stream before its first
   head. What the chain adds from a source is their inner product; one head more in front of it is a node again.
2. One sweep from the last layer to the first visits nodes a layer at a time. A node may be left out for good if no
   path through it can be among the best: its covector against the longest vectors that can reach it (`bounds`).
3. Where more nodes are left than `width`, those of the least promise are put aside and the largest of their bounds is
   kept. If it is below the k-th best, the answer is certified: these are the k strongest of all paths. If it is not,
   the search was a beam, and says so.

Two exact numbers beside the list are no bounds, since terms cancel: the sum of all paths that are not listed, and that
of those through a node (its covector against the whole stream).
"""

import time
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from pathsum.errors import NotApplicable
from pathsum.paths.bounds import longest_outputs
from pathsum.paths.paths import Path, source_layer
from pathsum.paths.readout import Readout
from pathsum.runs.attention import per_head
from pathsum.runs.forward import FrozenLayer
from pathsum.runs.linear import head_covectors, values_transposed
from pathsum.weights.blocks import Block

WIDTH = 16
"""Nodes kept at first; each further try keeps `GROWTH` times as many."""
NUMBERS = 1 << 27
"""Of covectors in memory at once: 512 MB in float32."""
GROWTH = 4
"""How many times as wide the next try is."""


@dataclass(frozen=True)
class Strongest:
    """Paths by size of what they add, largest first, and what is known of all others."""

    paths: tuple[Path, ...]
    values: Float[Tensor, " path"]
    """What each adds to the readout."""
    alone: Float[Tensor, " path"]
    """The same, by carrying its source forward through its heads."""
    rest: float
    """The sum of all paths that are not listed: exact."""
    bound: float
    """No path that is not listed adds more than this, either way."""
    width: int

    @property
    def certified(self) -> bool:
        """These are the strongest of all paths."""
        least = self.values[-1].abs().item() if len(self.values) else 0.0
        return self.bound <= least

    @property
    def error(self) -> float:
        """`max|value − value alone| / max|value|`."""
        gap = (self.values - self.alone).abs()
        return (gap.amax() / self.alone.abs().amax().clamp_min(1e-30)).item() if len(gap) else 0.0


@torch.no_grad()
def strongest_paths(
    readout: Readout, count: int = 100, *, seconds: float = 30.0, width: int | None = None
) -> Strongest:
    """The `count` paths that add most to a readout of one direction, in absolute value.

    The search is widened until it is certified or the next try would take longer than `seconds` in all; `width` asks
    for one try of that many nodes. `values [path]`, in the readout's unit (nats of a logit). Of a run of one text.
    Raises `NotApplicable` for several directions or texts. Paper: “Path Expansion of Logits”; the search is ours.

    >>> run = pathsum.run(pathsum.open("two-layer-small"), "Mr Dursley was proud. Mr D")
    >>> target = pathsum.logit(run, "ur")
    >>> found = pathsum.strongest_paths(pathsum.expand(run).toward(target.direction[None], target.position), count=1)
    >>> print(found.paths[0].name, f"{found.values[0]:.1f}", found.certified)
    embed → L0H1 → L1H1 3.5 True
    """
    if len(readout.directions) != 1 or readout.frozen.run.tokens.dim() != 1:
        raise NotApplicable("paths are searched for one direction, in a run of one text")
    if count < 1 or (width is not None and width < 1):
        raise NotApplicable(f"count is {count} and width {width}; both must be at least 1")
    start, search = time.monotonic(), _Search(readout, count)
    most = max(1, NUMBERS // max(1, search.g.numel()))
    wide, begun = min(width or WIDTH, most), time.monotonic()
    found = search.sweep(wide, torch.zeros(()))
    while width is None and not found.certified and wide < most:
        now = time.monotonic()
        if now - start + GROWTH * (now - begun) > seconds:
            break
        wide, begun = min(wide * GROWTH, most), now
        found = search.sweep(wide, found.values[-1].abs() if len(found.values) == count else torch.zeros(()))
    return found


class _Best:
    """The strongest so far: values, and of each its source, its node, and the head before that (−1: none)."""

    def __init__(self, count: int, like: Tensor):
        self.count = count
        self.values, self.where = like.new_empty(0), torch.empty(0, 3, dtype=torch.long)

    def add(self, values: Float[Tensor, "source node head"], nodes: Int[Tensor, " node"], heads: list[int]) -> None:
        flat = values.flatten()
        best = flat.abs().topk(min(self.count, len(flat))).indices
        source, node, head = torch.unravel_index(best, values.shape)
        where = torch.stack([source, nodes[node], torch.tensor(heads)[head]], 1)
        self.values, self.where = torch.cat([self.values, flat[best]]), torch.cat([self.where, where])
        order = self.values.abs().argsort(descending=True, stable=True)[: self.count]
        self.values, self.where = self.values[order], self.where[order]

    def least(self) -> Tensor:
        """What a path must exceed to be listed."""
        return self.values[-1].abs() if len(self.values) == self.count else self.values.new_zeros(())


class _Search:
    """One readout's search."""

    def __init__(self, readout: Readout, count: int):
        self.readout, self.count = readout, count
        self.names, self.n_heads = list(readout.sources), readout.frozen.weights.spec.n_heads
        self.x = torch.stack(list(readout.sources.values()))
        self.g = readout.covectors[0]
        self.longest = longest_outputs(readout.frozen, readout.sources)

    def sweep(self, width: int, known: Tensor) -> Strongest:
        """One pass from the last layer to the first; `known`: there are `count` paths at least this strong."""
        best, bound = _Best(self.count, self.g), 0.0
        g, nodes, parents, heads = self.g.unsqueeze(0), torch.zeros(1, dtype=torch.long), [-1], [-1]
        best.add(torch.einsum("spd,npd->sn", self.x, g).unsqueeze(-1), nodes, [-1])
        for block, seen in reversed(list(self.readout.frozen.layers)):
            y, first = _before_heads(block, seen, g), block.layer * self.n_heads
            earlier = [at for at, name in enumerate(self.names) if source_layer(name) < block.layer]
            values = per_head(block, torch.einsum("spd,ked->skpe", self.x[earlier], block.W_V))
            best.add(torch.einsum("shpe,nhpe->snh", values, y), nodes, list(range(first, first + self.n_heads)))
            low = torch.maximum(best.least(), known)
            kept, some, dropped = self._kept(block.layer, g, _lengths(block, y), width, low)
            bound = max(bound, dropped)
            which, index = some.unbind(1)
            longer = torch.einsum("npe,ned->npd", y[which, index], block.W_V[index // block.group])
            names = torch.arange(len(parents), len(parents) + len(some))
            parents += nodes[which].tolist()
            heads += (first + index).tolist()
            g, nodes = torch.cat([g[kept], longer]), torch.cat([nodes[kept], names])
        paths = [self._path(source, node, head, parents, heads) for source, node, head in best.where.tolist()]
        return self._listed(paths, best.values, bound, width)

    def _kept(
        self, layer: int, g: Tensor, lengths: Float[Tensor, "node head pos"], width: int, low: Tensor
    ) -> tuple[Tensor, Int[Tensor, "child two"], float]:
        """Nodes to keep, (node, head) to go on with, and the largest bound among all that are put aside.

        A bound is of paths with one more head at least: those that end here are known.
        """
        own = g.norm(dim=-1)
        bounds = torch.cat([own, lengths.flatten(0, 1)]) @ self.longest[layer]
        order = bounds.argsort(descending=True, stable=True)[: int((bounds > low).sum())]
        chosen, aside = order[:width], order[width:]
        dropped = bounds[aside[0]].item() if len(aside) else 0.0
        kept = chosen[chosen < len(own)]
        child = chosen[chosen >= len(own)] - len(own)
        return kept, torch.stack([child // self.n_heads, child % self.n_heads], 1), dropped

    def _path(self, source: int, node: int, head: int, parents: list[int], heads: list[int]) -> Path:
        chain = [] if head < 0 else [divmod(head, self.n_heads)]
        while heads[node] >= 0:
            chain.append(divmod(heads[node], self.n_heads))
            node = parents[node]
        return Path(self.names[source], tuple(chain))

    def _listed(self, paths: list[Path], values: Tensor, bound: float, width: int) -> Strongest:
        """With `unembed.bias`, a path of its own, and what is not listed."""
        bias = self.readout.frozen.ends.b_U
        if bias is not None:
            added = (self.readout.directions[0] @ bias).view(1)
            paths, values = [*paths, Path("unembed.bias")], torch.cat([values, added])
            order = values.abs().argsort(descending=True, stable=True)[: self.count]
            paths, values = [paths[place] for place in order.tolist()], values[order]
        if len(values) == self.count:
            bound = max(bound, values[-1].abs().item())  # of paths that were found, or passed by for good
        alone = torch.stack([self.readout.value(path)[0] for path in paths]) if paths else values
        rest = self.readout.target[0].item() - values.double().sum().item()
        return Strongest(tuple(paths), values, alone, rest, bound, width)


def _before_heads(block: Block, seen: FrozenLayer, g: Float[Tensor, "node pos d_model"]) -> Tensor:
    """Covectors on what every head's `W_V` gives: `S Cᵀ Aᵀ W_Oᵀ S_post g`, `[node, head, pos, d_head]`."""
    moved = values_transposed(block, seen, head_covectors(block, seen, g))
    return moved * seen.attention_scale[:, None]


def _lengths(block: Block, y: Float[Tensor, "node head pos d_head"]) -> Float[Tensor, "node head pos"]:
    """Lengths of `y W_V`, without forming it."""
    W_V = block.W_V.repeat_interleave(block.group, 0)
    gram = (W_V @ W_V.mT).unsqueeze(0)
    return ((y @ gram) * y).sum(-1).clamp_min(0).sqrt()
