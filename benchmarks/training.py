"""One training step, against a plain loop over the same model."""

from collections.abc import Callable

import torch
from benchmark import Benchmark, Side


def training_ours() -> Callable[[], object]:
    """One training step of `two-layer-small`, 4,096 tokens, bfloat16."""
    from pathsum.training.machine import keep_freed_memory
    from pathsum.training.optimizers import optimizers_of
    from pathsum.training.recipe import recipe
    from pathsum.training.trainee import Trainee

    keep_freed_memory()
    trainee = Trainee(recipe("two-layer-small"))
    optimizers = optimizers_of(trainee)
    tokens = torch.randint(1024, (16, 257))

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            loss = trainee(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trainee.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()

    return step


def training_peer() -> Callable[[], object]:
    """The same model as a plain loop: nn.Module, scaled_dot_product_attention, cross_entropy, AdamW, autocast."""
    from torch import nn
    from torch.nn import functional

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qk, self.v = nn.Linear(128, 256, bias=False), nn.Linear(128, 128, bias=False)
            self.out = nn.Linear(128, 128, bias=False)

        def forward(self, x, p):
            q, k = self.qk(x + p).chunk(2, dim=-1)
            q, k, v = (part.unflatten(-1, (4, 32)).transpose(1, 2) for part in (q, k, self.v(x)))
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.out(mixed.transpose(1, 2).flatten(-2))

    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.unembed = nn.Embedding(1024, 128), nn.Linear(128, 1024, bias=False)
            self.layers = nn.ModuleList([Attention(), Attention()])
            self.register_buffer("p", torch.randn(256, 128))

        def forward(self, tokens):
            x = self.embed(tokens)
            for layer in self.layers:
                x = x + layer(x, self.p)
            return self.unembed(x)

    model = Plain()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    tokens = torch.randint(1024, (16, 257))

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            loss = functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


BENCHMARKS = [Benchmark("training-two-layer-small", Side(training_ours), Side(training_peer))]
