"""Copying scores of all heads at GPT-2 small's shape with its vocabulary, against TransformerLens' factored route.

The same random float32 weights on both sides; `sum` is the sum of all scores, to compare.
"""

from collections.abc import Callable, Iterator

import torch
from benchmark import Benchmark, Side, share_of_limit

LAYERS, HEADS, D_HEAD, D_MODEL, D_VOCAB = 12, 12, 64, 768, 50257


def ends() -> tuple[torch.Tensor, torch.Tensor]:
    """`W_E [d_model, d_vocab]` and `W_U [d_vocab, d_model]`."""
    generator = torch.Generator().manual_seed(1)
    return (
        torch.randn(D_MODEL, D_VOCAB, generator=generator) * 0.05,
        torch.randn(D_VOCAB, D_MODEL, generator=generator) * 0.05,
    )


def layers() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """`W_V [n_heads, d_head, d_model]` and `W_O [n_heads, d_model, d_head]` of each layer."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(LAYERS):
        W_V = torch.randn(HEADS, D_HEAD, D_MODEL, generator=generator) * 0.05
        yield W_V, torch.randn(HEADS, D_MODEL, D_HEAD, generator=generator) * 0.05


def ours() -> Callable[[], dict[str, float]]:
    """One product over the vocabulary; eigenvalues in float64."""
    from pathsum.circuits.spectra import ov_eigenvalues, positivity, through_tokens
    from pathsum.weights.spec import Attention, Spec
    from pathsum.weights.weights import Weights

    facts = (Attention(None, D_HEAD**-0.5),) * LAYERS
    spec = Spec(D_VOCAB, 8, D_MODEL, LAYERS, HEADS, D_HEAD, HEADS, facts)
    W_E, W_U = ends()
    tensors = {"W_E": W_E, "W_U": W_U}
    for at, (W_V, W_O) in enumerate(layers()):
        other = torch.zeros_like(W_V)
        tensors |= {f"L{at}.W_Q": other, f"L{at}.W_K": other, f"L{at}.W_V": W_V, f"L{at}.W_O": W_O}
    weights = Weights.from_tensors(spec, tensors).fold().load()

    def scores() -> dict[str, float]:
        through = through_tokens(weights)
        found = [positivity(ov_eigenvalues(weights, layer, through)) for layer in range(LAYERS)]
        return {"sum": torch.stack(found).sum().item()}

    return scores


def peer() -> Callable[[], dict[str, float]]:
    """`(W_E @ OV @ W_U).eigenvalues` of every head, a layer at a time; their matrices act on rows: `x W_V W_O`."""
    from transformer_lens import FactoredMatrix

    W_E, W_U = (part.mT.contiguous() for part in ends())
    every = [tuple(part.mT.contiguous() for part in layer) for layer in layers()]

    @torch.no_grad()
    def scores() -> dict[str, float]:
        found = []
        for W_V, W_O in every:
            own = (W_E @ FactoredMatrix(W_V, W_O) @ W_U).eigenvalues
            found.append(own.sum(-1).real / own.abs().sum(-1))
        return {"sum": torch.stack(found).sum().item()}

    return scores


LENS = "transformer-lens==4.3.0"
NEEDED = 2 * D_VOCAB * D_MODEL**2 + LAYERS * HEADS * (2 * D_HEAD * D_MODEL**2 + 2 * D_HEAD**2 * D_MODEL)
"""One product over the vocabulary, and what brings every head's factors to it; eigenvalues are not counted."""
BENCHMARKS = [
    Benchmark("eigenvalues-gpt2-small", Side(ours, more=share_of_limit(NEEDED)), Side(peer, runs=3, needs=LENS))
]
