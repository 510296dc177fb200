"""Virtual heads: two heads, the later of which moves what the earlier one wrote (“Virtual Attention Heads”).

    (A^{h2} A^{h1}) ⊗ (W_OV^{h2} W_OV^{h1})

1. A virtual head behaves like a head: its OV circuit is a thin product too, and its pattern a product of patterns.
2. All terms whose last two heads are h1 and h2 sum to `A^{h2} ⊗ W_OV^{h2}` on what h1 writes, whatever h1 has read.
3. Their size needs no logits: with `G` the Gram matrix of the centred unembedding, the mean square over the vocabulary
   of the centred logits of coordinates m is `mᵀ (W_O^{h2}ᵀ G W_O^{h2}) m / d_vocab`.
4. What leaving them out costs is the loss of all other terms, exactly.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import torch
from jaxtyping import Float, Int
from torch import Tensor

from pathsum.circuits.composition import composition_pairs
from pathsum.circuits.spectra import positivity, unembedding_gram
from pathsum.errors import NotApplicable
from pathsum.lowrank import LowRank
from pathsum.paths.importance import KEPT, Rows, direct_and_full_losses
from pathsum.paths.logits import path_pattern
from pathsum.paths.paths import HeadIndex, Path
from pathsum.paths.scored import BLOCK, Scored, row_losses, scored
from pathsum.runs.graded import FrozenRun, frozen_run, last, streams
from pathsum.runs.linear import each_head_output, mixed_values
from pathsum.runs.run import Run
from pathsum.weights.blocks import Block, Head
from pathsum.weights.model import Model
from pathsum.weights.spec import Spec
from pathsum.weights.weights import Weights, head_index

Pair = tuple[HeadIndex, HeadIndex]
"""The earlier head, then the later one."""
MIXED = 1 << 24
"""Numbers that the heads of a later layer have mixed of outputs of earlier heads, at once: 64 MB in float32."""


@dataclass(frozen=True)
class VComposition:
    """How strongly the later head moves what the earlier one writes, beside chance and what is possible."""

    score: float
    """`‖W_OV^{h2} W_OV^{h1}‖ / (‖W_OV^{h2}‖ ‖W_OV^{h1}‖)`."""
    baseline: float
    ceiling: float
    z: float

    @property
    def effect(self) -> float:
        """`score − baseline`; negative where the heads avoid each other."""
        return self.score - self.baseline


@dataclass(frozen=True, repr=False)
class VirtualHead:
    """Two heads as one; of folded weights."""

    weights: Weights
    earlier: Head
    later: Head

    def __repr__(self) -> str:
        return f"VirtualHead({self.name})"

    @property
    def name(self) -> str:
        """Both heads, the earlier first: `L0H3 → L1H1`."""
        return f"{self.earlier.name} → {self.later.name}"

    @property
    def pair(self) -> Pair:
        """(layer, index) of the earlier head and of the later one."""
        return (self.earlier.layer, self.earlier.index), (self.later.layer, self.later.index)

    @property
    def path(self) -> Path:
        """From the tokens through both heads."""
        return Path("embed", self.pair)

    @property
    def OV(self) -> LowRank:
        """`W_OV^{h2} W_OV^{h1}`, `[d_model, d_model]` of rank d_head: what the virtual head moves."""
        return self.later.OV @ self.earlier.OV

    @property
    def circuit(self) -> LowRank:
        """`W_U W_OV^{h2} W_OV^{h1} W_E`, `[d_vocab, d_vocab]`: how a source (column) moves each output's logit."""
        ends = self.weights.ends
        return ends.W_U @ self.OV @ ends.W_E

    @property
    def copying_score(self) -> float:
        """`Σλ / Σ|λ|` of the circuit, in [−1, 1]."""
        return positivity(self.circuit.eigenvalues()).item()

    @property
    def composition(self) -> VComposition:
        """V-composition of the two heads."""
        later, earlier = (LowRank(head.OV.left[None], head.OV.right[None]) for head in (self.later, self.earlier))
        found = composition_pairs(later, earlier)
        return VComposition(found.score.item(), found.baseline, found.ceiling.item(), found.z.item())

    def pattern(self, run: Run) -> Float[Tensor, "*batch dst src"]:
        """`S_f S_post A^{h2} S S_post A^{h1} S`: where it moves things from and to, frozen scales included."""
        return path_pattern(run.frozen, self.path)

    def cost_without(self, run: Run) -> float:
        """Loss, nats per token, that all terms whose last two heads these are save: added when they are left out."""
        frozen = frozen_run(run)
        (without,) = pair_losses(frozen, [self.pair])
        return (without - direct_and_full_losses(frozen)[1]).mean().item()


