"""One training step of the built-in recipes, against a plain loop over the same model."""

from collections.abc import Callable

import torch
from benchmark import Benchmark, Side, share_of_limit

RECIPES = ("two-layer-small", "two-layer", "one-layer", "zero-layer")


def tokens_of(name: str) -> torch.Tensor:
    """One batch."""
    from pathsum.training.recipe import recipe

    one = recipe(name)
    return torch.randint(one.vocab, (one.batch, one.context + 1))


def training_ours(name: str = "two-layer-small") -> Callable[[], object]:
    """One training step of a recipe, bfloat16."""
    from pathsum.training.machine import keep_freed_memory
    from pathsum.training.optimizers import optimizers_of
    from pathsum.training.recipe import recipe
    from pathsum.training.trainee import Trainee

    keep_freed_memory()
    trainee, tokens = Trainee(recipe(name)), tokens_of(name)
    optimizers = optimizers_of(trainee)

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            loss = trainee(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trainee.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()

    return step


def training_peer(name: str = "two-layer-small") -> Callable[[], object]:
    """The same model as a plain loop: nn.Module, scaled_dot_product_attention, cross_entropy, AdamW, autocast."""
    from torch import nn
    from torch.nn import functional

    from pathsum.training.recipe import recipe

    one = recipe(name)
    d, width = one.d_model, one.heads * one.d_head

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qk, self.v = nn.Linear(d, 2 * width, bias=False), nn.Linear(d, width, bias=False)
            self.out = nn.Linear(width, d, bias=False)

        def forward(self, x, p):
            q, k = self.qk(x + p).chunk(2, dim=-1)
            q, k, v = (part.unflatten(-1, (one.heads, one.d_head)).transpose(1, 2) for part in (q, k, self.v(x)))
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.out(mixed.transpose(1, 2).flatten(-2))

    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.unembed = nn.Embedding(one.vocab, d), nn.Linear(d, one.vocab, bias=False)
            self.layers = nn.ModuleList([Attention() for _ in range(one.layers)])
            self.register_buffer("p", torch.randn(one.context, d))

        def forward(self, tokens):
            x = self.embed(tokens)
            for layer in self.layers:
                x = x + layer(x, self.p)
            return self.unembed(x)

    model, tokens = Plain(), tokens_of(name)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            loss = functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def share(name: str) -> Callable[[float], dict[str, float]]:
    """Tokens a second, and the share of this machine's bfloat16 rate that the operations needed come to."""

    def of(seconds: float) -> dict[str, float]:
        from pathsum.training.cost import cost
        from pathsum.training.recipe import recipe

        one = recipe(name)
        reached = share_of_limit(cost(one).operations / one.steps, "bfloat16")(seconds)
        return {"tokens_per_s": one.batch * one.context / seconds, **reached}

    return of


BENCHMARKS = [
    Benchmark(
        f"training-{name}",
        Side(lambda name=name: training_ours(name), runs=15, more=share(name)),
        Side(lambda name=name: training_peer(name), runs=15),
    )
    for name in RECIPES
]
