"""Opening a sharded checkpoint of 5 GB and reading one head of it, against loading the model to get at it.

The bytes are holes: what is measured is what each side makes of a file that the disk has at hand.
"""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmark import Benchmark, Side

TESTS = Path(__file__).parents[1] / "tests"
LAYERS, D, D_MLP, HEAD = 11, 2048, 16_384, 64
LAYER = 5


def checkpoint() -> tuple[tempfile.TemporaryDirectory, Path]:
    sys.path.append(str(TESTS))
    from sparse_files import sparse_checkpoint

    folder = tempfile.TemporaryDirectory()
    return folder, sparse_checkpoint(Path(folder.name) / "model", LAYERS, D, D_MLP)


def ours() -> Callable[[], dict[str, float]]:
    import pathsum

    folder, path = checkpoint()

    def norm(keep: object = folder) -> dict[str, float]:
        return {"sum": pathsum.open(path).weights.head(f"L{LAYER}H3").OV.norm().item()}

    return norm


def peer() -> Callable[[], dict[str, float]]:
    """transformers: the whole model, then a slice of two of its tensors."""
    import torch
    import transformers

    folder, path = checkpoint()

    def norm(keep: object = folder) -> dict[str, float]:
        model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
        attention = model.model.layers[LAYER].self_attn
        W_V, W_O = (part.weight.detach() for part in (attention.v_proj, attention.o_proj))
        return {"sum": (W_O[:, 3 * HEAD : 4 * HEAD] @ W_V[3 * HEAD : 4 * HEAD]).norm().item()}

    return norm


BENCHMARKS = [Benchmark("opening-5gb-one-head", Side(ours), Side(peer, runs=3))]
