"""How strongly heads read what earlier heads wrote (framework §6; the paper's "Two-layer attention-only transformers").

    Q: ‖W_QK^{h2}ᵀ W_OV^{h1}‖   K: ‖W_QK^{h2} W_OV^{h1}‖   V: ‖W_OV^{h2} W_OV^{h1}‖, over the product of both norms

1. `‖R W‖² = ⟨RᵀR, W Wᵀ⟩`: each reader and each writer becomes one Gram matrix on the shared d_model-dimensional space.
2. All pairs of many layers are then one GEMM, streamed (`gram_products`), in float32 unless asked otherwise.
3. Where rounding could show, the pair's product itself is measured, in float64 (`measured_again`).
4. Against chance: mean and variance of `‖R W‖²` over random relative rotations are known exactly; z measures in them.
5. Against the possible: `ceiling` is the largest score any relative rotation of the two could give.
6. Rotary readers over several distances: the Gram matrices, each over its own norm, are averaged first. The mean is
   a Gram matrix too, so the root mean square of score(Δ) has its exact z and ceiling, at the cost of one distance.

Norms are of the product in its true order. A cyclic permutation inside the norm (the paper's erratum) changes them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, product
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from pathsum.circuits.gram import BUFFER, Gram, Thin, gram_products, product_spectrum, product_square, row_gram, thin
from pathsum.circuits.stream import KINDS, Delta, Kind, Loaded, Part, Site, Which, parts
from pathsum.circuits.tables import layer_OV, layer_QK
from pathsum.errors import ExpansionTooLarge, NotApplicable
from pathsum.lowrank import LowRank
from pathsum.weights.weights import Weights

MEMORY = 1_400_000_000
"""Bytes that composition of all layers may take beyond the weights, unless asked otherwise."""
HELD = 0.75
"""The share of them that Gram matrices' factors may take."""
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


Task = tuple[int, int]
"""A group of layers that reads, and one that wrote, by place."""


class Composed(NamedTuple):
    """One site that reads, one of an earlier stage that writes, and their pairs; None where undefined."""

    reader: Site
    writer: Site
    pairs: Pairs | None


def compositions(
    weights: Weights,
    kinds: Sequence[Kind] = KINDS,
    deltas: Sequence[Delta] = (None,),
    *,
    writers: Which = "heads",
    readers: Which = "heads",
    dtype: torch.dtype = torch.float32,
    memory: int = MEMORY,
    groups: int = 1,
    task: Task | None = None,
) -> Iterator[Composed]:
    """Composition of everything that reads with everything that wrote before it (folded weights), in one pass.

    `kinds` of heads' readers; where W_QK depends on Δ (rotary), a site for each of `deltas`: one distance, several or
    "rms" (0 … n_ctx − 1), for which the score is √(mean of score(Δ)²), or None, for which Q and K are undefined.
    `writers`, `readers`: heads, or all (embedding, positions, MLPs, unembedding too). `dtype` is that of the Gram
    matrices and their products; spectra of heads, moments and sums are float64 always. `memory` bounds in bytes what
    is held beyond the weights: layers are read again where their factors do not fit. They are then cut into more
    groups than `groups`; of the pairs of groups, `task` asks for one (`composition_tasks`).

    Raises `NotApplicable` for a delta that is no distance, `ExpansionTooLarge` where not even two layers fit.
    """
    d = weights.spec.d_model
    every = parts(weights, kinds, deltas, writers, readers, dtype)
    cut = _groups(every, int(HELD * memory) // dtype.itemsize, groups)
    for place, later in enumerate(cut):
        wanted = [before for before in range(place + 1) if task is None or task == (place, before)]
        loaded = [part.load() for part in later] if wanted else []
        for earlier in (cut[before] for before in wanted):
            wrote = loaded if earlier is later else [part.load() for part in earlier]
            yield from _group_pairs(later, loaded, earlier, wrote, d, min(BUFFER, memory // 8))


def composition_tasks(
    weights: Weights,
    kinds: Sequence[Kind] = KINDS,
    deltas: Sequence[Delta] = (None,),
    *,
    writers: Which = "heads",
    readers: Which = "heads",
    dtype: torch.dtype = torch.float32,
    memory: int = MEMORY,
    groups: int = 1,
) -> list[Task]:
    """The pairs of groups of `compositions` with these arguments, each a `task=` of its own."""
    every = parts(weights, kinds, deltas, writers, readers, dtype)
    count = len(_groups(every, int(HELD * memory) // dtype.itemsize, groups))
    return [(later, earlier) for later in range(count) for earlier in range(later + 1)]


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
    """`‖R W‖ / (‖R‖ ‖W‖)` for every reader `[reader, *, d]` with every writer `[writer, d, *]`."""
    both = [_factors(one, dtype) for one in (readers, writers.T)]
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
    places = product(*(zip(_places(side), side, strict=True) for side in (readers, writers)))
    for (rows, reader), (columns, writer) in places:
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


def _groups(every: list[Part], held: int, least: int = 1) -> list[list[Part]]:
    """Consecutive parts; readers of one group and writers of one are held at once, `held` numbers at most.

    At least so many groups, where there are as many parts.

    Raises `ExpansionTooLarge` where single parts are too large.
    """
    for count in range(min(least, len(every)) or 1, len(every) + 1):
        size = -(-len(every) // count)
        groups = [every[start : start + size] for start in range(0, len(every), size)]
        need = _largest(groups, "read_numbers") + _largest(groups, "written_numbers")
        if need <= held:
            return groups
        if size == 1:
            raise ExpansionTooLarge(
                f"one layer's readers and another's writers are {need:,} numbers, {held:,} fit; "
                f"raise memory= (at least {need / held:.1f} times as much)"
            )
    return []


def _largest(groups: list[list[Part]], which: str) -> int:
    return max(sum(getattr(part, which) for part in group) for group in groups)


def _group_pairs(
    later: list[Part], loaded: list[Loaded], earlier: list[Part], wrote: list[Loaded], d: int, buffer: int
) -> Iterator[Composed]:
    """Readers of some parts with writers of some, where the writer's stage is earlier."""
    writers = [(part.stage, *found) for part, one in zip(earlier, wrote, strict=True) for found in one.writers]
    readers = [(part.stage, *found) for part, one in zip(later, loaded, strict=True) for found in one.readers]
    readers = [reader for reader in readers if writers and reader[0] > writers[0][0]]
    for (stage, site, gram), (wrote_at, source, _) in product(readers, writers):
        if gram is None and wrote_at < stage:
            yield Composed(site, source, None)
    known = [(stage, site, gram) for stage, site, gram in readers if gram is not None]
    if not known:
        return
    writers = [writer for writer in writers if writer[0] < known[-1][0]]
    limits = [sum(len(gram) for wrote_at, _, gram in writers if wrote_at < stage) for stage, _, _ in known]
    found = gram_pairs([gram for _, _, gram in known], limits, [gram for _, _, gram in writers], d, buffer)
    rows, columns = (_places([gram for _, _, gram in side]) for side in (known, writers))
    for (row, (stage, site, _)), (column, (wrote_at, source, _)) in product(
        zip(rows, known, strict=True), zip(columns, writers, strict=True)
    ):
        if wrote_at < stage:
            yield Composed(site, source, found.part(row, column))


def _places(grams: Sequence[Gram]) -> list[slice]:
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
