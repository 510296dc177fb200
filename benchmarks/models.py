"""Random models of given shapes."""

import torch


def random_model(n_layers: int, n_heads: int, d_model: int, d_head: int, d_vocab: int = 2048):
    from pathsum.weights.model import Model
    from pathsum.weights.positions import Sinusoidal
    from pathsum.weights.shapes import required_shapes
    from pathsum.weights.spec import Attention, Spec
    from pathsum.weights.weights import Weights

    facts = tuple(Attention(Sinusoidal(), d_head**-0.5) for _ in range(n_layers))
    spec = Spec(d_vocab, 256, d_model, n_layers, n_heads, d_head, n_heads, facts)
    generator = torch.Generator().manual_seed(0)
    shapes = required_shapes(spec).items()
    return Model(
        "random", Weights.from_tensors(spec, {n: torch.randn(*s, generator=generator) * 0.05 for n, s in shapes})
    )
