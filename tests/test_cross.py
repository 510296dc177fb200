"""Tables of a readout: every cell is the sum of its paths, by enumeration."""

from itertools import permutations

import pytest
import torch

from cases import CASES, agree
from pathsum.errors import NotApplicable
from pathsum.paths.cross import AXES, cross
from pathsum.paths.logits import expand
from pathsum.runs.run import run_weights
from pathsum.weights.model import Model

PAIRS = [(axis,) for axis in AXES] + [pair for pair in permutations(AXES, 2) if set(pair) != {"head", "layer"}]


def readout_of(case, tokens=None):
    run = run_weights(Model(case.name, case.weights), case.weights, case.tokens if tokens is None else tokens)
    generator = torch.Generator().manual_seed(5)
    return expand(run).toward(torch.randn(2, case.spec.d_vocab, dtype=torch.float64, generator=generator), 3)


def cell(axis: str, path, position: int) -> str:
    """Where a path from a position belongs."""
    last = f"L{path.heads[-1][0]}H{path.heads[-1][1]}" if path.heads else "direct"
    return {
        "order": str(path.order),
        "source": path.source,
        "position": str(position),
        "head": last,
        "layer": last.split("H")[0],
    }[axis]


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_every_cell_is_the_sum_of_its_paths(case):
    readout = readout_of(case)
    shares = {path: readout.by_position(path) for path in readout.terms(case.spec.n_layers).paths}
    for axes in PAIRS:
        table = cross(readout, *axes)
        assert table.axes == axes and table.check() < 1e-10
        assert [len(labels) for labels in table.labels] == list(table.values.shape[: len(axes)])
        expected = torch.zeros_like(table.values)
        for path, share in shares.items():
            for position in range(share.shape[-1]):
                where = tuple(
                    labels.index(cell(axis, path, position)) for axis, labels in zip(axes, table.labels, strict=True)
                )
                expected[where] += share[..., position]
        agree(table.values, expected, 1e-9)


@pytest.mark.parametrize("case", [case for case in CASES if case.name in ("gpt2", "llama", "gemma2")], ids=repr)
def test_a_batch_is_its_texts_one_by_one(case):
    other = case.tokens.flip(0)
    both = readout_of(case, torch.stack([case.tokens, other]))
    for axes in PAIRS:
        together = cross(both, *axes).values
        for at, tokens in enumerate((case.tokens, other)):
            agree(together[..., at], cross(readout_of(case, tokens), *axes).values, 1e-9)


@pytest.mark.parametrize("axes", [(), ("head", "layer"), ("order", "order"), ("token",), ("order", "head", "source")])
def test_other_tables_are_refused(axes):
    with pytest.raises(NotApplicable):
        cross(readout_of(CASES[-1]), *axes)
