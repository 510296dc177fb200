"""Who writes to the residual stream and who reads from it, in the order of the model.

A `Part` is the embedding, a layer's attention, its MLP, or the unembedding: what it reads is what parts of earlier
stages wrote. Each turns into Gram matrices when it is loaded:

    writers   heads W_OV · embed W_E · pos W_pos · MLP W_out
    readers   heads Q: W_QKᵀ, K: W_QK, V: W_OV · MLP in and gate, router · unembed W_U
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from pathsum.circuits.gram import Gram, Thin, product_spectrum, row_gram, thin, wide
from pathsum.circuits.rotation import Rotation
from pathsum.errors import NotApplicable
from pathsum.weights.blocks import Block, Experts
from pathsum.weights.positions import Rotary
from pathsum.weights.weights import Weights

Kind = Literal["Q", "K", "V"]
KINDS: tuple[Kind, ...] = ("Q", "K", "V")
Delta = float | int | Sequence[float | int] | Literal["rms"] | None
Which = Literal["heads", "all"]
MLP_READERS = ("in", "gate", "router")


@dataclass(frozen=True)
class Site:
    """Matrices of one kind in one place: `names` one a matrix; `delta` where W_QK depends on the distance."""

    kind: str
    layer: int | None
    names: tuple[str, ...]
    delta: Delta = None


@dataclass(frozen=True)
class Loaded:
    """A part's matrices by site; readers are None where undefined (rotary Q and K without a distance)."""

    readers: Sequence[tuple[Site, Gram | None]]
    writers: Sequence[tuple[Site, Gram]]


@dataclass(frozen=True)
class Part:
    """What reads and writes at one stage, loaded when it is its turn; it reads what earlier stages wrote."""

    stage: int
    read_numbers: int
    written_numbers: int
    """How many numbers the loaded readers and writers hold."""
    load: Callable[[], Loaded]


def parts(
    weights: Weights,
    kinds: Sequence[Kind] = KINDS,
    deltas: Sequence[Delta] = (None,),
    writers: Which = "heads",
    readers: Which = "heads",
    dtype: torch.dtype = torch.float32,
) -> list[Part]:
    """Everything that reads or writes, in the order of stages; "heads" leaves out all else.

    Raises `NotApplicable` for a delta that is no distance.
    """
    spec = weights.spec
    writes, reads = writers == "all", readers == "all"
    for delta in deltas:
        _ = None if delta is None else distances(delta, spec.n_ctx)
    found = [_embedding(weights, dtype)] if writes else []
    for layer in range(spec.n_layers):
        found.append(_attention(weights, layer, kinds, deltas, dtype))
        if spec.d_mlp is not None and (writes or reads):
            found.append(_mlp(weights, layer, writes, reads, dtype))
    return [*found, _unembedding(weights, dtype)] if reads else found


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


# ---- heads ----


def _attention(
    weights: Weights, layer: int, kinds: Sequence[Kind], deltas: Sequence[Delta], dtype: torch.dtype
) -> Part:
    spec = weights.spec
    names = tuple(f"L{layer}H{head}" for head in range(spec.n_heads))
    turns = isinstance(spec.layers[layer].positions, Rotary)
    sites = [Site(kind, layer, names, d) for kind in kinds for d in (deltas if turns and kind != "V" else (None,))]
    asked = [None if site.delta is None else distances(site.delta, spec.n_ctx) for site in sites]

    def load() -> Loaded:
        heads = Heads(weights.attention(layer), dtype)
        readers = [(site, heads.reader(site.kind, deltas)) for site, deltas in zip(sites, asked, strict=True)]
        return Loaded(readers, [(Site("OV", layer, names), heads.writer())])

    core, one = spec.n_heads * spec.d_head**2, spec.d_head * spec.d_model
    near = sum(one * (spec.n_heads if kind == "Q" else spec.n_key_value_heads) for kind in kinds)
    return Part(2 * layer, near + core * len(sites), spec.n_heads * one + core, load)


