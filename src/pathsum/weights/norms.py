"""A normalisation split into the part that is linear and the part that is one number per position.

`LayerNorm(x) = γ ⊙ (x − mean x)/σ + β`. Given 1/σ it is affine in x, which is what makes a frozen run linear
(“Handling Layer Normalization”). RMSNorm is the same without the mean and, usually, without β.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from pathsum.errors import NotApplicable
from pathsum.weights.spec import NormKind


@dataclass(frozen=True)
class Norm:
    """`apply(x, scale(x))` is the norm. `kind` "none" is the identity, with scale 1.

    Gain and bias are `[width]`, or `[head, width]` for queries and keys with vectors of their own in every head.

    Folding moves gain, centring and bias into the neighbouring matrices and leaves a Norm that only scales. A norm on
    what a layer *writes* (or on queries and keys) is then read off already multiplied vectors: `undo = 1/γ` tells how
    to measure their σ.
    """

    kind: NormKind = "none"
    eps: float | int = 1e-5
    gain: Float[Tensor, "... width"] | None = None
    bias: Float[Tensor, "... width"] | None = None
    undo: Float[Tensor, "... width"] | None = None
    folded: bool = False
    across: bool = False
    """One σ for all heads' queries (or keys) at a position: `x` is `[*batch, head, pos, width]` then."""

    def scale(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch"]:
        """1/σ at every position."""
        if self.kind == "none":
            return torch.ones(x.shape[:-1], dtype=x.dtype, device=x.device)
        if self.undo is not None:
            x = x * _along(self.undo)
        elif self.kind == "layer":
            x = x - x.mean(-1, keepdim=True)
        square = x.square().mean(-1)
        if self.across:
            square = square.mean(-2, keepdim=True).expand_as(square)
        return torch.rsqrt(square + self.eps)

    def apply(self, x: Float[Tensor, "*batch width"], scale: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch width"]:
        """`γ ⊙ centred(x) · scale + β`; after folding, `x · scale`, plus β where it could not move."""
        if self.kind == "none":
            return x
        if self.kind == "layer" and not self.folded:
            x = x - x.mean(-1, keepdim=True)
        x = x * scale.unsqueeze(-1)
        if self.gain is not None:
            x = x * _along(self.gain)
        return x if self.bias is None else x + _along(self.bias)

    def matrix(self, W: Float[Tensor, "*out width"]) -> Float[Tensor, "*out width"]:
        """`W diag(γ) C`: the norm's linear part moved into a matrix that reads (C centres, or is the identity)."""
        if self.kind == "none" or self.folded:
            return W
        if self.gain is not None:
            W = W * self.gain
        return W - W.mean(-1, keepdim=True) if self.kind == "layer" else W

    def offset(self, W: Float[Tensor, "*out width"]) -> Float[Tensor, "*out"] | None:
        """`W β`, what the norm's bias adds to such a matrix's output."""
        return None if self.bias is None or self.folded or self.kind == "none" else W @ self.bias

    def written(self, W: Float[Tensor, "*batch width columns"]) -> Float[Tensor, "*batch width columns"]:
        """`diag(γ) C W`: the linear part moved into a matrix whose output is normed."""
        if self.kind == "none" or self.folded:
            return W
        if self.kind == "layer":
            W = W - W.mean(-2, keepdim=True)
        return W if self.gain is None else W * self.gain.unsqueeze(-1)

    def of(self, head: int) -> "Norm":
        """The norm of one head's queries or keys."""
        own = lambda x: x if x is None or x.dim() == 1 else x[head]
        return replace(self, gain=own(self.gain), bias=own(self.bias), undo=own(self.undo))

    def before(self) -> "Norm":
        """What is left when the maps that read have taken gain, centring and bias."""
        return replace(self, gain=None, bias=None, folded=True)

    def after(self) -> "Norm":
        """What is left when the maps that write have taken gain and centring; β stays, added after the scale."""
        if self.kind == "none" or self.folded:
            return self
        if self.gain is not None and not self.gain.all():
            raise NotApplicable("cannot fold a norm after attention, MLP, query or key whose gain has a zero in it")
        return replace(self, gain=None, undo=None if self.gain is None else 1 / self.gain, folded=True)


def _along(vectors: Float[Tensor, "*head width"]) -> Tensor:
    """One vector for all positions, or one a head, `[head, 1, width]`."""
    return vectors if vectors.dim() == 1 else vectors.unsqueeze(-2)
