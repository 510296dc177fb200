"""Every order's logits in one graded pass, against the paper's n+1 passes."""

from collections.abc import Callable

import torch
from benchmark import Benchmark, Side, share_of_limit
from models import random_model


def graded_ours() -> Callable[[], object]:
    """Every order's logits of a 6-layer model on 256 tokens, one graded pass."""
    from pathsum.paths.logits import expand
    from pathsum.runs.run import run

    return expand(run(random_model(6, 8, 256, 32), torch.arange(256))).by_order


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


def orders() -> Callable[[], object]:
    """The stream of every order after the last of 6 layers, 256 tokens: up to 7 orders."""
    from pathsum.runs.graded import frozen_run, graded
    from pathsum.runs.run import run

    frozen = frozen_run(run(random_model(6, 8, 256, 32), torch.arange(256)))
    return lambda: graded(frozen)


def one_order() -> Callable[[], object]:
    """The same heads' values and outputs of the whole stream alone: a plain forward's, its patterns given."""
    from pathsum.runs.graded import frozen_run, last, streams
    from pathsum.runs.run import run

    frozen = frozen_run(run(random_model(6, 8, 256, 32), torch.arange(256)))
    return lambda: last(streams(frozen))


def plain() -> Callable[[], object]:
    """A plain forward pass: queries, keys, patterns, values; no logits."""
    from pathsum.runs.forward import forward

    weights = random_model(6, 8, 256, 32).weights.to(torch.float32).load()
    tokens = torch.arange(256)

    @torch.no_grad()
    def once() -> object:
        return forward(weights, tokens)

    return once


LAYERS, WIDTH, TOKENS, VOCABULARY = 6, 256, 256, 2048
NEEDED = 2 * TOKENS * WIDTH * (3 * WIDTH * sum(range(1, LAYERS + 1)) + (LAYERS + 1) * VOCABULARY)
"""Values, patterns and outputs of k + 1 orders in layer k, d_model = heads · d_head = tokens; all orders' logits."""
BENCHMARKS = [
    Benchmark("graded-six-layers", Side(graded_ours, more=share_of_limit(NEEDED)), Side(graded_peer)),
    # A ratio of 1/4 is (1 + … + 6 orders) / 6 layers: what every order costs where each costs what the whole does.
    Benchmark("graded-orders-values", Side(orders), Side(one_order)),
    Benchmark("graded-orders-forward", Side(orders), Side(plain)),
]
