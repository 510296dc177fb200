"""What the terms are worth: losses of logits built from some of them, everything frozen (framework §8)."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from pathsum.runs.graded import FrozenRun, graded_streams
from pathsum.runs.linear import each_head_output
from pathsum.weights.blocks import Block


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


def order_losses(frozen: FrozenRun) -> list[float]:
    """Loss of the sum of all terms of order ≤ n, for n = −1 (uniform: log d_vocab), 0, …, n_layers."""
    tokens = frozen.run.tokens
    *_, g = graded_streams(frozen)
    uniform = torch.tensor(float(frozen.weights.spec.d_vocab)).log().item()
    return [uniform, *(_loss(frozen, partial, tokens) for partial in g.cumsum(0))]


def head_losses(frozen: FrozenRun, by_layer: bool = False) -> list[HeadLosses]:
    """For every head (or every layer), the loss of its terms alone beside the direct path, and of all but its terms."""
    tokens = frozen.run.tokens
    *_, g = graded_streams(frozen)
    direct, everything = g[0], g.sum(0)
    found = []
    for name, first, ending in _contributions(frozen, by_layer):
        losses = (_loss(frozen, x, tokens) for x in (direct + first, direct + ending, everything - ending))
        found.append(HeadLosses(name, *losses))
    return found


def _contributions(frozen: FrozenRun, by_layer: bool) -> Iterator[tuple[str, Tensor, Tensor]]:
    """(name, order-1 output, whole output) in the residual stream."""
    for (block, seen), g in zip(frozen.layers, graded_streams(frozen), strict=False):
        outputs = each_head_output(block, seen, torch.stack([g[0], g.sum(0)]))
        if by_layer:
            yield f"L{block.layer}", *outputs.sum(-3)
        else:
            yield from ((name, *outputs[..., i, :, :]) for i, name in enumerate(_names(block)))


def _names(block: Block) -> list[str]:
    return [f"L{block.layer}H{index}" for index in range(block.n_heads)]


def _loss(frozen: FrozenRun, x: Float[Tensor, "*batch pos d_model"], tokens: Int[Tensor, "*batch pos"]) -> float:
    logits = frozen.unembed(x)[..., :-1, :]
    logits = logits if frozen.ends.b_U is None else logits + frozen.ends.b_U
    return cross_entropy(logits.flatten(0, -2), tokens[..., 1:].flatten()).item()
