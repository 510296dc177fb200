"""Composition of a checkpoint larger than the memory it may use, and of smaller ones of the same shape.

The peer is the smallest: the ratio is how much longer the larger takes, `counted` how many times its operations.
"""

import functools
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmark import Benchmark, Side

TESTS = Path(__file__).parents[1] / "tests"
D, D_MLP, LAYER_GB = 2048, 16_384, 0.47
ADDRESS_SPACE_GB, MEMORY = 4, 1_000_000_000
SMALLEST = 11


def composed(n_layers: int) -> Callable[[], dict[str, float]]:
    """Q, K and V at distance 1 of all pairs of heads, each layer read when it is its turn."""
    sys.path.append(str(TESTS))
    import pathsum
    from pathsum.circuits.cut import cut
    from sparse_files import sparse_checkpoint

    folder = tempfile.TemporaryDirectory()
    path = sparse_checkpoint(Path(folder.name) / "model", n_layers, D, D_MLP)

    def scores(keep: object = folder) -> dict[str, float]:
        groups = cut(pathsum.open(path).weights.fold(), deltas=(1,), memory=MEMORY)
        pairs = sum(one.pairs.score.numel() for one in groups.pairs() if one.pairs is not None)
        size = sum(file.stat().st_size for file in path.iterdir())
        return {"pairs": pairs, "gb": size / 1e9, "groups": len(groups.groups)}

    return scores


def side(n_layers: int) -> Side:
    return Side(functools.partial(composed, n_layers), runs=1, warm_up=False, limit_gb=ADDRESS_SPACE_GB)


BENCHMARKS = [
    Benchmark("composition-streamed-10gb", side(2 * SMALLEST), side(SMALLEST)),
    Benchmark("composition-streamed-20gb", side(4 * SMALLEST), side(SMALLEST)),
]
