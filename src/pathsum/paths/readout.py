"""The expansion seen from one end: numbers read off the logits, taken apart without ever forming the logits of a term.

1. A readout `u · logits[position]` is a covector `g = S_f W_Uᵀ u` on the last residual stream.
2. A frozen head is linear, so its transpose carries covectors backward: `g ↦ S Aᵀ S_post g W_OV`.
3. A path's term is the inner product of its source with the covector that its heads leave: d_model numbers a position
   instead of d_vocab.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import torch
from jaxtyping import Float
from torch import Tensor

from pathsum.errors import ExpansionTooLarge, NotApplicable
from pathsum.paths.paths import HeadIndex, Path, path_counts, source_layer
from pathsum.runs.graded import FrozenRun
from pathsum.runs.linear import (
    each_head_transposed,
    head_covectors,
    heads_transposed,
    mixed_values,
    one_head_transposed,
)
from pathsum.runs.run import Run

Chain = tuple[HeadIndex, ...]


@dataclass(frozen=True)
class TermValues:
    """What each path adds to each readout."""

    paths: tuple[Path, ...]
    values: Float[Tensor, "path read *batch"]


@dataclass(frozen=True, repr=False)
class Readout:
    """`directions · logits[position]`, one number a direction, as a sum over the paths of a run."""

    frozen: FrozenRun
    sources: Mapping[str, Float[Tensor, "*batch pos d_model"]]
    directions: Float[Tensor, "read d_vocab"]
    position: int

    def __post_init__(self) -> None:
        d_vocab = self.frozen.weights.spec.d_vocab
        if self.directions.dim() != 2 or self.directions.shape[1] != d_vocab:
            raise NotApplicable(f"directions are [read, {d_vocab}], one a row, not {tuple(self.directions.shape)}")
        place(self.frozen.run, self.position)

    def __repr__(self) -> str:
        return f"Readout({len(self.directions)} of {self.frozen.run!r}, position {self.position})"

    @cached_property
    def target(self) -> Float[Tensor, "read *batch"]:
        """The same numbers of the run's own logits, before any soft-cap."""
        return self._dot(self.frozen.run.uncapped_logits[..., self.position, :])

    @cached_property
    def covectors(self) -> Float[Tensor, "read *batch pos d_model"]:
        """`S_f W_Uᵀ u` at the position, zero elsewhere: what the readouts are on the last residual stream."""
        scale = self.frozen.run.frozen.final_scale
        rows = self.directions @ self.frozen.ends.W_U
        g = rows.new_zeros(len(rows), *scale.shape, rows.shape[-1])
        g[..., self.position, :] = torch.einsum("rd,...->r...d", rows, scale[..., self.position])
        return g

    @cached_property
    @torch.no_grad()
    def by_source(self) -> dict[str, Float[Tensor, "order read *batch"]]:
        """For every source, all its paths with 0, 1, … heads, as many as there are layers after it; one pass."""
        g = self.covectors.unsqueeze(0)
        found: dict[str, Tensor] = {}
        for block, seen in reversed(list(self.frozen.layers)):
            found |= {name: _inner(self.sources[name], g) for name in self._written_by(block.layer)}
            empty = torch.zeros_like(g[:1])
            g = torch.cat([g, empty]) + torch.cat([empty, heads_transposed(block, seen, g)])
        found |= {name: _inner(self.sources[name], g) for name in self._written_by(-1)}
        ordered = {name: found[name] for name in self.sources}
        return ordered | dict(zip(["unembed.bias"], self._bias(), strict=False))

    @cached_property
    def by_order(self) -> Float[Tensor, "order read *batch"]:
        """All paths with k heads, for k = 0 … n_layers."""
        total = torch.zeros(self.frozen.weights.spec.n_layers + 1, *self.target.shape, dtype=self.target.dtype)
        for share in self.by_source.values():
            total[: len(share)] += share
        return total

    def check(self) -> float:
        """`max|Σ − target|` over `‖direction‖₁ max|logits|`: at most the error of the whole expansion."""
        gap = (self.by_order.sum(0) - self.target).abs()
        size = self.directions.abs().sum(-1) * self.frozen.run.uncapped_logits.abs().max()
        size = torch.where(size == 0, torch.ones_like(size), size)
        return (gap / size.view(-1, *[1] * (gap.dim() - 1))).max().item()

    def counts(self) -> list[int]:
        """How many paths have 0, 1, … heads."""
        spec = self.frozen.weights.spec
        total = [0] * (spec.n_layers + 1)
        for name in self.sources:
            for order, count in enumerate(path_counts(spec.n_layers, spec.n_heads, source_layer(name))):
                total[order] += count
        return [total[0] + len(self._bias()), *total[1:]]

    @torch.no_grad()
    def terms(self, max_order: int, most: int = 1_000_000) -> TermValues:
        """Every path with at most `max_order` heads and what it adds.

        Raises `ExpansionTooLarge` when there are more than `most`.
        """
        if (n := sum(self.counts()[: max_order + 1])) > most:
            raise ExpansionTooLarge(
                f"{n:,} paths of at most {max_order} heads; pass a smaller max_order= or a larger most= (now {most:,})"
            )
        x, names = torch.stack(list(self.sources.values())), list(self.sources)
        bias = self._bias()
        paths = [Path(name) for name in (*names, *("unembed.bias" for _ in bias))]
        values = [_inner(x, self.covectors.unsqueeze(1)).transpose(0, 1), *bias]
        chains: list[Chain] = [()]
        g = self.covectors.unsqueeze(0)
        for block, seen in reversed(list(self.frozen.layers)) if max_order else ():
            earlier = [name for name in names if source_layer(name) < block.layer]
            mixed = mixed_values(block, seen, x[: len(earlier)])
            r = head_covectors(block, seen, g)
            heads = [(block.layer, index) for index in range(block.n_heads)]
            values.append(torch.einsum("s...hpe,cr...hpe->schr...", mixed, r).flatten(0, 2))
            paths += [Path(name, (head, *chain)) for name, chain, head in product(earlier, chains, heads)]
            go_on = [i for i, chain in enumerate(chains) if len(chain) + 1 < max_order]
            longer = each_head_transposed(block, seen, r[go_on]).movedim(-3, 1).flatten(0, 1)
            g = torch.cat([g, longer])
            chains += [(head, *chains[i]) for i, head in product(go_on, heads)]
        return TermValues(tuple(paths), torch.cat(values))

    @torch.no_grad()
    def value(self, path: Path) -> Float[Tensor, "read *batch"]:
        """What one path adds, its source carried forward through its heads alone."""
        if path.source == "unembed.bias":
            return self._bias()[0][0]
        x = self.frozen.carry(self.sources[path.source], path.heads)
        return _inner(x, self.covectors)

    @torch.no_grad()
    def by_position(self, path: Path) -> Float[Tensor, "read *batch pos"]:
        """What one path adds from its source at each position: from which token it comes.

        Of `unembed.bias`, which is at the readout's own position, all of it there.
        """
        if path.source == "unembed.bias":
            found = torch.zeros_like(self.covectors[..., 0])
            found[..., self.position] = self._bias()[0][0]
            return found
        g = self.covectors
        for layer, index in reversed(path.heads):
            g = one_head_transposed(self.frozen.blocks[layer], self.frozen.run.frozen.layers[layer], index, g)
        return torch.einsum("...pd,...pd->...p", self.sources[path.source], g)

    def _written_by(self, layer: int) -> list[str]:
        return [name for name in self.sources if source_layer(name) == layer]

    @property
    def bias(self) -> Float[Tensor, "read *batch"] | None:
        """What the final bias adds, where there is one."""
        return next((added[0] for added in self._bias()), None)

    def _bias(self) -> list[Float[Tensor, "one read *batch"]]:
        """What the final bias adds, where there is one."""
        if self.frozen.ends.b_U is None:
            return []
        added = self._dot(self.frozen.ends.b_U)
        return [added.view(1, -1, *[1] * (self.target.dim() - 1)).expand(1, *self.target.shape)]

    def _dot(self, logits: Float[Tensor, "*batch d_vocab"]) -> Float[Tensor, "read *batch"]:
        return (logits @ self.directions.mT).movedim(-1, 0)


def place(run: Run, position: int) -> int:
    """A position of the run's text, counted from 0; −1 is the last. Raises `NotApplicable` where there is none."""
    length = run.tokens.shape[-1]
    if not -length <= position < length:
        raise NotApplicable(f"no position {position}: the text has {length} tokens, 0 to {length - 1}")
    return position % length


def _inner(x: Float[Tensor, "*any pos d_model"], g: Float[Tensor, "*more pos d_model"]) -> Tensor:
    """Inner products over positions and coordinates, leading axes broadcast."""
    return torch.einsum("...pd,...pd->...", x, g)
