"""Every order's logits in one graded pass, against the paper's n+1 passes."""

from collections.abc import Callable

import torch
from benchmark import Benchmark, Side
from models import random_model


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


BENCHMARKS = [Benchmark("graded-six-layers", Side(graded_ours), Side(graded_peer))]
