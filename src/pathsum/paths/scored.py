"""Losses of logits made from some of a run's terms, at some of its positions, everything frozen.

`rows` are indices into the predicted positions of all contexts, one after the other. Losses are nats, one a row, in
float64; logits are made in blocks.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy, linear

from pathsum.runs.graded import FrozenRun

BLOCK = 1 << 22
"""Logits made at once."""


@dataclass(frozen=True, repr=False)
class Scored:
    """A frozen run and the rows at which logits built from its terms are scored."""

    frozen: FrozenRun
    rows: Int[Tensor, " row"]

    @cached_property
    def targets(self) -> Int[Tensor, " row"]:
        return self.frozen.run.tokens[..., 1:].flatten()[self.rows]

    @property
    def d_vocab(self) -> int:
        return self.frozen.weights.spec.d_vocab

    def parts(self, logits: int) -> list["Scored"]:
        """The same rows, so many at a time that their logits are no more than `logits`."""
        return [Scored(self.frozen, rows) for rows in self.rows.split(max(1, logits // self.d_vocab))]

    def scaled(self, x: Float[Tensor, "*any pos d"]) -> Float[Tensor, "*lead row d"]:
        """`S_f x` at the rows; axes before the run's own batch axes stay."""
        scaled = (x * self.frozen.run.frozen.final_scale.unsqueeze(-1))[..., :-1, :]
        return scaled.flatten(-1 - self.frozen.run.tokens.dim(), -2)[..., self.rows, :]

    def logits(self, scaled: Float[Tensor, "row d_model"], bias: bool = True) -> Float[Tensor, "row d_vocab"]:
        """`W_U x + b_U` of what `scaled` gave; without `bias`, `W_U x`."""
        return linear(scaled, self.frozen.ends.W_U, self.frozen.ends.b_U if bias else None)

    def losses(self, x: Float[Tensor, "*batch pos d_model"], bias: bool = True) -> Float[Tensor, " row"]:
        """Of the logits that residual vectors at the end stand for, with `b_U` or without."""
        scaled, size = self.scaled(x), max(1, BLOCK // self.d_vocab)
        both = zip(scaled.split(size), self.targets.split(size), strict=True)
        return torch.cat([row_losses(self.logits(some, bias), targets) for some, targets in both])


def scored(frozen: FrozenRun, rows: Int[Tensor, " row"] | None = None) -> Scored:
    """At these rows; None stands for all."""
    return Scored(frozen, torch.arange(frozen.run.tokens[..., 1:].numel()) if rows is None else rows)


def row_losses(logits: Float[Tensor, "row d_vocab"], targets: Int[Tensor, " row"]) -> Float[Tensor, " row"]:
    return cross_entropy(logits, targets, reduction="none").double()
