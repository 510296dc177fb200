"""Every reading is run once, in order, and what does not apply says why."""

from math import prod

import pytest
import torch

import cases
import pathsum
from pathsum import toys
from pathsum.behaviour.losses import run_losses
from pathsum.errors import StudyError, TextError
from pathsum.report.results import run_readings
from pathsum.study.catalogue import BY_NAME
from pathsum.study.result import read_one
from pathsum.study.subject import Subject
from pathsum.weights.model import Model
from pathsum.weights.shapes import required_shapes


def test_all_readings_of_a_report_are_there_in_the_catalogues_order(results):
    assert list(results) == [name for name, reading in BY_NAME.items() if reading.in_report]
    assert {"virtual", "carried"} <= set(BY_NAME) - set(results)


def test_progress_names_each_reading_before_it_starts_and_ends_complete():
    seen = []
    chosen = ["entries", "repeats", "composition", "describe"]
    found = run_readings(Subject(toys.induction_model(6, 24)), lambda *step: seen.append(step), chosen)
    # What is read off weights comes before what is run; the results are in the catalogue's order.
    titles = [BY_NAME[name].title for name in ("describe", "composition", "entries", "repeats")]
    assert seen == [*((done, 4, title) for done, title in enumerate(titles)), (4, 4, "")]
    assert list(found) == ["describe", "composition", "repeats", "entries"]


def test_folded_float64_weights_are_let_go_of_before_anything_runs():
    subject = Subject(toys.induction_model(6, 24))
    run_readings(subject, only=["composition", "entries"])
    assert {"folded", "tables"} <= set(vars(subject))
    run_readings(subject, only=["repeats"])
    assert not {"folded", "tables"} & set(vars(subject))


def test_an_unknown_name_is_refused_with_those_there_are():
    with pytest.raises(StudyError, match=r"no reading 'compositions'; there are describe, .*composition"):
        run_readings(Subject(toys.induction_model(6, 24)), only=["compositions"])


def test_a_reading_that_does_not_fit_the_model_keeps_its_columns_and_says_why():
    case = cases.case("no_room", None, n_tokens=2)
    found = run_readings(Subject(Model("tiny", case.weights), [0, 1, 2]), only=["repeats"])["repeats"]
    assert found.frame.is_empty() and found.frame.columns == ["copy", "loss"]
    assert "do not fit a context of 4" in found.manifest["not_applicable"]


def test_a_block_that_was_asked_for_and_does_not_fit_is_an_error():
    case = cases.case("no_room", None, n_tokens=2)
    with pytest.raises(TextError, match="do not fit"):
        run_readings(Subject(Model("tiny", case.weights), [0, 1, 2], block=3), only=["repeats"])


def test_a_text_of_one_token_is_an_error():
    with pytest.raises(TextError, match="at least 2"):
        run_readings(Subject(toys.induction_model(6, 24), [1]), only=["in_context"])


def test_heads_are_removed_from_as_much_as_the_budget_allows(monkeypatch):
    """Two copies are the beginning of three: losses on them are those of the whole, where they predict."""
    subject = Subject(pathsum.open("two-layer-small"), block=8, batch=3)
    assert subject.removal_size == (3, 3) and subject.removal_run is subject.repeats
    once = len(subject.head_names) * sum(map(prod, required_shapes(subject.model.spec).values())) * 24
    for budget, size in ((2.5 * once, (2, 3)), (1.01 * once, (1, 3)), (0.9 * once, (1, 2)), (0, (1, 2))):
        monkeypatch.setattr("pathsum.study.subject.REMOVALS", int(budget))
        small = Subject(subject.model, block=8, batch=3)
        assert small.removal_size == size
        tokens = small.removal_run.tokens
        assert torch.equal(tokens, subject.repeated_tokens[: size[0], : tokens.shape[1]])
        assert tokens.shape[1] == subject.repeated_tokens.shape[1] - 8 * (3 - size[1])
        agree = run_losses(small.removal_run) - run_losses(subject.repeats)[: size[0], : tokens.shape[1] - 1]
        assert agree.abs().max() < 1e-5
    result = read_one("induction", small)
    assert result.manifest["random_tokens"]["heads_removed_from"] == {"sequences": 1, "copies": 2}
    assert result.frame["causal_effect"].is_finite().all()
