"""Checkpoints larger than what may be used of memory."""

import subprocess
import sys

from sparse_files import sparse_checkpoint

SCRIPT = """
import pathlib, resource, sys
import torch, pathsum
torch.set_num_threads(1)
from pathsum.circuits.cut import compositions
mapped = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()  # by torch: 0.6 to 3 GB
resource.setrlimit(resource.RLIMIT_AS, (mapped + (3 << 30),) * 2)
weights = pathsum.open(sys.argv[1]).weights.to(torch.float32).fold()
print(sum(pairs.score.numel() for _, _, pairs in compositions(weights, deltas=(1,), memory=100_000_000)))
"""


def test_a_checkpoint_of_20_gb_is_composed_in_3_gb_of_address_space(tmp_path):
    """One shard is mapped at a time; factors of as many layers as fit are held."""
    folder = sparse_checkpoint(tmp_path / "big", n_layers=41, d=256, d_mlp=160_000)
    assert sum(file.stat().st_size for file in folder.iterdir()) > 20_000_000_000
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == 3 * 4 * 4 * 41 * 40 // 2
