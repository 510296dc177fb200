"""What the terms are worth: losses of logits built from some of them, everything frozen (“Term Importance Analysis”).

All losses are of single positions, so that means, differences and their errors are taken by whoever asks. Logits of one
head are made from its `d_head` coordinates: `(W_U W_O^h) (A_h v)`.
"""

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from pathsum.errors import ExpansionTooLarge, NotApplicable
from pathsum.paths.logits import Expansion
from pathsum.paths.paths import HeadIndex, Path, path_counts, source_layer
from pathsum.paths.scored import BLOCK, Scored, row_losses, scored
from pathsum.runs.graded import FrozenRun, direct_streams, graded, last, layer_sources, streams
from pathsum.runs.linear import mixed_values

KEPT = 1 << 25
"""Logits of the direct path kept at once, and as many of all terms: 128 MB each in float32."""

Rows = Int[Tensor, " row"] | None


@dataclass(frozen=True)
class HeadLosses:
    """Losses, nats, at each row, of one set of terms: those of one head, or of all heads of a layer."""

    name: str
    individual: Float[Tensor, " row"]
    """Direct path plus the order-1 terms of the set."""
    ending: Float[Tensor, " row"]
    """Direct path plus all terms whose last head is in the set."""
    without: Float[Tensor, " row"]
    """All terms but those whose last head is in the set."""


@torch.no_grad()
def order_losses(frozen: FrozenRun, rows: Rows = None) -> Float[Tensor, "order row"]:
    """Losses of the sum of all terms of order ≤ n, for n = −1 (uniform: log d_vocab), 0, …, n_layers."""
    at = scored(frozen, rows)
    losses = [torch.full((len(at.rows),), math.log(at.d_vocab), dtype=torch.float64)]
    total = torch.zeros_like(frozen.run.residual, dtype=frozen.ends.W_U.dtype)
    for part in graded(frozen):
        total = total + part
        losses.append(at.losses(total))
    return torch.stack(losses)


@torch.no_grad()
def direct_and_full_losses(frozen: FrozenRun, rows: Rows = None) -> Float[Tensor, "two row"]:
    """Losses of the terms of order 0, and of all terms."""
    at = scored(frozen, rows)
    return torch.stack([at.losses(last(each(frozen))) for each in (direct_streams, streams)])


@torch.no_grad()
def head_losses(frozen: FrozenRun, by_layer: bool = False, rows: Rows = None) -> list[HeadLosses]:
    """For every head (or every layer), losses of its terms alone beside the direct path, and of all but its terms."""
    found: dict[str, list[Tensor]] = {}
    for at in scored(frozen, rows).parts(KEPT):
        direct, full = (at.logits(at.scaled(last(each(frozen)))) for each in (direct_streams, streams))
        for name, first, ending, W in _sets(at, by_layer):
            found.setdefault(name, []).append(_set_losses(first, ending, W, direct, full, at.targets))
    return [HeadLosses(name, *torch.cat(parts, dim=1)) for name, parts in found.items()]


@torch.no_grad()
def source_losses(frozen: FrozenRun, kind: str, rows: Rows = None) -> Float[Tensor, "order two row"]:
    """Losses of the terms of each order from sources of one kind alone, and of all terms but these.

    Kinds are `embed`, `pos`, `bias` and `mlp`; the final bias is of order 0 and kind `bias`.
    """
    at, full = scored(frozen, rows), last(streams(frozen))
    found = []
    for order, part in enumerate(graded(frozen, lambda name: name.split(".")[-1] == kind)):
        final_bias = kind == "bias" and order == 0
        found.append(torch.stack([at.losses(part, bias=final_bias), at.losses(full - part, bias=not final_bias)]))
    return torch.stack(found)


def source_kinds(frozen: FrozenRun) -> list[str]:
    """The kinds of sources that a run has."""
    names = {name.split(".")[-1] for block, seen in frozen.layers for name in layer_sources(block, seen)}
    names |= {"embed"} | ({"pos"} if frozen.position_embedding() is not None else set())
    names |= {"bias"} if frozen.ends.b_U is not None else set()
    return [kind for kind in ("embed", "pos", "bias", "mlp") if kind in names]


@torch.no_grad()
def path_losses(
    frozen: FrozenRun, max_order: int, source: str | None = None, rows: Rows = None, most: int = 1000
) -> dict[Path, Float[Tensor, "two row"]]:
    """For every path up to an order: losses of the direct path with its term added, and of all terms but its.

    The direct path is all that has order 0, so the first is NaN for a path of order 0. `source` None: paths from every
    source. The final bias is left out. Raises `ExpansionTooLarge` when there are more than `most` paths.
    """
    expansion = Expansion(frozen)
    found: dict[Path, list[Tensor]] = {}
    sources = list(expansion.sources) if source is None else [source]
    if source is not None and source not in expansion.sources:
        raise NotApplicable(f"no source {source!r} in this model; it has {', '.join(expansion.sources)}")
    spec = frozen.weights.spec
    counts = [path_counts(spec.n_layers, spec.n_heads, source_layer(name))[: max_order + 1] for name in sources]
    if (n := sum(map(sum, counts))) > most:
        raise ExpansionTooLarge(
            f"{n:,} paths of order ≤ {max_order} from {len(sources)} source(s); pass a smaller max_order= "
            f"(now {max_order}), source= of one source, such as embed, or a larger most= (now {most:,})"
        )
    for at in scored(frozen, rows).parts(KEPT):
        direct, full = (at.logits(at.scaled(last(each(frozen)))) for each in (direct_streams, streams))
        for name in sources:
            for path, part, W in _paths(at, Path(name), expansion.sources[name], max_order):
                found.setdefault(path, []).append(_path_losses(path, part, W, direct, full, at.targets))
    return {path: torch.cat(parts, dim=1) for path, parts in found.items()}


