"""What the terms are worth: losses of logits built from some of them, everything frozen (framework §8).

All losses are of single positions, so that means, differences and their errors are taken by whoever asks. Logits of one
head are made from its `d_head` coordinates: `(W_U W_O^h) (A_h v)`.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from pathsum.paths.scored import BLOCK, Scored, row_losses, scored
from pathsum.runs.graded import FrozenRun, direct_streams, graded, last, streams
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
