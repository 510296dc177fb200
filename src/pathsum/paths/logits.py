"""The exact expansion of a run's logits into paths.

    logits = Σ_paths (S_f A^{h_k} S … A^{h_1} S) ⊗ (W_U W_OV^{h_k} … W_OV^{h_1}) · source

With patterns and norm scales as recorded the sum has no remainder; `check()` measures it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import torch
from jaxtyping import Float, Real
from torch import Tensor

from pathsum.errors import ExpansionTooLarge, NotApplicable
from pathsum.lowrank import LowRank
from pathsum.paths.logit_table import logit_table
from pathsum.paths.paths import Path, path_counts, source_layer
from pathsum.paths.readout import Readout
from pathsum.paths.table import Table, relative_error
from pathsum.runs.forward import Frozen
from pathsum.runs.graded import FrozenRun, frozen_run, graded, layer_sources
from pathsum.runs.linear import each_head_output
from pathsum.runs.run import Run
from pathsum.weights.taps import later

Taps = Sequence[int] | None


@dataclass(frozen=True)
class Term:
    """One path's share of a run."""

    path: Path
    logits: Float[Tensor, "*batch pos d_vocab"]


@dataclass(frozen=True, repr=False)
class Expansion:
    """A run as a sum of paths. Weights are folded for it; patterns and scales are the recorded ones."""

    frozen: FrozenRun

    def __repr__(self) -> str:
        return f"Expansion({self.run!r}, {self.counts():,} paths)"

    @property
    def run(self) -> Run:
        """The run that is expanded."""
        return self.frozen.run

    @cached_property
    def sources(self) -> dict[str, Float[Tensor, "*batch pos d_model"]]:
        """Every source but `unembed.bias`, as vectors in the residual stream."""
        frozen = self.frozen
        found = {"embed": frozen.token_embedding()}
        pos = frozen.position_embedding()
        found |= {} if pos is None else {"pos": pos}
        for block, seen in frozen.layers:
            found |= layer_sources(block, seen)
        return found

    # ---- sums of many paths ----

    def by(self, *axes: str) -> Table:
        """The logits by one of `order`, `source`, `position`, `head` and `layer`, or by two of them crossed.

        `values` are `[cell(, cell), *batch, pos, d_vocab]` and sum to the logits before any soft-cap. A path's position
        is that of its source's token, its head the last one, its layer that head's; `direct` has none.

        Raises `NotApplicable` for axes that make no table, `ExpansionTooLarge` for a table of more than half a billion
        numbers: `cross(expansion.toward(…), *axes)` makes the same table of single numbers.

        >>> table = pathsum.expand(run).by("head", "position")
        >>> table.values.shape                               # [head, position, pos, d_vocab]
        torch.Size([9, 14, 14, 1024])
        >>> table.check() < 1e-5                             # max|Σ − logits| / max|logits|
        True
        """
        return logit_table(self.frozen, self.sources, axes)

    def by_order(self) -> Table:
        """All paths with k heads, for k = 0 … n_layers."""
        return self.by("order")

    def by_source(self) -> Table:
        """All paths from each source: `embed`, `pos`, `L0.bias`, `L0.mlp`, …, `unembed.bias`."""
        return self.by("source")

    def by_position(self) -> Table:
        """All paths from each token of the text."""
        return self.by("position")

    def by_head(self) -> Table:
        """`direct`, and for every head all paths whose last head it is."""
        return self.by("head")

    def by_layer(self) -> Table:
        """`direct`, and for every layer all paths whose last head is in it."""
        return self.by("layer")

    def check(self) -> float:
        """Reconstruction error of the whole expansion, `max|Σ − logits| / max|logits|`, summed order by order."""
        total = sum(map(self.frozen.unembed, graded(self.frozen)), self._unembed_bias())
        return relative_error(total, self.run.uncapped_logits)

    def toward(self, directions: Real[Tensor, "read d_vocab"], position: int = -1) -> Readout:
        """The numbers `directions · logits[position]` as sums over paths, without a term's logits ever being formed.

        >>> one_hot = torch.nn.functional.one_hot(run.logits[-1:].argmax(-1), model.spec.d_vocab)
        >>> pathsum.expand(run).toward(one_hot).by_source["embed"].shape       # [order, read]: of the first choice
        torch.Size([3, 1])
        """
        return Readout(self.frozen, self.sources, directions.to(self.run.logits.dtype), position)

    # ---- single paths ----

    def counts(self, max_order: int | None = None) -> int:
        """How many paths there are up to an order, from all sources."""
        spec = self.run.model.spec
        counts = [path_counts(spec.n_layers, spec.n_heads, source_layer(name)) for name in self.sources]
        total = sum(sum(c[: None if max_order is None else max_order + 1]) for c in counts)
        return total + (self.frozen.ends.b_U is not None)

    def terms(self, max_order: int | None = None, most: int = 10_000) -> Iterator[Term]:
        """Every path up to `max_order` heads with its logits, one at a time.

        Raises `ExpansionTooLarge` when there are more than `most`.
        """
        if (n := self.counts(max_order)) > most:
            raise ExpansionTooLarge(f"{n:,} paths; pass a smaller max_order= or a larger most= (now {most:,})")
        return self._terms(max_order)

    def term(self, path: str | Path) -> Term:
        """One path by its name, such as `"embed → L0H3 → L1H6"`."""
        path = self._known(path)
        if path.source == "unembed.bias":
            return Term(path, self._unembed_bias())
        return Term(path, self.frozen.unembed(self.frozen.carry(self.sources[path.source], path.heads)))

    def pattern(self, path: str | Path, taps: Taps = None) -> Float[Tensor, "*batch dst src"]:
        """`S_f S_post A^{h_k} S … S_post A^{h_1} S`: how a path moves from positions to positions, scales included.

        `taps`, one a head, are of values mixed over positions; None: tap 0. `path_taps` lists them all: the path's term
        is the sum of its patterns with its matrices over these.
        """
        return path_pattern(self.run.frozen, self._known(path), taps)

    def matrix(self, path: str | Path, taps: Taps = None) -> LowRank:
        """`W_U W_OV^{h_k} … W_OV^{h_1}` on residual vectors, with `W_E` on the right for paths from `embed`.

        `taps` are those of `pattern`.
        """
        path = self._known(path)
        W_U, W_E = self.frozen.ends.W_U, self.frozen.ends.W_E
        heads = [self.frozen.blocks[layer].head(index) for layer, index in path.heads]
        circuits = [head.OV_through(tap) for head, tap in zip(heads, _taps_of(path, taps), strict=True)]
        if not circuits:
            return LowRank(W_U, W_E if path.source == "embed" else torch.eye(W_U.shape[1], dtype=W_U.dtype))
        chain = circuits[0] @ W_E if path.source == "embed" else circuits[0]
        for circuit in circuits[1:]:
            chain = circuit @ chain
        return W_U @ chain

    # ---- parts ----

    def _terms(self, max_order: int | None) -> Iterator[Term]:
        for name, vectors in self.sources.items():
            yield from self._continue(Path(name), vectors, max_order)
        if self.frozen.ends.b_U is not None:
            yield Term(Path("unembed.bias"), self._unembed_bias())

    def _continue(self, path: Path, x: Tensor, max_order: int | None) -> Iterator[Term]:
        """The path itself, then all its continuations; what they share is computed once."""
        yield Term(path, self.frozen.unembed(x))
        if path.order == max_order:
            return
        after = path.heads[-1][0] if path.heads else source_layer(path.source)
        for block, seen in list(self.frozen.layers)[after + 1 :]:
            outputs = each_head_output(block, seen, x)
            for index in range(block.n_heads):
                longer = Path(path.source, (*path.heads, (block.layer, index)))
                yield from self._continue(longer, outputs[..., index, :, :], max_order)

    def _known(self, path: str | Path) -> Path:
        """The path, checked against the model's heads and sources."""
        path = Path.parse(path, self.run.model.spec) if isinstance(path, str) else path
        if not isinstance(path, Path):
            raise NotApplicable(f"a path is written like 'embed → L0H1', or is a Path, not {type(path).__name__}")
        names = [*self.sources, *([] if self.frozen.ends.b_U is None else ["unembed.bias"])]
        if path.source not in names:
            raise NotApplicable(f"no source {path.source!r} in this model; it has {', '.join(names)}")
        return path

    def _unembed_bias(self) -> Tensor:
        b_U = self.frozen.ends.b_U
        return self.run.logits.new_zeros(()) if b_U is None else b_U.expand_as(self.run.logits)


