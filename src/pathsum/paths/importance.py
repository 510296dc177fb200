"""What the terms are worth: losses of logits built from some of them, everything frozen (framework §8)."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cross_entropy

from pathsum.runs.graded import FrozenRun, graded_streams
from pathsum.runs.linear import each_head_output


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
    *_, g = graded_streams(frozen)
    uniform = torch.tensor(float(frozen.weights.spec.d_vocab)).log().item()
    return [uniform, *(_loss(frozen, partial) for partial in g.cumsum(0))]


def head_losses(frozen: FrozenRun, by_layer: bool = False) -> list[HeadLosses]:
    """For every head (or every layer), the loss of its terms alone beside the direct path, and of all but its terms."""
    *_, g = graded_streams(frozen)
    direct, everything = _predictions(frozen, g[0]), _predictions(frozen, g.sum(0))
    found = []
    for name, first, ending in _contributions(frozen, by_layer):
        ending_logits = _predictions(frozen, ending, with_bias=False)
        # In the first layer all terms of a head are of order 1.
        first_logits = ending_logits if first is ending else _predictions(frozen, first, with_bias=False)
        parts = (direct + first_logits, direct + ending_logits, everything - ending_logits)
        found.append(HeadLosses(name, *(_cross_entropy(frozen, part) for part in parts)))
    return found


def _contributions(frozen: FrozenRun, by_layer: bool) -> Iterator[tuple[str, Tensor, Tensor]]:
    """(name, order-1 output, whole output) in the residual stream."""
    for (block, seen), g in zip(frozen.layers, graded_streams(frozen), strict=False):
        outputs = each_head_output(block, seen, g[:1] if len(g) == 1 else torch.stack([g[0], g.sum(0)]))
        firsts, endings = outputs[0], outputs[-1]
        if by_layer:
            ending = endings.sum(-3)
            yield f"L{block.layer}", ending if len(g) == 1 else firsts.sum(-3), ending
        else:
            for head in block.heads:
                ending = endings[..., head.index, :, :]
                yield head.name, ending if len(g) == 1 else firsts[..., head.index, :, :], ending


def _loss(frozen: FrozenRun, x: Float[Tensor, "*batch pos d_model"]) -> float:
    return _cross_entropy(frozen, _predictions(frozen, x))


def _predictions(frozen: FrozenRun, x: Float[Tensor, "*batch pos d_model"], with_bias: bool = True) -> Tensor:
    """Logits at every position that predicts a token of the text."""
    logits = frozen.unembed(x)[..., :-1, :]
    return logits + frozen.ends.b_U if with_bias and frozen.ends.b_U is not None else logits


def _cross_entropy(frozen: FrozenRun, logits: Float[Tensor, "*batch predicted d_vocab"]) -> float:
    return cross_entropy(logits.flatten(0, -2), frozen.run.tokens[..., 1:].flatten()).item()
