"""What a benchmark is, and how one side of it is measured in a process of its own."""

import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PEERS = Path(__file__).parents[1] / ".venv-peer"
CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"


@dataclass(frozen=True)
class Side:
    """One way of doing it: `make()` sets up and gives the call that is timed, which may return numbers to record."""

    make: Callable[[], Callable[[], Any]]
    runs: int = 7
    warm_up: bool = True
    needs: str | None = None
    """A package that lives in an environment of its own, `.venv-peer`, made when it is first asked for."""
    limit_gb: int | None = None
    """Of address space; more, and the side is recorded as failed."""
    more: Callable[[float], dict[str, float]] | None = None
    """Other numbers to record, from the seconds."""


@dataclass(frozen=True)
class Benchmark:
    name: str
    ours: Side
    peer: Side | None = None


def measured(side: Side) -> dict[str, Any]:
    """Median seconds of a call, CPU seconds of it, and the process's peak memory beyond what setting up took."""
    if side.limit_gb is not None:
        resource.setrlimit(resource.RLIMIT_AS, (side.limit_gb << 30,) * 2)
    call = side.make()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    times, found = [], None
    try:
        for _ in range(side.runs + side.warm_up):
            start, cpu = time.perf_counter(), time.process_time()
            found = call()
            times.append((time.perf_counter() - start, time.process_time() - cpu))
    except (MemoryError, RuntimeError) as error:
        return {"failed": str(error).strip().splitlines()[0]}
    wall, cpu = (statistics.median(column) for column in zip(*times[side.warm_up :], strict=True))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    numbers = {"s": wall, "cpu_s": cpu, "mb": (peak - before) / 1024, **(found if isinstance(found, dict) else {})}
    return numbers if side.more is None else {**numbers, **side.more(wall)}


def share_of_limit(operations: float, dtype: str = "float32") -> Callable[[float], dict[str, float]]:
    """The share of this machine's own rate of matrix products that was reached, only operations that are needed
    counted; for `Side.more`."""

    def of(seconds: float) -> dict[str, float]:
        rate = gemm_rate(dtype)
        return {"gemm_share": operations / seconds / rate, "gemm_gflops": rate / 1e9}

    return of


def gemm_rate(dtype: str, n: int = 2048, products: int = 30) -> float:
    """Operations a second of the best of some large products."""
    import torch

    a, b, out = (torch.randn(n, n).to(getattr(torch, dtype)) for _ in range(3))
    best = float("inf")
    for _ in range(products):
        start = time.perf_counter()
        torch.mm(a, b, out=out)
        best = min(best, time.perf_counter() - start)
    return 2 * n**3 / best


def python_of(side: Side) -> Path | str:
    """The interpreter of a side, its environment made if it is not there."""
    if side.needs is None:
        return sys.executable
    python = PEERS / "bin" / "python"
    if not (PEERS / side.needs).is_file():
        print(f"installing {side.needs} into {PEERS.name}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", PEERS], check=True)
        pinned = [line for line in CONSTRAINTS.read_text().splitlines() if line.startswith(("torch==", "numpy=="))]
        (PEERS / "constraints.txt").write_text("\n".join(pinned) + "\n")
        install = [python, "-m", "pip", "install", "--quiet", "-c", PEERS / "constraints.txt", side.needs]
        subprocess.run(install, check=True)
        (PEERS / side.needs).touch()
    return python


def load() -> float:
    """How busy the machine was over the last minute, ourselves included."""
    return os.getloadavg()[0]
