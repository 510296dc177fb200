"""What a question about a prediction is about: a number of the logits at one position, as a direction on them.

Paths sum to `direction · logits`, before any soft-cap. The number itself may be more than that: a capped logit, or a
log-probability, which is no linear function of the logits. What the direction leaves out is a number too (`left_out`).
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from pathsum.errors import NotApplicable
from pathsum.paths.readout import place
from pathsum.runs.attention import soft_cap
from pathsum.runs.run import Run
from pathsum.weights.tokens import token_id


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


def logit(run: Run, token: str | int, position: int = -1) -> Target:
    """The logit of a token, in nats: `direction [d_vocab]` is one-hot.

    Raises `TextError` for what is no token of the model, `NotApplicable` for a position that is not there or a run of
    several texts. Paper: “Path Expansion of Logits”.

    >>> run = pathsum.run(pathsum.open("two-layer-small"), "Mr Dursley was proud. Mr D")
    >>> target = pathsum.logit(run, "ur")
    >>> print(f"{target.value:.1f}", target.position, target.direction.shape)
    11.7 13 torch.Size([1024])
    """
    return _of_logits(run, "logit", _one_hot(run, token), position)


def logit_difference(run: Run, token: str | int, versus: str | int, position: int = -1) -> Target:
    """The logit of one token less that of another, in nats: `direction [d_vocab]` is 1 at one and −1 at the other.

    Raises `TextError` for what is no token of the model, `NotApplicable` for a position that is not there or a run of
    several texts. Not in the paper.

    >>> run = pathsum.run(pathsum.open("two-layer-small"), "Mr Dursley was proud. Mr D")
    >>> print(f"{pathsum.logit_difference(run, 'ur', versus='is').value:.1f}")
    5.4
    """
    return _of_logits(run, "logit difference", _one_hot(run, token) - _one_hot(run, versus), position)


def log_probability(run: Run, token: str | int, position: int = -1) -> Target:
    """`log p(token)`, linearised at the run: `∂ log p / ∂ logits · logits`, from the uniform guess `−log d_vocab`.

    `direction [d_vocab]` is the gradient. All in nats; what is not linear is `left_out`. Raises `TextError` for what is
    no token of the model, `NotApplicable` for a position that is not there or a run of several texts. Not in the paper.

    >>> run = pathsum.run(pathsum.open("two-layer-small"), "Mr Dursley was proud. Mr D")
    >>> target = pathsum.log_probability(run, "ur")
    >>> print(f"{target.value:.2f} = {target.start:.2f} + {target.linear:.2f} + {target.left_out:.2f}")
    -0.51 = -6.93 + 1.42 + 5.00
    """
    token = _token(run, token)
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


def _one_hot(run: Run, token: str | int) -> Float[Tensor, " d_vocab"]:
    logits = run.uncapped_logits
    return torch.nn.functional.one_hot(torch.tensor(_token(run, token)), logits.shape[-1]).to(logits.dtype)


def _token(run: Run, token: str | int) -> int:
    """The token's id, of a run that has one prediction a position."""
    if run.tokens.dim() != 1:
        raise NotApplicable(f"a target is of one text; this run has tokens {list(run.tokens.shape)}")
    return token_id(run.model, token)
