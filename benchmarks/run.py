"""`make bench [ONLY="composition graded"]`: ours and a peer's way, in turn, each side in a fresh process.

Writes `benchmarks/latest.json`, a list of `{name, ours_s, peer_s, ratio, ours_mb, peer_mb, cores, date}`. Seconds are
the median of several runs after a warm-up; MB is the process's peak beyond what importing took.
"""

import argparse
import datetime
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

LATEST = Path(__file__).with_name("latest.json")


def random_model(n_layers: int, n_heads: int, d_model: int, d_head: int, d_vocab: int = 2048):
    from pathsum.weights.model import Model
    from pathsum.weights.positions import Sinusoidal
    from pathsum.weights.spec import Attention, Spec
    from pathsum.weights.weights import Weights, required_shapes

    facts = tuple(Attention(Sinusoidal(), d_head**-0.5) for _ in range(n_layers))
    spec = Spec(d_vocab, 256, d_model, n_layers, n_heads, d_head, n_heads, facts)
    generator = torch.Generator().manual_seed(0)
    shapes = required_shapes(spec).items()
    return Model(
        "random", Weights.from_tensors(spec, {n: torch.randn(*s, generator=generator) * 0.05 for n, s in shapes})
    )


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


def graded_ours() -> Callable[[], object]:
    """Every order's logits of a 6-layer model on 256 tokens, one graded pass."""
    from pathsum.runs.graded import frozen_run, graded_logits
    from pathsum.runs.run import run

    frozen = frozen_run(run(random_model(6, 8, 256, 32), torch.arange(256)))
    return lambda: graded_logits(frozen)


def graded_peer() -> Callable[[], object]:
    """The same by the paper's n+1 passes: each pass feeds heads the residual stream of the pass before."""
    from pathsum.runs.graded import frozen_run
    from pathsum.runs.linear import heads_output
    from pathsum.runs.run import run

    frozen = frozen_run(run(random_model(6, 8, 256, 32), torch.arange(256)))

    @torch.no_grad()
    def passes() -> list:
        layers = list(frozen.layers)
        outputs = [torch.zeros_like(frozen.token_embedding()) for _ in layers]
        logits = []
        for _ in range(len(layers) + 1):
            x, fresh = frozen.token_embedding(), []
            for (block, seen), saved in zip(layers, outputs, strict=True):
                fresh.append(heads_output(block, seen, x))
                x = x + saved
            outputs = fresh
            logits.append(frozen.unembed(x))
        return logits

    return passes


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


SIDES: dict[str, tuple[Callable, Callable]] = {
    "composition-two-layer": (composition_ours, composition_peer),
    "graded-six-layers": (graded_ours, graded_peer),
    "training-two-layer-small": (training_ours, training_peer),
}


def measured(name: str, side: int, runs: int = 7) -> dict[str, float]:
    """Median seconds of a call after one warm-up, and the peak memory beyond the start's."""
    call = SIDES[name][side]()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    times = []
    for _ in range(runs + 1):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"s": statistics.median(times[1:]), "mb": (peak - before) / 1024}


def fresh(name: str, side: int) -> dict[str, float]:
    """`measured`, in a process of its own."""
    command = [sys.executable, __file__, "--side", str(side), name]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="beginnings of the benchmarks' names; all by default")
    parser.add_argument("--side", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.side is not None:
        print(json.dumps(measured(given.names[0], given.side)))
        return
    rows = []
    print(f"{'name':28}{'ours s':>10}{'peer s':>10}{'ratio':>8}{'ours MB':>9}{'peer MB':>9}")
    for name in SIDES:
        if given.names and not any(name.startswith(start) for start in given.names):
            continue
        ours, peer = fresh(name, 0), fresh(name, 1)
        row = {"name": name, "ours_s": ours["s"], "peer_s": peer["s"], "ratio": peer["s"] / ours["s"]}
        row |= {"ours_mb": ours["mb"], "peer_mb": peer["mb"], "cores": os.cpu_count()}
        rows.append({**row, "date": datetime.date.today().isoformat()})
        print(f"{name:28}{ours['s']:10.4f}{peer['s']:10.4f}{row['ratio']:8.1f}{ours['mb']:9.0f}{peer['mb']:9.0f}")
    LATEST.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