@torch.no_grad()
def expand(run: Run) -> Expansion:
    """The exact expansion of a run into end-to-end paths (the paper's "path expansion trick").

    `logits = Σ_paths (S_f A^{h_k} S … A^{h_1} S) ⊗ (W_U W_OV^{h_k} … W_OV^{h_1}) · source`, nats, before any soft-cap.
    Raises `NotApplicable` for what is no run. Paper: “The Path Expansion Trick”; “Path Expansion of Logits”.

    >>> run = pathsum.run(pathsum.open("two-layer-small"), "Mr Dursley was proud. Mr D")
    >>> expansion = pathsum.expand(run)
    >>> print(expansion.counts(), expansion.by_order().values.shape)         # [order, pos, d_vocab]
    25 torch.Size([3, 14, 1024])
    >>> expansion.check() < 1e-5                                             # max|Σ − logits| / max|logits|
    True
    """
    if not isinstance(run, Run):
        raise NotApplicable(f"expand() takes a run, not {type(run).__name__}: pathsum.run(model, text) gives one")
    return Expansion(frozen_run(run))


def path_pattern(frozen: Frozen, path: Path, taps: Taps = None) -> Float[Tensor, "*batch dst src"]:
    """`S_f S_post A^{h_k} D^{t_k} S … S_post A^{h_1} D^{t_1} S` of what a run recorded; D is one position back.

    `taps` t, one a head, are of values mixed over positions; None: 0.
    """
    total = torch.eye(frozen.final_scale.shape[-1], dtype=frozen.final_scale.dtype)
    for (layer, index), tap in zip(path.heads, _taps_of(path, taps), strict=True):
        seen = frozen.layers[layer]
        A = seen.post_attention_scale.unsqueeze(-1) * seen.pattern[..., index, :, :]
        total = A @ later(seen.attention_scale.unsqueeze(-1) * total, tap)
    return frozen.final_scale.unsqueeze(-1) * total


def path_taps(frozen: FrozenRun, path: Path) -> list[tuple[int, ...]]:
    """All ways to go through the taps of the values of a path's heads; one, all 0, where none are mixed."""
    return list(product(*(range(frozen.blocks[layer].width("V")) for layer, _ in path.heads)))


def _taps_of(path: Path, taps: Taps) -> Sequence[int]:
    """Raises `NotApplicable` unless there is one a head."""
    if taps is not None and len(taps) != path.order:
        raise NotApplicable(f"{len(taps)} taps for the {path.order} heads of {path.name}; give one a head")
    return (0,) * path.order if taps is None else taps
