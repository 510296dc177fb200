"""Composition of a whole model: its layers cut into groups that fit in memory, each pair of groups a task.

1. What reads and what writes comes in parts, in the order of stages (`stream.parts`).
2. Consecutive parts are a group. Readers of one group and writers of one are in memory at a time, so a model that does
   not fit is read again: readers once, writers once for every group that reads them.
3. Tasks know nothing of each other: they run one after the other here, or on several machines.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import torch

from pathsum.circuits.composition import Pairs, gram_pairs, places
from pathsum.circuits.gram import BUFFER
from pathsum.circuits.stream import KINDS, Delta, Kind, Loaded, Part, Site, Which, parts
from pathsum.errors import ExpansionTooLarge
from pathsum.weights.weights import Weights

MEMORY = 1_400_000_000
"""Bytes that composition of all layers may take beyond the weights, unless asked otherwise."""
HELD = 0.75
"""The share of them that Gram matrices' factors may take."""
Task = tuple[int, int]
"""A group that reads, and one that wrote, by place."""


class Composed(NamedTuple):
    """One site that reads, one of an earlier stage that writes, and their pairs; None where undefined."""

    reader: Site
    writer: Site
    pairs: Pairs | None


@dataclass(frozen=True)
class Cut:
    """A model's parts in groups."""

    groups: list[list[Part]]
    d: int
    buffer: int

    @property
    def tasks(self) -> list[Task]:
        """Every group that reads with every one that wrote before it, or with it."""
        return [(later, earlier) for later in range(len(self.groups)) for earlier in range(later + 1)]

    def pairs(self, task: Task | None = None) -> Iterator[Composed]:
        """All pairs, or those of one task."""
        for place, later in enumerate(self.groups):
            wanted = [before for before in range(place + 1) if task is None or task == (place, before)]
            loaded = [part.load() for part in later] if wanted else []
            for earlier in (self.groups[before] for before in wanted):
                wrote = loaded if earlier is later else [part.load() for part in earlier]
                yield from _group_pairs(later, loaded, earlier, wrote, self.d, self.buffer)


def cut(
    weights: Weights,
    kinds: Sequence[Kind] = KINDS,
    deltas: Sequence[Delta] = (None,),
    *,
    writers: Which = "heads",
    readers: Which = "heads",
    dtype: torch.dtype = torch.float32,
    memory: int = MEMORY,
    groups: int = 1,
) -> Cut:
    """Everything that reads and everything that writes (folded weights), in groups.

    `kinds` of heads' readers; where W_QK depends on Δ (rotary), a site for each of `deltas`: one distance, several or
    "rms" (0 … n_ctx − 1), for which the score is √(mean of score(Δ)²), or None, for which Q and K are undefined.
    `writers`, `readers`: heads, or all (embedding, positions, MLPs, unembedding too). `dtype` is that of the Gram
    matrices and their products; spectra of heads, moments and sums are float64 always. `memory` bounds in bytes what
    is held beyond the weights: there are `groups` groups, more where they would not fit, fewer where there are no more
    parts.

    Raises `NotApplicable` for a delta that is no distance, `ExpansionTooLarge` where not even two layers fit.
    """
    every = parts(weights, kinds, deltas, writers, readers, dtype)
    found = _groups(every, int(HELD * memory) // dtype.itemsize, groups)
    return Cut(found, weights.spec.d_model, min(BUFFER, memory // 8))


def compositions(
    weights: Weights, kinds: Sequence[Kind] = KINDS, deltas: Sequence[Delta] = (None,), **options: Any
) -> Iterator[Composed]:
    """Composition of everything that reads with everything that wrote before it; options are those of `cut`."""
    return cut(weights, kinds, deltas, **options).pairs()


def _groups(every: list[Part], held: int, least: int = 1) -> list[list[Part]]:
    """Consecutive parts; readers of one group and writers of one are held at once, `held` numbers at most.

    At least so many groups, where there are as many parts.

    Raises `ExpansionTooLarge` where single parts are too large.
    """
    for count in range(min(least, len(every)) or 1, len(every) + 1):
        size = -(-len(every) // count)
        groups = [every[start : start + size] for start in range(0, len(every), size)]
        need = _largest(groups, "read_numbers") + _largest(groups, "written_numbers")
        if need <= held:
            return groups
        if size == 1:
            raise ExpansionTooLarge(
                f"one layer's readers and another's writers are {need:,} numbers, {held:,} fit; "
                f"raise memory= (at least {need / held:.1f} times as much)"
            )
    return []


def _largest(groups: list[list[Part]], which: str) -> int:
    return max(sum(getattr(part, which) for part in group) for group in groups)


def _group_pairs(
    later: list[Part], loaded: list[Loaded], earlier: list[Part], wrote: list[Loaded], d: int, buffer: int
) -> Iterator[Composed]:
    """Readers of some parts with writers of some, where the writer's stage is earlier."""
    writers = [(part.stage, *found) for part, one in zip(earlier, wrote, strict=True) for found in one.writers]
    readers = [(part.stage, *found) for part, one in zip(later, loaded, strict=True) for found in one.readers]
    readers = [reader for reader in readers if writers and reader[0] > writers[0][0]]
    for (stage, site, gram), (wrote_at, source, _) in product(readers, writers):
        if gram is None and wrote_at < stage:
            yield Composed(site, source, None)
    known = [(stage, site, gram) for stage, site, gram in readers if gram is not None]
    if not known:
        return
    writers = [writer for writer in writers if writer[0] < known[-1][0]]
    limits = [sum(len(gram) for wrote_at, _, gram in writers if wrote_at < stage) for stage, _, _ in known]
    found = gram_pairs([gram for _, _, gram in known], limits, [gram for _, _, gram in writers], d, buffer)
    rows, columns = (places([gram for _, _, gram in side]) for side in (known, writers))
    for (row, (stage, site, _)), (column, (wrote_at, source, _)) in product(
        zip(rows, known, strict=True), zip(columns, writers, strict=True)
    ):
        if wrote_at < stage:
            yield Composed(site, source, found.part(row, column))
