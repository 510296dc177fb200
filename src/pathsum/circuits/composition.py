"""How strongly heads read what earlier heads wrote (framework §6; the paper's "Two-layer attention-only transformers").

    Q: ‖W_QK^{h2}ᵀ W_OV^{h1}‖   K: ‖W_QK^{h2} W_OV^{h1}‖   V: ‖W_OV^{h2} W_OV^{h1}‖, over the product of both norms

1. `‖R W‖² = ⟨RᵀR, W Wᵀ⟩`: each reader and each writer becomes one Gram matrix on the shared d_model-dimensional space.
2. Both Gram matrices are symmetric and streamed in slabs of rows, so all pairs of two layers are one GEMM a slab.
3. Against chance: mean and variance of `‖R W‖²` over random relative rotations are known exactly; z measures in them.
4. Against the possible: `ceiling` is the largest score any relative rotation of the two could give.

Norms are of the product in its true order. A cyclic permutation inside the norm (the paper's erratum) changes them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from pathsum.circuits.tables import layer_OV, layer_QK
from pathsum.errors import NotApplicable
from pathsum.lowrank import LowRank
from pathsum.weights.positions import Rotary
from pathsum.weights.weights import Weights

Kind = Literal["Q", "K", "V"]
KINDS: tuple[Kind, ...] = ("Q", "K", "V")
Delta = float | int | Sequence[float | int] | Literal["rms"] | None


@dataclass(frozen=True)
class Pairs:
    """Scores of every reader with every writer, and what they are to be held against."""

    score: Float[Tensor, "reader writer"]
    baseline: float
    """1/√d_model: the root mean square over random relative rotations, whatever the spectra."""
    ceiling: Float[Tensor, "reader writer"]
    z: Float[Tensor, "reader writer"]
    """(‖RW‖² − mean)/sd over Haar-random relative rotations of these very spectra; NaN where that sd is zero."""


def composition_pairs(readers: LowRank, writers: LowRank, slab: int = 64) -> Pairs:
    """`‖R W‖ / (‖R‖ ‖W‖)` for every reader `[reader, *, d]` with every writer `[writer, d, *]`, in float64.

    Memory: two slabs of `slab × d_model` a matrix.
    """
    d = writers.shape[-2]
    squares = _gram_products(readers, writers, slab)
    r, w = readers.singular_values().square(), writers.singular_values().square()
    r_total, w_total = r.sum(-1)[:, None], w.sum(-1)[None, :]
    score = squares.clamp_min(0).sqrt() / (r_total * w_total).sqrt()
    k = min(r.shape[-1], w.shape[-1])
    ceiling = (r[:, :k] @ w[:, :k].mT).sqrt() / (r_total * w_total).sqrt()
    mean, variance = null_moments(r_total, r.square().sum(-1)[:, None], w_total, w.square().sum(-1)[None, :], d)
    known = variance > 1e-12 * mean.square()
    z = torch.where(known, (squares - mean) / variance.clamp_min(0).sqrt(), torch.nan)
    return Pairs(score, d**-0.5, ceiling, z)


def null_moments(a1: Tensor, a2: Tensor, b1: Tensor, b2: Tensor, d: int) -> tuple[Tensor, Tensor]:
    """Mean and variance of `tr(A Q B Qᵀ)` for Haar-random orthogonal Q; `a1 = tr A, a2 = tr A²`, likewise B.

    E = a1 b1 / d,  E² = (a1² + 2a2)(b1² + 2b2) / (3d(d+2)) + 2(a1² − a2)(b1² − b2) / (3d(d−1)).
    """
    mean = a1 * b1 / d
    if d == 1:
        return mean, torch.zeros_like(mean)
    symmetric = (a1**2 + 2 * a2) * (b1**2 + 2 * b2) / (3 * d * (d + 2))
    alternating = 2 * (a1**2 - a2) * (b1**2 - b2) / (3 * d * (d - 1))
    return mean, symmetric + alternating - mean**2


def reader_matrices(weights: Weights, layer: int, kind: Kind, delta: float | int | None = None) -> LowRank:
    """What each head of a layer reads with: Q `W_QKᵀ`, K `W_QK`, V `W_OV`, as `[head, d_model, d_model]`."""
    if kind == "V":
        return layer_OV(weights, layer)
    QK = layer_QK(weights, layer, delta)
    return QK.T if kind == "Q" else QK


def layer_composition(weights: Weights, kind: Kind, later: int, earlier: int, delta: Delta = None) -> Pairs | None:
    """Composition of every head of layer `later` with every head of layer `earlier` (folded weights).

    Where W_QK depends on Δ (rotary), Q and K need `delta=` one distance, several, or "rms" (0 … n_ctx − 1): the root
    mean square of score(Δ); then z is NaN for more than one. Without it they are undefined: None.
    """
    if isinstance(delta, str) and delta != "rms":
        raise NotApplicable(f"delta is {delta!r}; it may be a number, several, or 'rms'")
    if later <= earlier:
        raise NotApplicable(f"layer {later} does not read layer {earlier}: composition needs an earlier writer")
    writers = layer_OV(weights, earlier)
    rotary = kind != "V" and isinstance(weights.spec.layers[later].positions, Rotary)
    if not rotary:
        return composition_pairs(reader_matrices(weights, later, kind), writers)
    if delta is None:
        return None
    deltas = range(weights.spec.n_ctx) if delta == "rms" else [delta] if isinstance(delta, int | float) else delta
    each = [composition_pairs(reader_matrices(weights, later, kind, float(x)), writers) for x in deltas]
    if len(each) == 1:
        return each[0]
    score = torch.stack([pairs.score.square() for pairs in each]).mean(0).sqrt()
    ceiling = torch.stack([pairs.ceiling for pairs in each]).amax(0)
    return Pairs(score, each[0].baseline, ceiling, torch.full_like(score, torch.nan))


def cyclic_score(weights: Weights, kind: Kind, later: int, earlier: int) -> Float[Tensor, "reader writer"]:
    """The erratum: the reader's first factor moved to the back inside the norm, over the true denominators.

    K: `‖W_K^{h2} W_OV^{h1} W_Q^{h2}ᵀ‖`. Shown to see what the bug showed; it is not composition.
    """
    readers, writers = reader_matrices(weights, later, kind), layer_OV(weights, earlier)
    readers, writers = readers.to(torch.float64), writers.to(torch.float64)
    moved = torch.einsum("aij,bjk,bkl,alm->abim", readers.right, writers.left, writers.right, readers.left)
    return moved.square().sum((-1, -2)).sqrt() / (readers.norm()[:, None] * writers.norm()[None, :])


def sampled_baseline(spec_d_model: int, d_head: int, samples: int = 64, seed: int = 0) -> tuple[float, float]:
    """The paper's baseline: mean score of random Gaussian matrices of the heads' shapes, and its standard error."""
    generator = torch.Generator().manual_seed(seed)

    def head() -> LowRank:
        shape = (samples, spec_d_model, d_head)
        left, right = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))
        return LowRank(left, right.mT)

    reader, writer = head(), head()
    scores = (reader @ writer).norm() / (reader.norm() * writer.norm())
    return scores.mean().item(), (scores.std() / samples**0.5).item()


def _gram_products(readers: LowRank, writers: LowRank, slab: int) -> Float[Tensor, "reader writer"]:
    """`⟨RᵀR, W Wᵀ⟩` for all pairs, slab by slab of the shared space."""
    R, L = readers.right.double(), writers.left.double()
    R_core = (readers.left.mT.double() @ readers.left.double()) @ R
    L_core = L @ (writers.right.double() @ writers.right.mT.double())
    total = torch.zeros(len(R), len(L), dtype=torch.float64)
    for start in range(0, R.shape[-1], slab):
        rows = slice(start, start + slab)
        reader_gram = (R[:, :, rows].mT @ R_core).flatten(1)
        writer_gram = (L_core[:, rows, :] @ L.mT).flatten(1)
        total += reader_gram @ writer_gram.mT
    return total
