"""Composition of all pairs of heads, at the shapes of GPT-2, against TransformerLens and against the machine's GEMM.

The same random weights on both sides; `sum` is the sum of all scores, to compare.
"""

from collections.abc import Callable, Iterator

import torch
from benchmark import Benchmark, Side, share_of_limit
from models import random_model

SHAPES = {  # layers, heads, d_head, d_model
    "small": (12, 12, 64, 768),
    "medium": (24, 16, 64, 1024),
    "large": (36, 20, 64, 1280),
    "xl": (48, 25, 64, 1600),
}


def composition_ours() -> Callable[[], object]:
    """K-composition of all 144 pairs of a 2 × 12 × 32, d_model 384 model, with z and ceiling, float64."""
    from pathsum.circuits.composition import layer_composition

    weights = random_model(2, 12, 384, 32).weights.load()
    return lambda: layer_composition(weights, "K", 1, 0)


def composition_peer() -> Callable[[], object]:
    """The same scores alone as norms of dense products, float64, batched over pairs of one reader."""
    weights = random_model(2, 12, 384, 32).weights.to(torch.float64).load()
    readers = [head.QK().dense() for head in weights.block(1).heads]
    writers = torch.stack([head.OV.dense() for head in weights.block(0).heads])

    def scores() -> list:
        sizes = torch.linalg.matrix_norm(writers)
        return [torch.linalg.matrix_norm(R @ writers) / (torch.linalg.matrix_norm(R) * sizes) for R in readers]

    return scores


def layers(size: str) -> Iterator[dict[str, torch.Tensor]]:
    """`W_Q, W_K, W_V [n_heads, d_head, d_model]` and `W_O [n_heads, d_model, d_head]` of each layer."""
    n_layers, n_heads, d_head, d_model = SHAPES[size]
    generator = torch.Generator().manual_seed(0)
    for _ in range(n_layers):
        yield {
            name: torch.randn(n_heads, *shape, generator=generator) * 0.05
            for name, shape in zip("QKVO", [(d_head, d_model)] * 3 + [(d_model, d_head)], strict=True)
        }


def all_pairs_ours(size: str) -> Callable[[], dict[str, float]]:
    """Q, K and V of all pairs of heads with baseline, z and ceiling, in float32 (`compositions`)."""
    from pathsum.circuits.cut import compositions
    from pathsum.weights.spec import Attention, Spec
    from pathsum.weights.weights import Weights

    n_layers, n_heads, d_head, d_model = SHAPES[size]
    facts = (Attention(None, d_head**-0.5),) * n_layers
    spec = Spec(2, 8, d_model, n_layers, n_heads, d_head, n_heads, facts)
    tensors = {f"L{at}.W_{name}": W for at, layer in enumerate(layers(size)) for name, W in layer.items()}
    ends = {"W_E": torch.ones(d_model, 2), "W_U": torch.ones(2, d_model)}
    weights = Weights.from_tensors(spec, tensors | ends).fold().load()

    def scores() -> dict[str, float]:
        found = [pairs for _, _, pairs in compositions(weights)]
        return {"sum": sum(pairs.score.sum().item() for pairs in found if pairs is not None)}

    return scores


def all_pairs_peer(size: str) -> Callable[[], dict[str, float]]:
    """Scores alone: what `TransformerBridge.all_composition_scores` does for the three kinds once it has the matrices.

    Their matrices act on rows: `x W_V W_O`.
    """
    from transformer_lens import FactoredMatrix
    from transformer_lens.utilities.matrix import composition_scores

    every = [{name: W.mT.contiguous() for name, W in layer.items()} for layer in layers(size)]
    W_Q, W_K, W_V, W_O = (torch.stack([layer[name] for layer in every]) for name in "QKVO")
    index = torch.arange(len(every))
    earlier = index[:, None, None, None] < index[:, None]

    @torch.no_grad()
    def scores() -> dict[str, float]:
        OV, QK = FactoredMatrix(W_V, W_O), FactoredMatrix(W_Q, W_K.mT)
        found = [composition_scores(OV, right, broadcast_dims=True) for right in (QK, QK.T, OV)]
        return {"sum": sum(torch.where(earlier, one, 0.0).sum().item() for one in found)}

    return scores


def needed(size: str) -> float:
    """Operations that cannot be left out: half a Gram matrix a reader and a writer, half a product of two a pair."""
    n_layers, n_heads, d_head, d_model = SHAPES[size]
    pairs, matrices = 3 * n_heads**2 * n_layers * (n_layers - 1) / 2, 4 * n_heads * (n_layers - 1)
    return (pairs + matrices * d_head) * d_model**2


def share(size: str) -> Callable[[float], dict[str, float]]:
    return share_of_limit(needed(size))


def everything(which: str) -> Callable[[], dict[str, float]]:
    """All that writes and reads at GPT-2 small's shape (`which` "all"), MLPs of 3,072 and 50,257 tokens too."""
    from pathsum.circuits.cut import compositions
    from pathsum.weights.shapes import required_shapes
    from pathsum.weights.spec import Attention, Spec
    from pathsum.weights.weights import Weights

    n_layers, n_heads, d_head, d_model = SHAPES["small"]
    facts = (Attention(None, d_head**-0.5),) * n_layers
    mlp = {"d_mlp": 3072, "activation": "gelu", "learned_positions": True}
    spec = Spec(50_257, 1024, d_model, n_layers, n_heads, d_head, n_heads, facts, **mlp)
    generator = torch.Generator().manual_seed(0)
    tensors = {name: torch.randn(*s, generator=generator) * 0.05 for name, s in required_shapes(spec).items()}
    weights = Weights.from_tensors(spec, tensors).fold().load()

    def scores() -> dict[str, float]:
        found = [one.pairs for one in compositions(weights, writers=which, readers=which)]
        return {"pairs": sum(pairs.score.numel() for pairs in found if pairs is not None)}

    return scores


LENS = "transformer-lens==4.3.0"
BENCHMARKS = [
    Benchmark("composition-two-layer", Side(composition_ours), Side(composition_peer)),
    Benchmark(
        "composition-gpt2-small",
        Side(lambda: all_pairs_ours("small"), more=share("small")),
        Side(lambda: all_pairs_peer("small"), runs=1, needs=LENS),
    ),
    Benchmark(
        "composition-gpt2-medium",
        Side(lambda: all_pairs_ours("medium"), runs=5, more=share("medium")),
        # One product of all pairs' factors is 38 GB: it fails, and takes no more than this meanwhile.
        Side(lambda: all_pairs_peer("medium"), runs=1, warm_up=False, needs=LENS, limit_gb=20),
    ),
    # The peer is ourselves, heads alone: a ratio of 1/3 is three times their time.
    Benchmark("composition-gpt2-small-all", Side(lambda: everything("all")), Side(lambda: everything("heads"))),
    Benchmark("composition-gpt2-large", Side(lambda: all_pairs_ours("large"), runs=3, more=share("large"))),
    Benchmark("composition-gpt2-xl", Side(lambda: all_pairs_ours("xl"), runs=1, more=share("xl"))),
]
