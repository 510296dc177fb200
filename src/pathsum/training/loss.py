"""Cross-entropy with its gradient, some rows at a time: the logits of a batch are never held at once."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from pathsum.runs.forward import forward, logits
from pathsum.weights.weights import Weights

ROWS = 512
"""Positions whose logits are held at once: few enough to stay in a processor's cache."""


def mean_loss(
    weights: Weights, inputs: Int[Tensor, "batch pos"], targets: Int[Tensor, "batch pos"]
) -> Float[Tensor, ""]:
    """`−mean log p(target)` in nats, differentiable."""
    ends = weights.ends
    done = forward(weights, inputs)
    x = ends.final_norm.apply(done.residual, done.final_scale).flatten(0, 1)
    kind = torch.get_autocast_dtype(x.device.type) if torch.is_autocast_enabled(x.device.type) else x.dtype
    return _ChunkedCrossEntropy.apply(x, ends.W_U, targets.flatten(), kind)


def position_losses(
    weights: Weights, inputs: Int[Tensor, "batch pos"], targets: Int[Tensor, "batch pos"]
) -> Float[Tensor, "batch pos"]:
    """`−log p(target)` in nats at every position, by the plain way."""
    done = forward(weights, inputs)
    scores = logits(weights.ends, done.residual, done.final_scale).float()
    return torch.nn.functional.cross_entropy(scores.flatten(0, 1), targets.flatten(), reduction="none").view_as(inputs)


class _ChunkedCrossEntropy(torch.autograd.Function):
    """`mean(logsumexp(W_U x) − (W_U x)[target])`; the gradient is made on the way, `softmax − onehot`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, W_U: Tensor, targets: Tensor, kind: torch.dtype) -> Tensor:
        read, unembed = x.to(kind), W_U.to(kind)
        grad_read, grad_unembed = torch.empty_like(read), torch.zeros_like(W_U)
        total = torch.zeros((), dtype=torch.float32, device=x.device)
        for first in range(0, len(x), ROWS):
            rows, wanted = read[first : first + ROWS], targets[first : first + ROWS, None]
            scores = (rows @ unembed.mT).float()
            scores -= scores.amax(-1, keepdim=True)
            total -= scores.gather(1, wanted).sum()
            partition = scores.exp_().sum(-1, keepdim=True)
            total += partition.log().sum()
            scores /= partition
            scores.scatter_add_(1, wanted, scores.new_full(wanted.shape, -1.0))
            grad = scores.to(kind)
            grad_read[first : first + ROWS] = grad @ unembed
            grad_unembed += grad.mT @ rows
        ctx.save_for_backward(grad_read, grad_unembed)
        ctx.rows, ctx.kind = len(x), x.dtype
        return total / len(x)

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        grad_read, grad_unembed = ctx.saved_tensors
        share = grad[0] / ctx.rows
        return grad_read.to(ctx.kind) * share, grad_unembed * share, None, None
