"""What a rotation does at many distances at once, in closed form.

1. `R(Δ) = diag(C t) + diag(S t) J`: linear in the waves `t(Δ) = (1, cos Δf_1 …, sin Δf_1 …)` of its angles; J turns
   every pair by a quarter, C and S say which wave a coordinate follows. `R(Δ)ᵀ = R(−Δ)`.
2. So `kᵀ R(Δ) q` is linear in t, and `tr(R(Δ) A R(Δ)ᵀ B)` and `R(Δ) A R(Δ)ᵀ` are quadratic in it.
3. A mean over any number of distances therefore needs only the mean of `w t tᵀ`, which is streamed.

Vectors and matrices here live in one head's `d_head` coordinates; everything is float64.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from pathsum.weights.positions import Rotary

BLOCK = 1024
"""Distances in memory at once."""


@dataclass(frozen=True)
class Rotation:
    """`R(Δ)` of a rotary layer as a function of Δ, the magnitude of both sides included."""

    positions: Rotary
    d_head: int

    def waves(self, deltas: Float[Tensor, " delta"]) -> Float[Tensor, "delta wave"]:
        """`t(Δ)`: 1, then the cosines, then the sines of every pair's angle."""
        angles = self.positions.angles(deltas)
        turning = torch.cat([angles.cos(), angles.sin()], -1) * self.positions.magnitude**2
        return torch.cat([torch.ones(len(deltas), 1, dtype=torch.float64), turning], -1)

    def linear(
        self, k: Float[Tensor, "*batch d_head"], q: Float[Tensor, "*batch d_head"]
    ) -> Float[Tensor, "*batch wave"]:
        """c with `kᵀ R(Δ) q = c · t(Δ)`."""
        C, S = self._follows
        return (k * q) @ C + (k * (q @ self._quarter.mT)) @ S

    def quadratic(
        self, A: Float[Tensor, "*batch d_head d_head"], B: Float[Tensor, "*batch d_head d_head"]
    ) -> Float[Tensor, "*batch wave wave"]:
        """N with `tr(R(Δ) A R(Δ)ᵀ B) = t(Δ)ᵀ N t(Δ)`, for symmetric A and B."""
        return sum((m.mT @ (part * B) @ n for m, n, part in self._parts(A)), torch.zeros(()))

    def conjugated(
        self, A: Float[Tensor, "*batch d_head d_head"], moment: Float[Tensor, "*batch wave wave"]
    ) -> Float[Tensor, "*batch d_head d_head"]:
        """`Σ_Δ w(Δ) R(Δ) A R(Δ)ᵀ` from the moment `Σ_Δ w(Δ) t(Δ) t(Δ)ᵀ`."""
        return sum((m @ moment @ n.mT * part for m, n, part in self._parts(A)), torch.zeros(()))

    def mean_conjugated(
        self,
        A: Float[Tensor, "*batch d_head d_head"],
        B: Float[Tensor, "*batch d_head d_head"],
        deltas: Float[Tensor, " delta"],
    ) -> Float[Tensor, "*batch d_head d_head"]:
        """Mean over Δ of `R(Δ) A R(Δ)ᵀ / tr(R(Δ) A R(Δ)ᵀ B)`; zero where that trace vanishes at some Δ.

        Memory: `BLOCK` distances a matrix of the batch, however many are asked for.
        """
        N, moment = self.quadratic(A, B), torch.zeros(())
        vanishes = torch.zeros(A.shape[:-2], dtype=torch.bool)
        for block in deltas.split(BLOCK):
            t = self.waves(block)
            trace = ((t @ N) * t).sum(-1)
            vanishes |= (trace <= 0).any(-1)
            moment = moment + (t / trace[..., None]).mT @ t / len(deltas)
        return self.conjugated(A, moment.where(~vanishes[..., None, None], 0))

    def _parts(self, A: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
        """The four products of `R A Rᵀ`: (rows' waves, columns' waves, matrix)."""
        (C, S), J = self._follows, self._quarter
        return [(C, C, A), (C, S, A @ J.mT), (S, C, J @ A), (S, S, J @ A @ J.mT)]

    @cached_property
    def _pairs(self) -> tuple[Tensor, Tensor]:
        """First and second coordinate of every pair."""
        half = torch.arange(self.positions.d_rotary // 2)
        return (2 * half, 2 * half + 1) if self.positions.interleaved else (half, half + len(half))

    @cached_property
    def _quarter(self) -> Float[Tensor, "d_head d_head"]:
        """J: a quarter turn of every pair, nothing of the coordinates that do not rotate."""
        a, b = self._pairs
        J = torch.zeros(self.d_head, self.d_head, dtype=torch.float64)
        J[a, b], J[b, a] = -1.0, 1.0
        return J

    @cached_property
    def _follows(self) -> tuple[Float[Tensor, "d_head wave"], Float[Tensor, "d_head wave"]]:
        """C and S: the wave that multiplies each coordinate, and each coordinate's quarter turn."""
        pairs, n = torch.arange(self.positions.d_rotary // 2), self.positions.d_rotary
        C, S = torch.zeros(2, self.d_head, n + 1, dtype=torch.float64)
        C[n:, 0] = 1.0
        for coordinates in self._pairs:
            C[coordinates, 1 + pairs] = 1.0
            S[coordinates, 1 + n // 2 + pairs] = 1.0
        return C, S
