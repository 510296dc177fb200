"""Whole logits as a table of sums of paths, in one forward pass that keeps apart what is asked for.

1. The stream has an axis each for order, source and position (from which token), of size 1 where that is not asked for.
2. Sources enter at their own place; a layer's heads act on all places alike, and what they write is one order up.
3. Paths end where their last head writes, if last heads or their layers are asked for; else after the last layer.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod

import torch
from jaxtyping import Float
from torch import Tensor

from pathsum.errors import ExpansionTooLarge
from pathsum.paths.paths import source_layer
from pathsum.paths.table import DIRECT, Table, check_axes, numbered
from pathsum.runs.graded import FrozenRun
from pathsum.runs.linear import each_head_output, heads_output

NUMBERS = 500_000_000
"""Of a table: 2 GB in float32."""
Sources = Mapping[str, Float[Tensor, "*batch pos d_model"]]


@torch.no_grad()
def logit_table(frozen: FrozenRun, sources: Sources, axes: tuple[str, ...]) -> Table:
    """The logits before any soft-cap by one axis or by two crossed, `[cell(, cell), *batch, pos, d_vocab]`.

    Raises `NotApplicable` for axes that make no table, `ExpansionTooLarge` for a table of more than `NUMBERS` numbers.
    """
    check_axes(axes)
    labels = {axis: _labels(frozen, sources, axis) for axis in axes}
    _check_size(frozen, labels)
    made = ("order", "source", "position", "layer" if "layer" in axes else "head")
    values = _Places(frozen, sources, labels).logits()
    values = values.movedim([made.index(axis) for axis in axes], list(range(len(axes))))
    values = values.squeeze(tuple(range(len(axes), len(made))))
    return Table(axes, tuple(labels.values()), values, frozen.run.uncapped_logits)


def _labels(frozen: FrozenRun, sources: Sources, axis: str) -> tuple[str, ...]:
    spec = frozen.weights.spec
    return {
        "order": numbered(spec.n_layers + 1),
        "source": (*sources, *([] if frozen.ends.b_U is None else ["unembed.bias"])),
        "position": numbered(frozen.run.tokens.shape[-1]),
        "head": (DIRECT, *(head.name for block in frozen.blocks for head in block.heads)),
        "layer": (DIRECT, *(f"L{layer}" for layer in range(spec.n_layers))),
    }[axis]


def _check_size(frozen: FrozenRun, labels: Mapping[str, tuple[str, ...]]) -> None:
    cells, shape = prod(map(len, labels.values())), [*frozen.run.tokens.shape, frozen.weights.spec.d_vocab]
    if (n := cells * prod(shape)) <= NUMBERS:
        return
    fewer = "by one axis alone, " if len(labels) > 1 else ""
    asked = ", ".join(f'"{axis}"' for axis in labels)
    raise ExpansionTooLarge(
        f"logits by {' and '.join(labels)} are {cells:,} times {shape} numbers, {n:,} and over {NUMBERS:,}; ask {fewer}"
        f"of a shorter text, or for numbers alone: pathsum.cross(expansion.toward(directions, position), {asked})"
    )


@dataclass(frozen=True)
class _Places:
    """The pass; `labels` are those of the axes asked for."""

    frozen: FrozenRun
    sources: Sources
    labels: Mapping[str, tuple[str, ...]]

    def logits(self) -> Float[Tensor, "order source position head *batch pos d_vocab"]:
        like, b_U, begin = self.frozen.run.uncapped_logits, self.frozen.ends.b_U, 0
        table = like.new_zeros(*map(self.size, ("order", "source", "position")), self.heads, *like.shape)
        for lowest, streams in self.ends():
            end = begin + streams.shape[3]
            # One place at a time: there is never much beside the table.
            for order, source, position in product(*map(range, streams.shape[:3])):
                table[lowest + order, source, position, begin:end] = self.frozen.unembed(
                    streams[order, source, position]
                )
            begin = end
        if b_U is not None:
            table[0, -1, :, 0] += self.here * b_U
        return table

    def ends(self) -> Iterator[tuple[int, Float[Tensor, "order source position head *batch pos d_model"]]]:
        """Streams of paths that end there, and the lowest order in each: `direct`, then last heads by layer."""
        up, apart = int("order" in self.labels), self.heads > 1
        direct = self.entering(self.sources)
        if apart:
            yield 0, direct[None, :, :, None]
        g = direct.new_zeros(self.size("order"), *direct.shape)
        g[0] = self.entering(self.written_by(-1))
        for block, seen in self.frozen.layers:
            before = g[: block.layer + 1]
            if "head" in self.labels:
                written = each_head_output(block, seen, before).movedim(-3, 3)
            else:
                written = heads_output(block, seen, before).unsqueeze(3)
            if apart:
                yield up, written
            g[up : up + len(before)] += written.sum(3)
            g[0] += self.entering(self.written_by(block.layer))
        if not apart:
            yield 0, g.unsqueeze(3)

    def entering(self, names: Iterable[str]) -> Float[Tensor, "source position *batch pos d_model"]:
        """These sources, each at its place."""
        x = self.sources["embed"]
        placed = x.new_zeros(self.size("source"), self.size("position"), *x.shape)
        for name in names:
            place = self.labels["source"].index(name) if "source" in self.labels else 0
            placed[place] += self.here * self.sources[name]
        return placed

    def written_by(self, layer: int) -> list[str]:
        return [name for name in self.sources if source_layer(name) == layer]

    @cached_property
    def here(self) -> Float[Tensor, "position *one pos 1"]:
        """1 where what enters at a position of the text is at that place of the axis."""
        x, n = self.sources["embed"], self.sources["embed"].shape[-2]
        here = torch.eye(n, dtype=x.dtype) if "position" in self.labels else x.new_ones(1, n)
        return here.view(-1, *[1] * (x.dim() - 2), n, 1)

    def size(self, axis: str) -> int:
        return len(self.labels[axis]) if axis in self.labels else 1

    @property
    def heads(self) -> int:
        return self.size("head") * self.size("layer")