def _paths(at: Scored, path: Path, x: Tensor, max_order: int) -> Iterator[tuple[Path, Tensor, Tensor]]:
    """(path, its coordinates at the rows, the map from them to logits): the path itself, then its continuations."""
    if not path.order:
        yield path, at.scaled(x), at.frozen.ends.W_U
    if path.order == max_order:
        return
    after = path.heads[-1][0] if path.heads else source_layer(path.source)
    for block, seen in list(at.frozen.layers)[after + 1 :]:
        mixed = mixed_values(block, seen, x).movedim(-3, 0) * seen.post_attention_scale.unsqueeze(-1)
        for head, own in zip(block.heads, mixed, strict=True):
            longer = Path(path.source, (*path.heads, (block.layer, head.index)))
            yield longer, at.scaled(own), at.frozen.ends.W_U @ head.W_O
            yield from _paths(at, longer, own @ head.W_O.mT, max_order)


def _path_losses(
    path: Path,
    part: Float[Tensor, "row r"],
    W: Float[Tensor, "d_vocab r"],
    direct: Float[Tensor, "row d_vocab"],
    full: Float[Tensor, "row d_vocab"],
    targets: Int[Tensor, " row"],
) -> Float[Tensor, "two row"]:
    """Losses of direct + part (NaN for order 0) and full − part, a block of rows at a time."""
    found = []
    for beside, whole, some, wanted in zip(
        *(each.split(max(1, BLOCK // len(W))) for each in (direct, full, part, targets)), strict=True
    ):
        logits = some @ W.mT
        without = row_losses(whole - logits, wanted)
        added = row_losses(beside + logits, wanted) if path.order else without * torch.nan
        found.append(torch.stack([added, without]))
    return torch.cat(found, dim=1)


def with_heads(frozen: FrozenRun, heads: Collection[HeadIndex]) -> FrozenRun:
    """The same run with only these heads: all others' terms are gone, and the `W_O b_V` they carry.

    Patterns and scales stay as recorded, so all that follows is of the terms whose heads are all among these.
    """
    keep = [[(block.layer, index) in heads for index in range(block.n_heads)] for block in frozen.blocks]
    blocks = [
        replace(block, W_O=block.W_O * torch.tensor(kept, dtype=block.W_O.dtype)[:, None, None])
        for block, kept in zip(frozen.blocks, keep, strict=True)
    ]
    return replace(frozen, blocks=tuple(blocks))


def _sets(at: Scored, by_layer: bool) -> Iterator[tuple[str, Tensor, Tensor, Tensor]]:
    """(name, coordinates of the set's order-1 output, of its whole output, the map from them to logits)."""
    frozen, W_U = at.frozen, at.frozen.ends.W_U
    for (block, seen), direct, full in zip(frozen.layers, direct_streams(frozen), streams(frozen), strict=False):
        # In the first layer all terms of a head are of order 1.
        read = full[None] if block.layer == 0 else torch.stack([direct, full])
        mixed = mixed_values(block, seen, read).movedim(-3, 1) * seen.post_attention_scale.unsqueeze(-1)
        mixed = at.scaled(mixed)
        if by_layer:
            written = torch.einsum("khpr,hdr->kpd", mixed, block.W_O)
            yield f"L{block.layer}", written[0], written[-1], W_U
        else:
            for head in block.heads:
                yield head.name, mixed[0, head.index], mixed[-1, head.index], W_U @ head.W_O


def _set_losses(
    first: Float[Tensor, "row r"],
    ending: Float[Tensor, "row r"],
    W: Float[Tensor, "d_vocab r"],
    direct: Float[Tensor, "row d_vocab"],
    full: Float[Tensor, "row d_vocab"],
    targets: Int[Tensor, " row"],
) -> Float[Tensor, "three row"]:
    """Losses of direct + first, direct + ending and full − ending."""
    found = []
    for block in torch.arange(len(targets)).split(max(1, BLOCK // len(W))):
        own = slice(int(block[0]), int(block[-1]) + 1)
        all_logits = ending[own] @ W.mT
        first_logits = all_logits if first is ending else first[own] @ W.mT
        parts = (direct[own] + first_logits, direct[own] + all_logits, full[own] - all_logits)
        found.append(torch.stack([row_losses(part, targets[own]) for part in parts]))
    return torch.cat(found, dim=1)