def virtual_head(model: Model | Weights, earlier: str, later: str) -> VirtualHead:
    """The virtual head of two heads of different layers, `(A^{h2} A^{h1}) ⊗ (W_OV^{h2} W_OV^{h1})`, in float64.

    `OV [d_model, d_model]`, `circuit [d_vocab, d_vocab]` in nats, `pattern(run) [dst, src]`. Raises `NotApplicable` for
    an unknown head, or where the later head is not in a later layer. Paper: “Virtual Attention Heads”.

    >>> virtual = pathsum.virtual_head(pathsum.open("two-layer-small"), "L0H1", "L1H1")
    >>> print(virtual.circuit.shape, f"copying {virtual.copying_score:.2f}")        # of W_U W_OV W_OV W_E
    torch.Size([1024, 1024]) copying 0.97
    """
    if not isinstance(model, Model | Weights):
        raise NotApplicable(f"virtual_head() takes an opened model or its weights, not {type(model).__name__}")
    weights = (model.weights if isinstance(model, Model) else model).to(torch.float64).fold()
    if head_index(earlier, weights.spec)[0] >= head_index(later, weights.spec)[0]:
        raise NotApplicable(
            f"{later} reads nothing that {earlier} writes: it must be in a later layer; try them swapped"
        )
    return VirtualHead(weights, weights.head(earlier), weights.head(later))


# ---- what they are worth on a text ----


def head_pairs(spec: Spec) -> list[Pair]:
    """All virtual heads of a model, by the earlier head, then by the later one."""
    heads = list(product(range(spec.n_layers), range(spec.n_heads)))
    return [(earlier, later) for earlier, later in product(heads, heads) if earlier[0] < later[0]]


@torch.no_grad()
def pair_squares(frozen: FrozenRun, rows: Rows = None) -> Float[Tensor, "pair row"]:
    """Of all `head_pairs`: the mean square over the vocabulary of the centred logits of the terms that end in them."""
    at, gram = scored(frozen, rows), _centred_gram(frozen)
    place = {pair: index for index, pair in enumerate(head_pairs(frozen.weights.spec))}
    found = gram.new_empty(len(place), len(at.rows))
    for earlier, block, mixed in _pairs(at):
        core = block.W_O.mT @ gram @ block.W_O
        for head, squares in zip(earlier, ((mixed @ core) * mixed).sum(-1), strict=True):
            first = place[head, (block.layer, 0)]
            found[first : first + block.n_heads] = squares
    return found.clamp_min(0) / at.d_vocab


@torch.no_grad()
def pair_losses(frozen: FrozenRun, pairs: Sequence[Pair], rows: Rows = None) -> Float[Tensor, "pair row"]:
    """For each pair, the losses of all terms but those whose last two heads it is."""
    place = {pair: index for index, pair in enumerate(pairs)}
    whole, begin = scored(frozen, rows), 0
    found = torch.empty(len(pairs), len(whole.rows), dtype=torch.float64)
    for at in whole.parts(KEPT):
        own, begin = slice(begin, begin + len(at.rows)), begin + len(at.rows)
        full = at.logits(at.scaled(last(streams(frozen))))
        for earlier, block, mixed in _pairs(at, {earlier for earlier, _ in pairs}):
            for (place_of, first), head in product(enumerate(earlier), block.heads):
                if (pair := (first, (head.layer, head.index))) in place:
                    W = frozen.ends.W_U @ head.W_O
                    found[place[pair], own] = _losses_without(full, mixed[place_of, head.index], W, at.targets)
    return found


def _pairs(
    at: Scored, asked: Collection[HeadIndex] | None = None
) -> Iterator[tuple[list[HeadIndex], Block, Float[Tensor, "earlier head row d_head"]]]:
    """(some heads of a layer, a later layer, what its heads have mixed of each one's output, scaled for the end)."""
    layers, tokens = list(at.frozen.layers), at.frozen.run.tokens.numel()
    for (block, seen), stream in zip(layers[:-1], streams(at.frozen), strict=False):
        heads = [index for index in range(block.n_heads) if asked is None or (block.layer, index) in asked]
        # Several at a time: a pattern is then read once for all.
        size = max(1, MIXED // (block.n_heads * tokens * block.W_O.shape[-1]))
        if not heads:
            continue
        written = each_head_output(block, seen, stream).movedim(-3, 0)
        for some in torch.tensor(heads).split(size):
            for later, then in layers[block.layer + 1 :]:
                mixed = mixed_values(later, then, written[some]).movedim(-3, 1)
                names = [(block.layer, index) for index in some.tolist()]
                yield names, later, at.scaled(mixed * then.post_attention_scale.unsqueeze(-1))


def _losses_without(
    full: Float[Tensor, "row d_vocab"],
    mixed: Float[Tensor, "row d_head"],
    W: Float[Tensor, "d_vocab d_head"],
    targets: Int[Tensor, " row"],
) -> Float[Tensor, " row"]:
    """Of `full − mixed Wᵀ`, a block of rows at a time."""
    parts = zip(*(each.split(max(1, BLOCK // len(W))) for each in (full, mixed, targets)), strict=True)
    return torch.cat([row_losses(logits - some @ W.mT, wanted) for logits, some, wanted in parts])


def _centred_gram(frozen: FrozenRun) -> Float[Tensor, "d_model d_model"]:
    """`W_Uᵀ C W_U`, `C` taking the mean over the vocabulary away."""
    W_U = frozen.ends.W_U
    mean = W_U.mean(0, dtype=torch.float64)
    return (unembedding_gram(frozen.weights) - len(W_U) * torch.outer(mean, mean)).to(W_U.dtype)
