"""What a question about a prediction is about: a number of the logits at one position, as a direction on them.

Paths sum to `direction · logits`, before any soft-cap. The number itself may be more than that: a capped logit, or a
log-probability, which is no linear function of the logits. What the direction leaves out is a number too (`left_out`).
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from pathsum.paths.readout import place
from pathsum.runs.attention import soft_cap
from pathsum.runs.run import Run


@dataclass(frozen=True, repr=False)
class Target:
    """One number of the logits at a position."""

    kind: str
    """logit, logit difference, or log-probability."""
    position: int
    direction: Float[Tensor, " d_vocab"]
    of: Callable[[Float[Tensor, "*batch d_vocab"]], Float[Tensor, "*batch"]]
    """The number, of logits before any soft-cap."""
    value: float
    """The run's, in nats."""
    start: float
    """That of logits that are all zero."""
    linear: float
    """`direction · logits`: what paths sum to."""

    @property
    def left_out(self) -> float:
        """`value − start − direction · logits`: 0 of a logit without a soft-cap."""
        return self.value - self.start - self.linear


def logit(run: Run, token: int, position: int = -1) -> Target:
    """The logit of a token."""
    return _of_logits(run, "logit", _one_hot(run, token), position)


def logit_difference(run: Run, token: int, versus: int, position: int = -1) -> Target:
    """The logit of one token less that of another."""
    return _of_logits(run, "logit difference", _one_hot(run, token) - _one_hot(run, versus), position)


def log_probability(run: Run, token: int, position: int = -1) -> Target:
    """`log p(token)`, linearised at the run: `∂ log p / ∂ logits · logits`, from the uniform guess `−log d_vocab`."""
    cap = run.model.spec.logit_cap
    position = place(run, position)
    at = run.uncapped_logits[position].detach().clone().requires_grad_()
    with torch.enable_grad():
        soft_cap(at, cap).log_softmax(-1)[token].backward()
    direction = at.grad if at.grad is not None else torch.zeros_like(at)
    return _target(run, "log-probability", direction, position, lambda x: soft_cap(x, cap).log_softmax(-1)[..., token])


def _of_logits(run: Run, kind: str, direction: Tensor, position: int) -> Target:
    cap = run.model.spec.logit_cap
    return _target(run, kind, direction, place(run, position), lambda x: soft_cap(x, cap) @ direction)


def _target(run: Run, kind: str, direction: Tensor, position: int, of: Callable[[Tensor], Tensor]) -> Target:
    logits = run.uncapped_logits[position]
    numbers = (of(logits).item(), of(torch.zeros_like(logits)).item(), (logits @ direction).item())
    return Target(kind, position, direction, of, *numbers)


def _one_hot(run: Run, token: int) -> Float[Tensor, " d_vocab"]:
    logits = run.uncapped_logits
    return torch.nn.functional.one_hot(torch.tensor(token), logits.shape[-1]).to(logits.dtype)