@dataclass(frozen=True)
class Heads:
    """A layer's heads (folded) as Gram matrices; what several kinds need is made once.

    Of vectors that are mixed over positions, what tap 0 reads: the token itself.
    """

    block: Block
    dtype: torch.dtype

    def reader(self, kind: str, deltas: Float[Tensor, " delta"] | None = None) -> Thin | None:
        """`RᵀR` of R = `W_QKᵀ` for Q, `W_QK` for K, `W_OV` for V.

        Rotary Q and K over several Δ: `mean_Δ R(Δ)ᵀR(Δ) / ‖R(Δ)‖²`; without Δ they are undefined: None.
        """
        block, positions = self.block, self.block.attention.positions
        if kind == "V":
            return thin(block.reader("V"), self.square_O, self.spectrum_OV, self.dtype)
        if kind == "Q":
            near, own, far, sign = block.reader("Q"), self.square_Q, self.each(self.square_K), -1
        else:
            near, own, far, sign = block.reader("K"), self.square_K, self.square_Q, 1
        if not isinstance(positions, Rotary):
            return thin(near, far, self.spectrum_QK, self.dtype)
        if deltas is None:
            return None
        core = turned(positions, far, self.each(own) if kind == "K" else own, sign * deltas)
        return thin(near, core, product_spectrum(core, own), self.dtype)

    def writer(self) -> Thin:
        """`W_OV W_OVᵀ`."""
        return thin(self.block.W_O.mT, self.each(self.square_V), self.spectrum_OV, self.dtype)

    def each(self, of_groups: Float[Tensor, "kv r r"]) -> Float[Tensor, "head r r"]:
        """One a head, from one a key/value head."""
        return of_groups.repeat_interleave(self.block.group, 0)

    @cached_property
    def square_Q(self) -> Float[Tensor, "head r r"]:
        return row_gram(self.block.reader("Q"))

    @cached_property
    def square_K(self) -> Float[Tensor, "kv r r"]:
        return row_gram(self.block.reader("K"))

    @cached_property
    def square_V(self) -> Float[Tensor, "kv r r"]:
        return row_gram(self.block.reader("V"))

    @cached_property
    def square_O(self) -> Float[Tensor, "head r r"]:
        return row_gram(self.block.W_O.mT)

    @cached_property
    def spectrum_QK(self) -> Float[Tensor, "head r"]:
        return product_spectrum(self.square_Q, self.square_K)

    @cached_property
    def spectrum_OV(self) -> Float[Tensor, "head r"]:
        return product_spectrum(self.square_O, self.square_V)


def turned(
    positions: Rotary, far: Float[Tensor, "head r r"], own: Float[Tensor, "head r r"], deltas: Float[Tensor, " delta"]
) -> Float[Tensor, "head r r"]:
    """`R(Δ) far R(Δ)ᵀ` at one distance; over several, the mean of each over its trace with `own`."""
    if len(deltas) > 1:
        return Rotation(positions, far.shape[-1]).mean_conjugated(far, own, deltas)
    R = positions.matrix(deltas.item(), far.shape[-1])
    return R @ far @ R.mT


# ---- everything else ----


def _embedding(weights: Weights, dtype: torch.dtype) -> Part:
    spec = weights.spec
    names = ("embed", "pos") if spec.learned_positions else ("embed",)

    def load() -> Loaded:
        return Loaded(
            [], [(Site(name, None, (name,)), _alone(partial(_embedded, weights, name), dtype)) for name in names]
        )

    return Part(-1, 0, len(names) * spec.d_model**2, load)


def _embedded(weights: Weights, name: str) -> Float[Tensor, "rank d_model"]:
    ends = weights.ends
    return ends.W_E.mT if name == "embed" or ends.W_pos is None else ends.W_pos.mT


def _alone(read: Callable[[], Tensor], dtype: torch.dtype) -> Gram:
    return wide([read()], lambda index: read(), dtype)


def _unembedding(weights: Weights, dtype: torch.dtype) -> Part:
    site = Site("unembed", None, ("unembed",))
    load = lambda: Loaded([(site, _alone(lambda: weights.W_U, dtype))], [])
    return Part(2 * weights.spec.n_layers, weights.spec.d_model**2, 0, load)


def _mlp(weights: Weights, layer: int, writes: bool, reads: bool, dtype: torch.dtype) -> Part:
    """Each expert is an MLP of its own, and the router one more reader."""
    spec, at = weights.spec, f"L{layer}.mlp"
    count = 1 if spec.n_experts is None else spec.n_experts
    names = (at,) if spec.n_experts is None else tuple(f"{at}.{expert}" for expert in range(count))

    def load() -> Loaded:
        block = weights.block(layer)

        def formed(kind: str) -> tuple[Site, Gram]:
            again = lambda index: _mlp_matrices(weights.block(layer), kind)[index]
            site = Site(kind, layer, (f"L{layer}.router",) if kind == "router" else names)
            return site, wide(_mlp_matrices(block, kind), again, dtype)

        kinds = [kind for kind in MLP_READERS if reads and _mlp_matrices(block, kind)]
        return Loaded([formed(kind) for kind in kinds], [formed("out")] * writes)

    square = count * spec.d_model**2
    return Part(2 * layer + (not spec.parallel), 3 * square * reads, square * writes, load)


def _mlp_matrices(block: Block, kind: str) -> list[Float[Tensor, "_ d_model"]]:
    """The matrices that read in this way, `[rank, d_model]`, one an expert; none where there are none."""
    mlp = block.mlp
    if mlp is None or (kind == "router" and not isinstance(mlp, Experts)):
        return []
    if isinstance(mlp, Experts) and kind == "router":
        return [mlp.W_router]
    each = [mlp.expert(index) for index in range(len(mlp.W_in))] if isinstance(mlp, Experts) else [mlp]
    found: dict[str, list[Tensor | None]] = {
        "in": [one.W_in for one in each],
        "gate": [one.W_gate for one in each],
        "out": [one.W_out.mT for one in each],
    }
    return [matrix for matrix in found[kind] if matrix is not None]
