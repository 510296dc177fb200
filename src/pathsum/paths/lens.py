"""The logit lens as what it is here: the direct path of a partial sum of terms.

`W_U S x` of the stream x before a layer is the sum of all terms that end before it (by layer), of the stream's orders
up to k the sum of all terms of at most k heads (by order). S is the run's own final scale (`frozen`: each step adds up
to the run's logits exactly) or that of x itself (`recomputed`: what the model would say if it stopped there).
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from pathsum.paths.readout import place
from pathsum.runs.attention import soft_cap
from pathsum.runs.forward import logits
from pathsum.runs.graded import FrozenRun, graded, streams


@dataclass(frozen=True)
class Lens:
    """Logits at one position, soft-capped where the model does that."""

    labels: tuple[str, ...]
    frozen: Float[Tensor, "step *batch d_vocab"]
    recomputed: Float[Tensor, "step *batch d_vocab"]


@torch.no_grad()
def by_layer(run: FrozenRun, position: int = -1) -> Lens:
    """Of the stream before each layer, and after the last."""
    at = place(run.run, position)
    steps = torch.stack([x[..., at, :] for x in streams(run)])
    names = [f"before L{layer}" for layer in range(len(steps) - 1)]
    return _lens(run, (*names, "all"), steps, at)


@torch.no_grad()
def by_order(run: FrozenRun, position: int = -1) -> Lens:
    """Of all terms of at most 0, 1, … heads."""
    at = place(run.run, position)
    steps = graded(run)[..., at, :].cumsum(0)
    names = [f"order ≤ {order}" for order in range(len(steps) - 1)]
    return _lens(run, (*names, "all"), steps, at)


def _lens(run: FrozenRun, labels: tuple[str, ...], x: Tensor, at: int) -> Lens:
    cap = run.weights.spec.logit_cap
    own = run.ends.final_norm.scale(x)
    scales = run.run.frozen.final_scale[..., at].expand(own.shape), own
    frozen, recomputed = (soft_cap(logits(run.ends, x, scale), cap) for scale in scales)
    return Lens(labels, frozen, recomputed)
