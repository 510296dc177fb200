"""Where a model's attention learns about positions: a property of a layer, used by circuits and runs alike.

Learned positions that enter the residual stream are a source, not listed here (`Weights.W_pos`).
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from pathsum.errors import CheckpointError, NotApplicable
from pathsum.weights.checks import number, whole


@dataclass(frozen=True)
class Sinusoidal:
    """Fixed waves added to the inputs of queries and keys only, so that no position is in the residual stream.

    `P[p, 2i] = a · sin(p / base^(2i/d))`, `P[p, 2i+1] = a · cos(p / base^(2i/d))`.
    """

    kind: ClassVar[str] = "sinusoidal"
    amplitude: float | int = 1.0
    base: float | int = 10_000.0

    def __post_init__(self) -> None:
        number("positions amplitude", self.amplitude)
        number("positions base", self.base, above=0)

    def table(self, positions: Int[Tensor, " pos"], d_model: int, dtype: torch.dtype) -> Float[Tensor, "pos d_model"]:
        """The vectors added at `positions`, computed in float64."""
        index = torch.arange(0, d_model, 2, dtype=torch.float64, device=positions.device)
        angle = positions.double()[:, None] * self.base ** (-index / d_model)
        waves = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)[:, :d_model]
        return (self.amplitude * waves).to(dtype)


@dataclass(frozen=True)
class LearnedQK:
    """The model's `W_pos`, added to the inputs of queries and keys only ("shortformer")."""

    kind: ClassVar[str] = "learned_qk"


@dataclass(frozen=True)
class Rotary:
    """Queries and keys `[pos, d_head]` rotated by `R(p)` in their first `d_rotary` coordinates.

    Pair `i` turns by `p · f_i`, `f_i = base^(-2i/d_rotary)` or the given `frequencies`; pairs are `(2i, 2i+1)` when
    `interleaved`, else `(i, i + d_rotary/2)`. Both rotated vectors are then scaled by `magnitude`.
    With column vectors, `score = (R(i) q)ᵀ (R(j) k) = qᵀ R(Δ)ᵀ k`, `Δ = i − j`, angles in radians. Raises
    `CheckpointError` for sizes and numbers that make no rotation. Not in the paper.

    >>> import torch
    >>> rotary, (q, k) = pathsum.Rotary(d_rotary=4), torch.eye(4, dtype=torch.float64)[[0, 2]]
    >>> at = lambda x, position: rotary.rotate(x[None], torch.tensor([position]))[0]
    >>> torch.allclose(at(q, 7) @ at(k, 5), q @ rotary.matrix(2, d_head=4).T @ k)
    True
    """

    kind: ClassVar[str] = "rotary"
    d_rotary: int
    base: float | int = 10_000.0
    interleaved: bool = False
    frequencies: tuple[float | int, ...] | None = None
    magnitude: float | int = 1.0

    def __post_init__(self) -> None:
        whole("positions d_rotary", self.d_rotary, least=2)
        if self.d_rotary % 2:
            raise CheckpointError(f"config: positions d_rotary is {self.d_rotary}; coordinates turn in pairs")
        if self.frequencies is not None and len(self.frequencies) != self.d_rotary // 2:
            raise CheckpointError(
                f"config: {len(self.frequencies)} positions frequencies for {self.d_rotary // 2} pairs of coordinates"
            )
        number("positions base", self.base, above=0)
        number("positions magnitude", self.magnitude)
        for frequency in self.frequencies or ():
            number("positions frequency", frequency)

    def angles(self, positions: Tensor) -> Float[Tensor, "pos pairs"]:
        """Angle of every pair at every position, float64."""
        if self.frequencies is None:
            index = torch.arange(0, self.d_rotary, 2, dtype=torch.float64, device=positions.device)
            frequencies = self.base ** (-index / self.d_rotary)
        else:
            frequencies = torch.tensor(self.frequencies, dtype=torch.float64, device=positions.device)
        return positions.double()[:, None] * frequencies

    def rotate(self, x: Float[Tensor, "*batch pos d_head"], positions: Tensor) -> Float[Tensor, "*batch pos d_head"]:
        """`R(p) x` for the vector at each position."""
        angle = self.angles(positions)
        cos, sin = (angle.cos() * self.magnitude).to(x.dtype), (angle.sin() * self.magnitude).to(x.dtype)
        turned, rest = x[..., : self.d_rotary], x[..., self.d_rotary :]
        if self.interleaved:
            a, b = turned[..., 0::2], turned[..., 1::2]
            turned = torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)
        else:
            a, b = turned.chunk(2, dim=-1)
            turned = torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)
        return torch.cat([turned, rest], dim=-1)

    def matrix(self, delta: float | int, d_head: int) -> Float[Tensor, "d_head d_head"]:
        """`R(Δ)` for column vectors, float64, with the magnitude of both sides (its square) included."""
        eye = torch.eye(d_head, dtype=torch.float64)
        unit = Rotary(self.d_rotary, self.base, self.interleaved, self.frequencies)
        rotation = unit.rotate(eye, torch.full((d_head,), float(delta))).T
        rotation[: self.d_rotary] *= self.magnitude**2
        return rotation


@dataclass(frozen=True)
class Alibi:
    """A bias `−slope_h · (i − j)` on every score; `slopes` one a head."""

    kind: ClassVar[str] = "alibi"
    slopes: tuple[float | int, ...]

    def __post_init__(self) -> None:
        for slope in self.slopes:
            number("positions slope", slope)

    def bias(self, dst: Tensor, src: Tensor, dtype: torch.dtype) -> Float[Tensor, "head dst src"]:
        """What is added to each head's score from destinations `dst [dst]` to sources `src [src]`."""
        slopes = torch.tensor(self.slopes, dtype=torch.float64, device=dst.device)
        return (-slopes[:, None, None] * (dst[:, None] - src[None, :]).double()).to(dtype)


Positions = Sinusoidal | LearnedQK | Rotary | Alibi
KINDS: dict[str, type[Positions]] = {kind.kind: kind for kind in (Sinusoidal, LearnedQK, Rotary, Alibi)}


def rotation_of(
    positions: Positions | None, delta: float | int | None, d_head: int
) -> Float[Tensor, "d_head d_head"] | None:
    """`R(Δ)` where the layer is rotary, None where `W_QK` does not depend on Δ.

    Raises `NotApplicable` for a rotary layer without `delta`: there `W_QK` is a family of matrices, not one.
    """
    if not isinstance(positions, Rotary):
        return None
    if delta is None:
        raise NotApplicable("W_QK of a rotary layer depends on the distance Δ = destination − source; pass delta=")
    return positions.matrix(delta, d_head)
