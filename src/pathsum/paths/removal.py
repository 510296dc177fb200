"""What a path is worth when the rest of the model may react: what the frozen picture leaves out, measured.

A path's vector is taken out of the residual stream where its last head (or its source) wrote it. Frozen, the number
falls by all paths that begin with it, exactly (`frozen`). Live, everything after is run again: patterns, norms and
MLPs answer to what is missing (`live`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from pathsum.errors import NotApplicable
from pathsum.paths.paths import Path, source_layer
from pathsum.paths.readout import Readout
from pathsum.paths.target import Target
from pathsum.runs.forward import Frozen, forward, logits
from pathsum.runs.graded import streams
from pathsum.runs.linear import heads_transposed

AT_ONCE = 2048
"""Tokens run at once."""


@dataclass(frozen=True)
class Removal:
    """Changes of a target, one a path: the number without it less the number with it."""

    frozen: Float[Tensor, " path"]
    live: Float[Tensor, " path"]

    @property
    def explained(self) -> float:
        """`1 − Σ (live − frozen)² / Σ live²`: what the frozen picture explains of what happens; 1 is all of it.

        Below 0: saying that nothing happens would be closer. NaN where nothing does.
        """
        return (1 - (self.live - self.frozen).square().sum() / self.live.square().sum()).item()


@torch.no_grad()
def removed(readout: Readout, target: Target, paths: Sequence[Path], replay: Frozen | None = None) -> Removal:
    """Each path's vector taken out where it was written, frozen and live.

    `replay` freezes the live run again: both are then the same. Of a run of one text. Raises `NotApplicable` for
    `unembed.bias`, which is in no stream.
    """
    frozen, run = readout.frozen, readout.frozen.run
    if run.tokens.dim() != 1:
        raise NotApplicable("paths are removed from a run of one text")
    if any(path.source == "unembed.bias" for path in paths):
        raise NotApplicable("unembed.bias goes straight to the logits: there is no stream to take it out of")
    after = _all_continuations(readout)
    stream = list(streams(frozen))
    changes = torch.zeros(2, len(paths), dtype=run.residual.dtype)
    places = [_written(path) + 1 for path in paths]
    for layer in sorted(set(places)):
        own = [at for at, begin in enumerate(places) if begin == layer]
        for some in torch.tensor(own).split(max(1, AT_ONCE // run.tokens.numel())):
            chosen = [paths[at] for at in some.tolist()]
            vectors = torch.stack([frozen.carry(readout.sources[path.source], path.heads) for path in chosen])
            changes[0, some] = -torch.einsum("npd,pd->n", vectors, after[layer])
            tokens = run.tokens.expand(len(some), -1)
            done = forward(run.weights, tokens, begin=(layer, stream[layer] - vectors), frozen=replay)
            at = target.position
            changes[1, some] = target.of(logits(run.weights.ends, done.residual[:, at], done.final_scale[:, at]))
    changes[1] -= target.value
    return Removal(changes[0], changes[1])


def _written(path: Path) -> int:
    """The layer that writes a path's vector; −1: before the first."""
    return path.heads[-1][0] if path.heads else source_layer(path.source)


def _all_continuations(readout: Readout) -> list[Tensor]:
    """The readout as a covector on the stream before layer 0, 1, … and after the last: through all heads beyond."""
    g = readout.covectors[0]
    found = [g]
    for block, seen in reversed(list(readout.frozen.layers)):
        g = g + heads_transposed(block, seen, g)
        found.append(g)
    return found[::-1]
