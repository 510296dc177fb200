"""Next-token losses, in nats per token, and how they fall along a text."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from pathsum.runs.attention import soft_cap
from pathsum.runs.forward import logits
from pathsum.runs.run import Run
from pathsum.weights.spec import Spec
from pathsum.weights.weights import Weights

AT_ONCE = 1 << 24
"""Logits in memory at once: 64 MB in float32."""


def next_token_losses(
    logits: Float[Tensor, "*batch pos d_vocab"], tokens: Int[Tensor, "*batch pos"]
) -> Float[Tensor, "*batch predicted"]:
    """`−log p(token[i+1] | …)` at every position but the last: entry 0 is the loss of predicting the second token."""
    log_probabilities = logits[..., :-1, :].log_softmax(-1)
    return -log_probabilities.gather(-1, tokens[..., 1:, None]).squeeze(-1)


def losses_at(
    weights: Weights,
    residual: Float[Tensor, "row d_model"],
    scale: Float[Tensor, " row"],
    targets: Int[Tensor, " row"],
) -> Float[Tensor, " row"]:
    """Loss of predicting `targets` from the residual stream after the last layer, `AT_ONCE` logits at a time."""
    ends, cap, found = weights.ends, weights.spec.logit_cap, []
    for rows in torch.arange(len(targets)).split(max(1, AT_ONCE // weights.spec.d_vocab)):
        capped = soft_cap(logits(ends, residual[rows], scale[rows]), cap)
        found.append(cross_entropy(capped, targets[rows], reduction="none"))
    return torch.cat(found)


def residual_losses(
    weights: Weights,
    tokens: Int[Tensor, "*batch pos"],
    residual: Float[Tensor, "*batch pos d_model"],
    scale: Float[Tensor, "*batch pos"],
) -> Float[Tensor, "*batch predicted"]:
    """`next_token_losses` of a run's end, without all its logits in memory at once."""
    targets = tokens[..., 1:]
    found = losses_at(weights, residual[..., :-1, :].flatten(0, -2), scale[..., :-1].flatten(), targets.flatten())
    return found.reshape(targets.shape)


@torch.no_grad()
def run_losses(run: Run) -> Float[Tensor, "*batch predicted"]:
    """`next_token_losses` of a run, likewise."""
    return residual_losses(run.weights, run.tokens, run.residual, run.frozen.final_scale)


def in_context_tokens(spec: Spec, length: int) -> tuple[int, int]:
    """The (early, late) tokens compared, counted from 1: 50th and 500th, or one tenth and the end of a shorter text."""
    n = min(spec.n_ctx, length)
    return (50, 500) if n >= 500 else (max(n // 10, 2), n)


def in_context_score(losses: Float[Tensor, "*batch predicted"], early: int, late: int) -> Float[Tensor, "*batch"]:
    """Loss of predicting the `late`-th token less that of the `early`-th; negative: context helps."""
    return losses[..., late - 2] - losses[..., early - 2]
