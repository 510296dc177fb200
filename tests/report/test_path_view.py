"""A prediction taken apart for the path view: every part against the oracle's listed terms."""

import pytest
import torch

import cases
import oracle
from pathsum.errors import NotApplicable
from pathsum.paths.logits import expand
from pathsum.report.views.path_table import path_table
from pathsum.report.views.paths import PathView, path_view
from pathsum.runs.run import run
from pathsum.weights.model import Model

AT = 4


def expansion_of(case: cases.Case):
    return expand(run(Model(case.name, case.weights), case.tokens, dtype=torch.float64))


def listed(case: cases.Case, at: int, target: int, versus: int | None) -> dict[str, float]:
    """What every path adds to the number, by name."""
    found = {}
    for term in oracle.terms(case.spec, case.arrays, case.recorded):
        row = term.logits[at]
        name = " → ".join((term.source, *(f"L{layer}H{head}" for layer, head in term.heads)))
        found[name] = row[target] - (row.mean() if versus is None else row[versus])
    return found


def holds(found: PathView, terms: dict[str, float]) -> None:
    """Every part of a view is the sum of its paths."""
    size = max(map(abs, terms.values())) + 1e-300
    near = lambda a, b: abs(a - b) <= 1e-10 * size
    order = lambda name: name.count("→")
    assert near(found.value, sum(terms.values())) and found.error < 1e-12
    for row in found.orders:
        assert near(row["value"], sum(value for name, value in terms.items() if order(name) == row["order"]))
        assert row["paths"] == sum(order(name) == row["order"] for name in terms)
    for row in found.sources:
        assert near(row["direct"], terms[row["name"]])
        through = sum(value for name, value in terms.items() if name.startswith(f"{row['name']} →"))
        assert near(row["through_heads"], through)
    for row in found.heads:
        assert near(row["value"], sum(value for name, value in terms.items() if name.endswith(f" {row['name']}")))
    assert near(sum(found.positions), found.value)
    strongest = sorted(terms.values(), key=abs, reverse=True)[:5]
    assert [abs(row["value"]) for row in found.paths] == pytest.approx([abs(value) for value in strongest], rel=1e-9)
    for row in found.paths:
        assert near(row["value"], terms[row["name"]])
    assert near(found.rest + sum(row["value"] for row in found.paths), found.value)


@pytest.mark.parametrize("against", [False, True])
@pytest.mark.parametrize("case", cases.CASES, ids=repr)
def test_every_part_is_the_sum_of_its_paths(case, against):
    tokens = case.tokens.tolist()
    versus = (tokens[AT + 1] + 1) % case.spec.d_vocab if against else None
    holds(path_view(expansion_of(case), AT, versus=versus, count=5), listed(case, AT, tokens[AT + 1], versus))


@pytest.mark.parametrize("case", cases.CASES, ids=repr)
def test_all_predictions_at_once_are_each_its_own(case):
    expansion, tokens = expansion_of(case), case.tokens.tolist()
    table = path_table(expansion)
    for at in (0, AT, len(tokens) - 1):
        found, alone = table.view(at, count=5), path_view(expansion, at, count=5)
        holds(found, listed(case, at, int(table.targets[at]), None))
        assert found.target == alone.target and found.certified
        assert found.positions == pytest.approx(alone.positions, abs=1e-9)
        for row, other in zip(found.paths, alone.paths, strict=True):
            if row["name"] == other["name"]:
                assert abs(row["from_value"]) == pytest.approx(abs(other["from_value"]), rel=1e-9, abs=1e-12)
            assert abs(row["value"]) == pytest.approx(abs(other["value"]), rel=1e-9)
        assert found.bound <= abs(found.paths[-1]["value"])


def test_the_target_is_what_follows_and_after_the_last_the_first_choice():
    case = cases.BY_NAME["two_layers_sinusoidal"]
    expansion, tokens = expansion_of(case), case.tokens.tolist()
    assert path_view(expansion, 2).target == str(tokens[3]) and path_view(expansion, 2).token == str(tokens[2])
    assert path_view(expansion).target == str(int(case.recorded.logits[-1].argmax()))
    assert path_view(expansion, target=7, versus=3).versus == "3"
    with pytest.raises(NotApplicable):
        path_view(expansion, 99)


def test_what_is_not_listed_is_one_number():
    case = cases.BY_NAME["three_layers_alibi"]
    found = path_view(expansion_of(case), 3, count=1)
    assert len(found.paths) == 1 and found.certified and abs(found.bound) <= abs(found.paths[0]["value"])
    assert found.paths[0]["from_position"] <= 3 and found.positions[4:] == [0.0] * (len(case.tokens) - 4)
