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
    """`Σλ / Σ|λ|` in [−1, 1]; NaN where all are zero (paper: "Detecting copying heads"). Imaginary parts cancel."""
    return eigenvalues.sum(-1).real / eigenvalues.abs().sum(-1)


Square = Float[Tensor, "d_model d_model"] | None


def ov_eigenvalues(weights: Weights, layer: int, through: Square = None) -> Complex[Tensor, "head k"]:
    """Eigenvalues of `W_U W_OV W_E` for every head of a layer (folded weights); `through` is `W_E W_U`, if at hand."""
    return (layer_OV(weights, layer) @ (through_tokens(weights) if through is None else through)).eigenvalues()


def qk_eigenvalues(
    weights: Weights, layer: int, delta: float | int | None = None, gram: Square = None
) -> Complex[Tensor, "head k"]:
    """Eigenvalues of `W_Eᵀ W_QK W_E` for every head of a layer (folded weights); `gram` is `W_E W_Eᵀ`, if at hand."""
    return (layer_QK(weights, layer, delta) @ (embedding_gram(weights) if gram is None else gram)).eigenvalues()


def pair_eigenvalues(
    weights: Weights, destination: LowRank, source: LowRank, gram: Float[Tensor, "d_model d_model"] | None = None
) -> Complex[Tensor, "*batch k"]:
    """Eigenvalues of the induction circuit `W_Eᵀ W_QK^{h2} W_OV^{h1} W_E`; `gram` is `embedding_gram`, if at hand."""
    return (destination @ source @ (embedding_gram(weights) if gram is None else gram)).eigenvalues()


def through_tokens(weights: Weights) -> Float[Tensor, "d_model d_model"]:
    """`W_E W_U`, float64."""
    ends = weights.ends
    return ends.W_E.double() @ ends.W_U.double()


def embedding_gram(weights: Weights) -> Float[Tensor, "d_model d_model"]:
    """`W_E W_Eᵀ`, float64."""
    W_E = weights.W_E.double()
    return W_E @ W_E.mT


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
