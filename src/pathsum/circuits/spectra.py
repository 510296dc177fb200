"""Copying and matching, read off eigenvalues; and copying without them.

The eigenvalues of a `[d_vocab, d_vocab]` circuit `A W B` are those of `W (B A)`, so one `d_model × d_model` product
stands in for the vocabulary (a cyclic permutation keeps eigenvalues; it does not keep norms).
"""

import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor

from pathsum.circuits.tables import layer_OV, layer_QK
from pathsum.extremes import ENTRIES
from pathsum.lowrank import LowRank
from pathsum.weights.weights import Weights


def positivity(eigenvalues: Complex[Tensor, "*batch k"]) -> Float[Tensor, "*batch"]:
    """`Σλ / Σ|λ|` in [−1, 1]; NaN where all are zero (“Detecting Copying Behavior”). Imaginary parts cancel."""
    return eigenvalues.sum(-1).real / eigenvalues.abs().sum(-1)


def departure(eigenvalues: Complex[Tensor, "*batch k"], norm: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """`√(1 − Σ|λ|² / ‖A‖_F²)` in [0, 1]: how far a matrix A is from normal (Henrici), over its norm; NaN for zero.

    0: its eigenvectors are orthogonal and its eigenvalues say all of its size. Near 1: they say little of it, and a
    small change of A may move them far. Rounding leaves some 1e-8 of it where it is 0.
    """
    return (1 - eigenvalues.abs().square().sum(-1) / norm.square()).clamp_min(0).sqrt()


Square = Float[Tensor, "d_model d_model"] | None


def ov_eigenvalues(weights: Weights, layer: int, through: Square = None) -> Complex[Tensor, "head k"]:
    """Eigenvalues of `W_U W_OV W_E` for every head of a layer (folded weights); `through` is `W_E W_U`, if at hand."""
    return eigenvalues_over(layer_OV(weights, layer), through_tokens(weights) if through is None else through)


def qk_eigenvalues(
    weights: Weights, layer: int, delta: float | int | None = None, gram: Square = None
) -> Complex[Tensor, "head k"]:
    """Eigenvalues of `W_Eᵀ W_QK W_E` for every head of a layer (folded weights); `gram` is `W_E W_Eᵀ`, if at hand."""
    return eigenvalues_over(layer_QK(weights, layer, delta), embedding_gram(weights) if gram is None else gram)


def pair_eigenvalues(
    weights: Weights, destination: LowRank, source: LowRank, gram: Square = None
) -> Complex[Tensor, "*batch k"]:
    """Eigenvalues of the induction circuit `W_Eᵀ W_QK^{h2} W_OV^{h1} W_E`; `gram` is `embedding_gram`, if at hand."""
    # The source first: one product with the Gram matrix for each source, whatever the number of destinations.
    read = source.right.double() @ (embedding_gram(weights) if gram is None else gram)
    return (destination.to(torch.float64) @ LowRank(source.left.double(), read)).eigenvalues()


def eigenvalues_over(matrices: LowRank, gram: Float[Tensor, "d_model d_model"]) -> Complex[Tensor, "*batch k"]:
    """Of tables over tokens, `X (L R) Y` with `Y X` given, from the core `R Y X L`.

    The product with `Y X` is in the factors' dtype or float32.
    """
    left, right = matrices.left, matrices.right
    wide = torch.promote_types(right.dtype, torch.float32)
    return LowRank(left.double(), (right.to(wide) @ gram.to(wide)).double()).eigenvalues()


def table_norms(matrices: LowRank, rows: Tensor, columns: Tensor) -> Float[Tensor, "*batch"]:
    """`‖X (L R) Y‖_F` of tables over tokens from `XᵀX` (`rows`) and `Y Yᵀ` (`columns`), both `[d_model, d_model]`."""
    left, right = matrices.left.double(), matrices.right.double()
    return ((left.mT @ rows @ left) * (right @ columns @ right.mT)).sum((-1, -2)).clamp_min(0).sqrt()


TOKENS = 4096
"""Summed in the weights' own dtype before they join a float64 sum."""
PANEL = 256


def through_tokens(weights: Weights) -> Float[Tensor, "d_model d_model"]:
    """`W_E W_U`, float64. Of float32 weights `TOKENS` at a time are summed in float32: an error of 3e-7 its norm."""
    ends = weights.ends
    return _over_tokens(ends.W_E, ends.W_U.mT)


def embedding_gram(weights: Weights) -> Float[Tensor, "d_model d_model"]:
    """`W_E W_Eᵀ`, float64, with the accuracy of `through_tokens`."""
    return _gram(weights.W_E)


def unembedding_gram(weights: Weights) -> Float[Tensor, "d_model d_model"]:
    """`W_Uᵀ W_U`, float64, with the accuracy of `through_tokens`."""
    return _gram(weights.W_U.mT)


def _over_tokens(a: Float[Tensor, "p token"], b: Float[Tensor, "q token"]) -> Float[Tensor, "p q"]:
    wide = torch.promote_types(a.dtype, torch.float32)
    total = torch.zeros(len(a), len(b), dtype=torch.float64)
    for some, same in zip(a.split(TOKENS, 1), b.split(TOKENS, 1), strict=True):
        total += some.to(wide) @ same.to(wide).mT
    return total


def _gram(a: Float[Tensor, "p token"]) -> Float[Tensor, "p p"]:
    """`a aᵀ`: a panel of rows at a time, from the diagonal on; the rest is its mirror image."""
    half = torch.zeros(len(a), len(a), dtype=torch.float64)
    for start in range(0, len(a), PANEL):
        half[start : start + PANEL, start:] = _over_tokens(a[start : start + PANEL], a[start:])
    return half.triu() + half.triu(1).mT


def own_token_ranks(
    circuit: LowRank, tokens: Int[Tensor, " token"] | None = None, entries: int = ENTRIES
) -> Float[Tensor, " token"]:
    """For each source token, how many outputs have a strictly larger logit in its OV column; 0: its own is on top.

    `tokens` says which tokens the circuit's columns are of, where they are not all. NaN for a token whose column is the
    same everywhere: attending to it says nothing of any output. `entries` of the table are in memory at once.
    """
    outputs, columns = circuit.shape[-2:]
    tokens = torch.arange(columns) if tokens is None else tokens
    ranks = []
    for some in torch.arange(columns).split(max(1, entries // outputs)):
        logits = circuit.T.rows(some)
        own = logits.gather(1, tokens[some][:, None])
        speaks = logits.amax(1) > logits.amin(1)
        ranks.append((logits > own).sum(1, dtype=torch.int32).double().where(speaks, torch.nan))
    return torch.cat(ranks)
