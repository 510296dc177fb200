"""How strongly heads read what earlier heads wrote (framework §6; the paper's "Two-layer attention-only transformers").

    Q: ‖W_QK^{h2}ᵀ W_OV^{h1}‖   K: ‖W_QK^{h2} W_OV^{h1}‖   V: ‖W_OV^{h2} W_OV^{h1}‖, over the product of both norms

1. `‖R W‖² = ⟨RᵀR, W Wᵀ⟩`: each reader and each writer becomes one Gram matrix on the shared d_model-dimensional space.
2. Both Gram matrices are symmetric and streamed in slabs of rows, so all pairs of two layers are one GEMM a slab.
3. Against chance: mean and variance of `‖R W‖²` over random relative rotations are known exactly; z measures in them.
4. Against the possible: `ceiling` is the largest score any relative rotation of the two could give.
5. Rotary readers over several distances: the Gram matrices, each over its own norm, are averaged first. The mean is
   a Gram matrix too, so the root mean square of score(Δ) has its exact z and ceiling, at the cost of one distance.

Norms are of the product in its true order. A cyclic permutation inside the norm (the paper's erratum) changes them.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from pathsum.circuits.rotation import Rotation
from pathsum.circuits.tables import layer_OV, layer_QK
from pathsum.errors import NotApplicable
from pathsum.lowrank import LowRank
from pathsum.weights.positions import Rotary
from pathsum.weights.weights import Weights

Kind = Literal["Q", "K", "V"]
KINDS: tuple[Kind, ...] = ("Q", "K", "V")
Delta = float | int | Sequence[float | int] | Literal["rms"] | None
HELD = 1 << 21
"""Numbers of one factor of a group of layers that `compositions` holds at once."""


@dataclass(frozen=True)
class Pairs:
    """Scores of every reader with every writer, and what they are to be held against."""

    score: Float[Tensor, "reader writer"]
    baseline: float
    """1/√d_model: the root mean square over random relative rotations, whatever the spectra."""
    ceiling: Float[Tensor, "reader writer"]
    z: Float[Tensor, "reader writer"]
    """(‖RW‖² − mean)/sd over Haar-random relative rotations of these very spectra; NaN where that sd is zero.

    Of a root mean square over Δ: one random rotation for all distances together, and likewise for the ceiling.
    """

    def part(self, readers: slice, writers: slice) -> "Pairs":
        """Some of the readers with some of the writers."""
        cut = (readers, writers)
        return Pairs(self.score[cut], self.baseline, self.ceiling[cut], self.z[cut])


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


def layer_readers(weights: Weights, layer: int, kind: Kind, delta: Delta = None) -> LowRank | None:
    """What composition needs of a layer's readers R, `[head, d_head, d_model]`: X with `XᵀX = RᵀR`, in float64.

    Rotary Q and K over several Δ: `XᵀX = mean_Δ R(Δ)ᵀR(Δ) / ‖R(Δ)‖²`; without Δ they are undefined: None.
    Raises `NotApplicable` for a `delta` that is no distance.
    """
    positions = weights.spec.layers[layer].positions
    deltas = None if delta is None else distances(delta, weights.spec.n_ctx)
    if kind == "V" or not isinstance(positions, Rotary):
        return _root(reader_matrices(weights, layer, kind).to(torch.float64))
    if deltas is None:
        return None
    if len(deltas) == 1:
        return _root(reader_matrices(weights, layer, kind, deltas.item()).to(torch.float64))
    heads = weights.attention(layer).heads
    W_Q, W_K = (torch.stack(part).double() for part in ([h.W_Q for h in heads], [h.W_K for h in heads]))
    # K: ‖W_Qᵀ R(Δ)ᵀ W_K …‖, Q: ‖W_Kᵀ R(−Δ)ᵀ W_Q …‖.
    near, far, sign = (W_K, W_Q, 1) if kind == "K" else (W_Q, W_K, -1)
    rotation = Rotation(positions, weights.spec.d_head)
    gram = rotation.mean_conjugated(far @ far.mT, near @ near.mT, sign * deltas)
    return LowRank(_square_root(gram), near)


def distances(delta: Delta, n_ctx: int) -> Float[Tensor, " delta"]:
    """The distances that `delta` stands for: itself, those given, or 0 … n_ctx − 1 for "rms"."""
    if isinstance(delta, str) and delta == "rms":
        return torch.arange(n_ctx, dtype=torch.float64)
    several = [delta] if isinstance(delta, int | float) else delta
    if not isinstance(several, Sequence) or isinstance(several, str) or not several:
        raise NotApplicable(f"delta is {delta!r}; it may be a number, several, or 'rms'")
    if wrong := [x for x in several if not isinstance(x, int | float) or not math.isfinite(x)]:
        raise NotApplicable(f"delta holds {wrong[0]!r}, which is no distance; it may be a number, several, or 'rms'")
    return torch.tensor([float(x) for x in several], dtype=torch.float64)


def layer_composition(weights: Weights, kind: Kind, later: int, earlier: int, delta: Delta = None) -> Pairs | None:
    """Composition of every head of layer `later` with every head of layer `earlier` (folded weights).

    Where W_QK depends on Δ (rotary), Q and K need `delta=` one distance, several, or "rms" (0 … n_ctx − 1); for more
    than one the score is √(mean of score(Δ)²). Without it they are undefined: None.
    """
    if later <= earlier:
        raise NotApplicable(f"layer {later} does not read layer {earlier}: composition needs an earlier writer")
    readers = layer_readers(weights, later, kind, delta)
    return None if readers is None else composition_pairs(readers, layer_OV(weights, earlier))


def compositions(weights: Weights, kind: Kind, delta: Delta = None) -> Iterator[tuple[int, int, Pairs | None]]:
    """`layer_composition` of all layers that can compose, as `(later, earlier, pairs)`, many in one product.

    Layers are read and held in groups of at most `HELD` numbers a factor.
    """
    spec = weights.spec
    size = max(1, HELD // (spec.n_heads * spec.d_head * spec.d_model))
    groups = [range(spec.n_layers)[start : start + size] for start in range(0, spec.n_layers, size)]
    for place, laters in enumerate(groups):
        found = {later: layer_readers(weights, later, kind, delta) for later in laters}
        known = {later: readers for later, readers in found.items() if readers is not None}
        rows = {later: _heads_at(row, spec.n_heads) for row, later in enumerate(known)}
        for earliers in groups[: place + 1]:
            pairs = _group_pairs(list(known.values()), [layer_OV(weights, earlier) for earlier in earliers])
            for later, (column, earlier) in product(laters, enumerate(earliers)):
                if earlier < later:
                    columns = _heads_at(column, spec.n_heads)
                    part = None if pairs is None or later not in rows else pairs.part(rows[later], columns)
                    yield later, earlier, part


def cyclic_score(
    weights: Weights, kind: Kind, later: int, earlier: int, delta: float | int | None = None
) -> Float[Tensor, "reader writer"]:
    """The erratum: the reader's first factor moved to the back inside the norm, over the true denominators.

    K: `‖W_K^{h2} W_OV^{h1} W_Q^{h2}ᵀ‖`. Shown to see what the bug showed; it is not composition.
    """
    readers, writers = reader_matrices(weights, later, kind, delta), layer_OV(weights, earlier)
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


def _group_pairs(readers: list[LowRank], writers: list[LowRank]) -> Pairs | None:
    """All readers with all writers; None without readers."""
    if not readers:
        return None
    return composition_pairs(_joined(readers), _joined(writers))


def _joined(parts: list[LowRank]) -> LowRank:
    """All heads of several layers."""
    return LowRank(torch.cat([part.left for part in parts]), torch.cat([part.right for part in parts]))


def _heads_at(place: int, n_heads: int) -> slice:
    """The heads of the layer at this place of a group."""
    return slice(n_heads * place, n_heads * (place + 1))


def _root(readers: LowRank) -> LowRank:
    """The same Gram matrix `RᵀR` from a square left factor."""
    return LowRank(_square_root(readers.left.mT @ readers.left), readers.right)


def _square_root(gram: Float[Tensor, "*batch r r"]) -> Float[Tensor, "*batch r r"]:
    """X with `XᵀX` the given matrix, symmetric and positive but for rounding."""
    values, vectors = torch.linalg.eigh(gram)
    return values.clamp_min(0).sqrt()[..., None] * vectors.mT


def _gram_products(readers: LowRank, writers: LowRank, slab: int) -> Float[Tensor, "reader writer"]:
    """`⟨RᵀR, W Wᵀ⟩` for all pairs, slab by slab of the shared space; both are symmetric, so half of each is enough."""
    R, L = readers.right.double(), writers.left.double()
    R_core = (readers.left.mT.double() @ readers.left.double()) @ R
    L_core = L @ (writers.right.double() @ writers.right.mT.double())
    total = torch.zeros(len(R), len(L), dtype=torch.float64)
    for start in range(0, R.shape[-1], slab):
        rows = slice(start, start + slab)
        reader_gram = R[:, :, rows].mT @ R_core[:, :, start:]
        writer_gram = L_core[:, rows, :] @ L[:, start:, :].mT
        writer_gram[:, :, slab:] *= 2  # what lies right of the diagonal's block stands for what lies below it, too
        total += reader_gram.flatten(1) @ writer_gram.flatten(1).mT
    return total
