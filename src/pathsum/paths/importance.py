"""What the terms are worth: losses of logits built from some of them, everything frozen (framework §8).

All losses are means over `rows`: indices into the predicted positions of all contexts, one after the other; None stands
for all of them. Logits are made in blocks, and those of one head from its `d_head` coordinates: `(W_U W_O^h) (A_h v)`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from pathsum.runs.graded import FrozenRun, direct_streams, graded, last, streams
from pathsum.runs.linear import mixed_values

KEPT = 1 << 25
"""Logits of the direct path kept at once, and as many of all terms: 128 MB each in float32."""
BLOCK = 1 << 22
"""Logits of other sets of terms made at once."""

Rows = Int[Tensor, " row"] | None


@dataclass(frozen=True)
class HeadLosses:
    """Losses, nats per token, of one set of terms: those of one head, or of all heads of a layer."""

    name: str
    individual: float
    """Direct path plus the order-1 terms of the set."""
    ending: float
    """Direct path plus all terms whose last head is in the set."""
    without: float
    """All terms but those whose last head is in the set."""


@torch.no_grad()
def order_losses(frozen: FrozenRun, rows: Rows = None) -> list[float]:
    """Loss of the sum of all terms of order ≤ n, for n = −1 (uniform: log d_vocab), 0, …, n_layers."""
    losses = [torch.tensor(float(frozen.weights.spec.d_vocab)).log().item()]
    total = torch.zeros_like(frozen.run.residual, dtype=frozen.ends.W_U.dtype)
    for part in graded(frozen):
        total = total + part
        losses.append(_loss(frozen, total, rows))
    return losses


@torch.no_grad()
def direct_and_full_loss(frozen: FrozenRun, rows: Rows = None) -> tuple[float, float]:
    """Loss of the terms of order 0, and of all terms."""
    return _loss(frozen, last(direct_streams(frozen)), rows), _loss(frozen, last(streams(frozen)), rows)


@torch.no_grad()
def head_losses(frozen: FrozenRun, by_layer: bool = False, rows: Rows = None) -> list[HeadLosses]:
    """For every head (or every layer), the loss of its terms alone beside the direct path, and of all but its terms."""
    rows = _every(frozen) if rows is None else rows
    totals: dict[str, Tensor] = {}
    for part in rows.split(max(1, KEPT // frozen.weights.spec.d_vocab)):
        targets = _targets(frozen)[part]
        direct, full = (
            _logits(frozen, _scaled(frozen, last(each(frozen)))[part]) for each in (direct_streams, streams)
        )
        for name, first, ending, W in _sets(frozen, by_layer, part):
            summed = _summed_losses(first, ending, W, direct, full, targets)
            totals[name] = totals[name] + summed if name in totals else summed
    return [HeadLosses(name, *(total / len(rows)).tolist()) for name, total in totals.items()]


def _sets(frozen: FrozenRun, by_layer: bool, rows: Tensor) -> Iterator[tuple[str, Tensor, Tensor, Tensor]]:
    """(name, coordinates of the set's order-1 output, of its whole output, the map from them to logits)."""
    W_U = frozen.ends.W_U
    for (block, seen), direct, full in zip(frozen.layers, direct_streams(frozen), streams(frozen), strict=False):
        # In the first layer all terms of a head are of order 1.
        read = full[None] if block.layer == 0 else torch.stack([direct, full])
        mixed = mixed_values(block, seen, read).movedim(-3, 1) * seen.post_attention_scale.unsqueeze(-1)
        mixed = _scaled(frozen, mixed)[..., rows, :]
        if by_layer:
            written = torch.einsum("khpr,hdr->kpd", mixed, block.W_O)
            yield f"L{block.layer}", written[0], written[-1], W_U
        else:
            for head in block.heads:
                yield head.name, mixed[0, head.index], mixed[-1, head.index], W_U @ head.W_O


def _summed_losses(
    first: Float[Tensor, "row r"],
    ending: Float[Tensor, "row r"],
    W: Float[Tensor, "d_vocab r"],
    direct: Float[Tensor, "row d_vocab"],
    full: Float[Tensor, "row d_vocab"],
    targets: Int[Tensor, " row"],
) -> Float[Tensor, " three"]:
    """Sums over rows of the losses of direct + first, direct + ending and full − ending."""
    total = torch.zeros(3, dtype=torch.float64)
    for block in torch.arange(len(targets)).split(max(1, BLOCK // len(W))):
        own = slice(int(block[0]), int(block[-1]) + 1)
        all_logits = ending[own] @ W.mT
        first_logits = all_logits if first is ending else first[own] @ W.mT
        parts = (direct[own] + first_logits, direct[own] + all_logits, full[own] - all_logits)
        total += torch.stack([_summed(part, targets[own]) for part in parts])
    return total


def _loss(frozen: FrozenRun, x: Float[Tensor, "*batch pos d_model"], rows: Rows) -> float:
    rows = _every(frozen) if rows is None else rows
    scaled, targets = _scaled(frozen, x), _targets(frozen)
    blocks = rows.split(max(1, BLOCK // frozen.weights.spec.d_vocab))
    return sum(_summed(_logits(frozen, scaled[part]), targets[part]).item() for part in blocks) / len(rows)


def _scaled(frozen: FrozenRun, x: Float[Tensor, "*any pos d"]) -> Float[Tensor, "*lead row d"]:
    """`S_f x` at every position that predicts a token of the text, those of all contexts on one axis."""
    scaled = (x * frozen.run.frozen.final_scale.unsqueeze(-1))[..., :-1, :]
    batch = frozen.run.tokens.dim() - 1
    return scaled.flatten(-2 - batch, -2)


def _logits(frozen: FrozenRun, x: Float[Tensor, "row d_model"]) -> Float[Tensor, "row d_vocab"]:
    return torch.nn.functional.linear(x, frozen.ends.W_U, frozen.ends.b_U)


def _targets(frozen: FrozenRun) -> Int[Tensor, " row"]:
    return frozen.run.tokens[..., 1:].flatten()


def _every(frozen: FrozenRun) -> Int[Tensor, " row"]:
    return torch.arange(_targets(frozen).numel())


def _summed(logits: Float[Tensor, "row d_vocab"], targets: Int[Tensor, " row"]) -> Float[Tensor, ""]:
    return cross_entropy(logits, targets, reduction="none").double().sum()
