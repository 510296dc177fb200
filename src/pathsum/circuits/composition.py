"""How strongly heads read what earlier heads wrote (“Three Kinds of Composition”).

    Q: ‖W_QK^{h2}ᵀ W_OV^{h1}‖   K: ‖W_QK^{h2} W_OV^{h1}‖   V: ‖W_OV^{h2} W_OV^{h1}‖, over the product of both norms

1. `‖R W‖² = ⟨RᵀR, W Wᵀ⟩`: each reader and each writer becomes one Gram matrix on the shared d_model-dimensional space.
2. All pairs of many layers are then one GEMM, streamed (`gram_products`), in float32 unless asked otherwise; `cut` has
   those of a whole model.
3. Where rounding could show, the pair's product itself is measured, in float64 (`measured_again`).
4. Against chance: mean and variance of `‖R W‖²` over random relative rotations are known exactly; z measures in them.
5. Against the possible: `ceiling` is the largest score any relative rotation of the two could give.
6. Rotary readers over several distances: the Gram matrices, each over its own norm, are averaged first. The mean is
   a Gram matrix too, so the root mean square of score(Δ) has its exact z and ceiling, at the cost of one distance.

Norms are of the product in its true order. A cyclic permutation inside the norm (the paper's erratum) changes them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, product

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from pathsum.circuits.gram import BUFFER, Gram, Thin, gram_products, product_spectrum, product_square, row_gram, thin
from pathsum.circuits.stream import Delta, Kind, parts
from pathsum.circuits.tables import layer_OV, layer_QK
from pathsum.errors import NotApplicable
from pathsum.lowrank import LowRank
from pathsum.weights.weights import Weights

NOISE = 2.0
"""A Gram form's square is off by at most this × machine epsilon × ‖RᵀR‖‖WWᵀ‖ (measured: docs/scale.md)."""
FLAT = {torch.float32: 1e-6, torch.float64: 1e-12}
"""A matrix with d tr A² − (tr A)² this small beside (tr A)² is a multiple of the identity, but for rounding."""
SHARP = 1e-3
"""Scores whose error could exceed this share of the baseline are measured one by one."""


@dataclass(frozen=True)
class Pairs:
    """Scores of every reader with every writer, and what they are to be held against; float64."""

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


def layer_composition(
    weights: Weights, kind: Kind, later: int, earlier: int, delta: Delta = None, dtype: torch.dtype = torch.float64
) -> Pairs | None:
    """Composition of every head of layer `later` with every head of layer `earlier` (folded weights).

    Where W_QK depends on Δ (rotary), Q and K need `delta=` one distance, several, or "rms" (0 … n_ctx − 1); for more
    than one the score is √(mean of score(Δ)²). Without it they are undefined: None.
    """
    if later <= earlier:
        raise NotApplicable(f"layer {later} does not read layer {earlier}: composition needs an earlier writer")
    layers = parts(weights, (kind,), (delta,), dtype=dtype)
    ((_, reader),) = layers[later].load().readers
    if reader is None:
        return None
    ((_, writer),) = layers[earlier].load().writers
    return gram_pairs([reader], [len(writer)], [writer], weights.spec.d_model)


def composition_pairs(readers: LowRank, writers: LowRank, dtype: torch.dtype = torch.float64) -> Pairs:
    """`‖R W‖ / (‖R‖ ‖W‖)` of every reader `[reader, *, d]`, or of one, with every writer `[writer, d, *]`, or one."""
    both = [_factors(one if len(one.shape) > 2 else one[None], dtype) for one in (readers, writers.T)]
    return gram_pairs(both[:1], [len(both[1])], both[1:], writers.shape[-2])


def gram_pairs(
    readers: Sequence[Gram], limits: Sequence[int], writers: Sequence[Gram], d: int, buffer: int = BUFFER
) -> Pairs:
    """All of these readers with all of these writers; `readers[i]` takes the first `limits[i]` matrices of `writers`.

    What lies beyond a limit is of no meaning.
    """
    (a1, a2), (b1, b2) = _traces(readers), _traces(writers)
    a1, a2 = a1[:, None], a2[:, None]
    squares = gram_products(readers, limits, writers, d, buffer)
    noise = NOISE * torch.finfo(readers[0].dtype).eps * (a2 * b2).sqrt()
    blurred = squares < torch.maximum(noise, d * noise.square() / (4 * SHARP**2 * a1 * b1))
    squares = measured_again(squares, blurred & _within(readers, limits, len(b1)), readers, writers)
    size = (a1 * b1).sqrt()
    mean, variance = null_moments(a1, a2, b1, b2, d)
    known = _uneven(readers, d)[:, None] & _uneven(writers, d)
    z = torch.where(known, (squares - mean) / variance.clamp_min(0).sqrt(), torch.nan)
    r, w = _spectra(readers), _spectra(writers)
    k = min(r.shape[-1], w.shape[-1])
    ceiling = (r[:, :k] @ w[:, :k].mT).sqrt() / size
    return Pairs(squares.clamp_min(0).sqrt() / size, d**-0.5, ceiling, z)


def measured_again(
    squares: Float[Tensor, "reader writer"],
    where: Bool[Tensor, "reader writer"],
    readers: Sequence[Gram],
    writers: Sequence[Gram],
) -> Float[Tensor, "reader writer"]:
    """`‖R W‖²` of the pairs marked, from the product of their factors in float64: `tr(C M C' Mᵀ)`, `M = X Yᵀ`."""
    found = squares.clone()
    sides = (zip(places(side), side, strict=True) for side in (readers, writers))
    for (rows, reader), (columns, writer) in product(*sides):
        for i, j in where[rows, columns].nonzero().tolist():
            square = product_square(*reader.factors(i), *writer.factors(j))
            found[rows.start + i, columns.start + j] = square
    return found


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


def places(grams: Sequence[Gram]) -> list[slice]:
    """Where each one's matrices are among all."""
    ends = list(accumulate(len(gram) for gram in grams))
    return [slice(end - len(gram), end) for end, gram in zip(ends, grams, strict=True)]


def _factors(matrices: LowRank, dtype: torch.dtype) -> Thin:
    """`MᵀM` of each."""
    core = row_gram(matrices.left.mT)
    return thin(matrices.right, core, product_spectrum(core, row_gram(matrices.right)), dtype)


def _within(readers: Sequence[Gram], limits: Sequence[int], n: int) -> Bool[Tensor, "reader {n}"]:
    """Which pairs were asked for."""
    each = torch.repeat_interleave(torch.tensor(limits), torch.tensor([len(reader) for reader in readers]))
    return torch.arange(n) < each[:, None]


def _traces(grams: Sequence[Gram]) -> tuple[Tensor, Tensor]:
    first, second = zip(*(gram.traces for gram in grams), strict=True)
    return torch.cat(first), torch.cat(second)


def _uneven(grams: Sequence[Gram], d: int) -> Bool[Tensor, " matrix"]:
    """Which matrices a rotation changes: Var tr(A Q B Qᵀ) is a multiple of (d a2 − a1²)(d b2 − b1²)."""
    first, second = _traces(grams)
    return d * second > (1 + FLAT[grams[0].dtype]) * first.square()


def _spectra(grams: Sequence[Gram]) -> Float[Tensor, "matrix k"]:
    """All to the length of the longest."""
    longest = max(gram.spectrum.shape[-1] for gram in grams)
    pad = torch.nn.functional.pad
    return torch.cat([pad(gram.spectrum, (0, longest - gram.spectrum.shape[-1])) for gram in grams])
