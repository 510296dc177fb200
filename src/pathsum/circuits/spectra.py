"""Copying and matching, read off eigenvalues; and copying without them.

The eigenvalues of a `[d_vocab, d_vocab]` circuit `A W B` are those of `W (B A)`, so one `d_model × d_model` product
stands in for the vocabulary (a cyclic permutation keeps eigenvalues; it does not keep norms).
"""

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from pathsum.circuits.tables import layer_OV, layer_QK
from pathsum.lowrank import LowRank
from pathsum.weights.weights import Weights


def positivity(eigenvalues: Complex[Tensor, "*batch k"]) -> Float[Tensor, "*batch"]:
    """`Σλ / Σ|λ|` in [−1, 1]; NaN where all are zero (paper: "Detecting copying heads"). Imaginary parts cancel."""
    return eigenvalues.sum(-1).real / eigenvalues.abs().sum(-1)


def ov_eigenvalues(weights: Weights, layer: int) -> Complex[Tensor, "head k"]:
    """Eigenvalues of `W_U W_OV W_E` for every head of a layer (folded weights)."""
    ends = weights.ends
    return (layer_OV(weights, layer) @ (ends.W_E.double() @ ends.W_U.double())).eigenvalues()


def qk_eigenvalues(weights: Weights, layer: int, delta: float | int | None = None) -> Complex[Tensor, "head k"]:
    """Eigenvalues of `W_Eᵀ W_QK W_E` for every head of a layer (folded weights)."""
    return (layer_QK(weights, layer, delta) @ embedding_gram(weights)).eigenvalues()


def pair_eigenvalues(
    weights: Weights, destination: LowRank, source: LowRank, gram: Float[Tensor, "d_model d_model"] | None = None
) -> Complex[Tensor, "*batch k"]:
    """Eigenvalues of the induction circuit `W_Eᵀ W_QK^{h2} W_OV^{h1} W_E`; `gram` is `embedding_gram`, if at hand."""
    return (destination @ source @ (embedding_gram(weights) if gram is None else gram)).eigenvalues()


def embedding_gram(weights: Weights) -> Float[Tensor, "d_model d_model"]:
    """`W_E W_Eᵀ`, float64."""
    W_E = weights.W_E.double()
    return W_E @ W_E.mT


def own_token_ranks(circuit: LowRank, block: int = 1024) -> Float[Tensor, " d_vocab"]:
    """For each source token, how many outputs have a strictly larger logit in its OV column; 0: its own is on top.

    NaN for a token whose column is the same everywhere: attending to it says nothing of any output.
    """
    ranks = []
    n = circuit.shape[-1]
    for start in range(0, n, block):
        columns = circuit.columns(slice(start, start + block))
        index = torch.arange(start, min(start + block, n))
        own = columns[index, torch.arange(len(index))]
        speaks = columns.amax(0) > columns.amin(0)
        ranks.append((columns > own).sum(0).double().where(speaks, torch.nan))
    return torch.cat(ranks)
