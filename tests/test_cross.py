"""Tables of whole logits and of numbers read off them: every cell is the sum of its paths, by enumeration."""

from itertools import permutations

import pytest
import torch

import oracle
from cases import BY_NAME, CASES, agree
from pathsum.errors import ExpansionTooLarge, NotApplicable
from pathsum.paths import logit_table
from pathsum.paths.cross import cross
from pathsum.paths.logits import expand
from pathsum.paths.table import AXES, relative_error
from pathsum.runs.run import run_weights
from pathsum.weights.model import Model

TABLES = [(axis,) for axis in AXES] + [pair for pair in permutations(AXES, 2) if set(pair) != {"head", "layer"}]


def expansion_of(case, tokens=None):
    return expand(run_weights(Model(case.name, case.weights), case.weights, case.tokens if tokens is None else tokens))


def readout_of(case, tokens=None):
    generator = torch.Generator().manual_seed(5)
    directions = torch.randn(2, case.spec.d_vocab, dtype=torch.float64, generator=generator)
    return expansion_of(case, tokens).toward(directions, 3)


def cell(axis: str, source: str, heads: tuple, position: int) -> str:
    """Where a path from a position belongs."""
    last = f"L{heads[-1][0]}H{heads[-1][1]}" if heads else "direct"
    return {
        "order": str(len(heads)),
        "source": source,
        "position": str(position),
        "head": last,
        "layer": last.split("H")[0],
    }[axis]


def place(table, source: str, heads: tuple, position: int) -> tuple[int, ...]:
    """The same as indices into a table."""
    places = zip(table.axes, table.labels, strict=True)
    return tuple(labels.index(cell(axis, source, heads, position)) for axis, labels in places)


def labels_of(case, axes) -> tuple[tuple[str, ...], ...]:
    """All cells there are, the earlier first."""
    spec, numbers = case.spec, lambda count: tuple(str(number) for number in range(count))
    final = ["unembed.bias"] if "b_U" in case.tensors or "final_norm.bias" in case.tensors else []
    wanted = {
        "order": numbers(spec.n_layers + 1),
        "source": (*(name for name, *_ in oracle.sources(spec, case.arrays, case.recorded)), *final),
        "position": numbers(len(case.tokens)),
        "head": ("direct", *(f"L{layer}H{head}" for layer in range(spec.n_layers) for head in range(spec.n_heads))),
        "layer": ("direct", *(f"L{layer}" for layer in range(spec.n_layers))),
    }
    return tuple(wanted[axis] for axis in axes)


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_every_cell_of_whole_logits_is_the_sum_of_its_paths(case):
    """Of the oracle's dense products, each source at each position carried alone."""
    expansion, n = expansion_of(case), len(case.tokens)
    listed = [(at, term) for at in range(n) for term in oracle.terms(case.spec, case.arrays, case.recorded, at)]
    for axes in TABLES:
        table = expansion.by(*axes)
        assert table.axes == axes and table.labels == labels_of(case, axes) and table.check() <= 1e-12
        assert table.values.shape == (*map(len, table.labels), n, case.spec.d_vocab)
        expected = torch.zeros_like(table.values)
        for at, term in listed:
            expected[place(table, term.source, term.heads, at)] += torch.from_numpy(term.logits)
        agree(table.values, expected)


def test_every_axis_has_a_name_of_its_own():
    expansion = expansion_of(BY_NAME["gpt2"])
    for axis in AXES:
        table = getattr(expansion, f"by_{axis}")()
        assert table.axes == (axis,)
        agree(table.values, expansion.by(axis).values, 0)


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_every_cell_of_a_readout_is_the_sum_of_its_paths(case):
    readout = readout_of(case)
    shares = {path: readout.by_position(path) for path in readout.terms(case.spec.n_layers).paths}
    for axes in TABLES:
        table = cross(readout, *axes)
        assert table.axes == axes and table.labels == labels_of(case, axes) and table.check() < 1e-10
        assert [len(labels) for labels in table.labels] == list(table.values.shape[: len(axes)])
        expected = torch.zeros_like(table.values)
        for path, share in shares.items():
            for position in range(share.shape[-1]):
                expected[place(table, path.source, path.heads, position)] += share[..., position]
        agree(table.values, expected, 1e-9)


@pytest.mark.parametrize("case", [case for case in CASES if case.name in ("gpt2", "llama", "gemma2")], ids=repr)
def test_a_batch_is_its_texts_one_by_one(case):
    other = case.tokens.flip(0)
    both = readout_of(case, torch.stack([case.tokens, other]))
    whole = expansion_of(case, torch.stack([case.tokens, other]))
    for axes in TABLES:
        together, logits = cross(both, *axes).values, whole.by(*axes).values
        for at, tokens in enumerate((case.tokens, other)):
            agree(logits[..., at, :, :], expansion_of(case, tokens).by(*axes).values)
            agree(together[..., at], cross(readout_of(case, tokens), *axes).values, 1e-9)


@pytest.mark.parametrize("axes", [(), ("head", "layer"), ("order", "order"), ("token",), ("order", "head", "source")])
def test_other_tables_are_refused(axes):
    for ask in (lambda: cross(readout_of(CASES[-1]), *axes), lambda: expansion_of(CASES[-1]).by(*axes)):
        with pytest.raises(NotApplicable, match=r"a table is by one or two of|a table by both"):
            ask()


def test_whole_logits_past_the_bound_are_refused_with_what_to_ask_instead(monkeypatch):
    case = BY_NAME["gpt2"]
    expansion, n = expansion_of(case), len(case.tokens)
    most = n * n * case.spec.d_vocab
    monkeypatch.setattr(logit_table, "NUMBERS", most)
    assert expansion.by_position().values.numel() == most
    instead = r'one axis alone, .*pathsum.cross\(expansion.toward\(directions, position\), "position", "order"\)'
    with pytest.raises(ExpansionTooLarge, match=rf"position and order are 21 times .*; ask by {instead}"):
        expansion.by("position", "order")
    with pytest.raises(ExpansionTooLarge, match="; ask of a shorter text"):
        monkeypatch.setattr(logit_table, "NUMBERS", most - 1)
        expansion.by("position")


def test_the_error_of_a_table_is_of_the_largest_value_in_size():
    assert relative_error(torch.tensor([0.0, -1.0]), torch.tensor([0.5, -2.0])) == 0.5
    assert relative_error(torch.tensor([3.0, 1.0]), torch.tensor([4.0, 1.0])) == 0.25
    assert relative_error(torch.tensor([0.25]), torch.tensor([0.0])) == 0.25
