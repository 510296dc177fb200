"""What is measured while a model trains: loss on held-out text, and whether a head has become an induction head."""

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from pathsum.behaviour.attention import prefix_matching, repeated_tokens
from pathsum.runs.forward import forward
from pathsum.training.loss import position_losses
from pathsum.weights.spec import Spec
from pathsum.weights.weights import Weights

INDUCTION = 0.2
"""Induction has appeared when the best head's prefix matching is at least this."""


@dataclass(frozen=True)
class BestHead:
    """The head with the highest prefix-matching score."""

    name: str
    prefix_matching: float


def validation_loss(weights: Weights, windows: Int[Tensor, "window pos_plus_one"], at_once: int = 16) -> float:
    """Mean loss over the windows, nats a token."""
    with torch.no_grad():
        parts = [position_losses(weights, rows[:, :-1], rows[:, 1:]) for rows in windows.split(at_once)]
    return float(torch.cat(parts).mean())


def best_head(weights: Weights, tokens: Int[Tensor, "batch pos"]) -> BestHead | None:
    """The head with the highest prefix matching on such tokens; None for a model without layers."""
    if not weights.spec.n_layers:
        return None
    with torch.no_grad():
        layers = forward(weights, tokens, record=True).frozen.layers
    scores = torch.stack([prefix_matching(layer.pattern.float(), tokens) for layer in layers])
    layer, head = divmod(int(scores.argmax()), weights.spec.n_heads)
    return BestHead(f"L{layer}H{head}", float(scores.max()))


def induction_text(spec: Spec) -> Int[Tensor, "batch pos"]:
    """What `best_head` is measured on: random tokens three times over, in blocks of a third of the context."""
    return repeated_tokens(spec, min(spec.n_ctx // 3, spec.d_vocab), batch=4)
