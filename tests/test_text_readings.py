"""Readings of a text position by position and pair by pair."""

import polars as pl
import pytest
import torch

import cases
import pathsum
from pathsum.behaviour.losses import next_token_losses
from pathsum.study import on_tokens
from pathsum.study.composition import composition
from pathsum.study.result import read_one
from pathsum.study.subject import Subject
from pathsum.weights.model import Model


@pytest.fixture(scope="module")
def subject() -> Subject:
    return Subject(pathsum.open("two-layer-small"), sequences=2)


def test_the_two_marked_positions_are_those_of_the_in_context_score(subject):
    (score,), rows = read_one("in_context", subject).rows(), read_one("loss_by_position", subject).rows()
    marked = {row["compared"]: row for row in rows if row["compared"]}
    assert [marked[name]["token"] for name in ("early", "late")] == [score["early_token"], score["late_token"]]
    assert marked["late"]["loss"] - marked["early"]["loss"] == pytest.approx(score["score"], abs=1e-5)
    assert sum(row["loss"] for row in rows) / len(rows) == pytest.approx(score["mean_loss"])


def test_losses_by_position_are_means_over_the_contexts_with_their_errors(subject):
    rows, contexts = read_one("loss_by_position", subject).rows(), subject.contexts(16)
    run = pathsum.run(subject.model, contexts[0].tolist(), bos=False)
    agree = next_token_losses(run.logits, run.tokens) - subject.position_losses[0]
    assert agree.abs().max() < 1e-4
    assert [row["token"] for row in rows] == list(range(2, contexts.shape[1] + 1))
    third = subject.position_losses[:, 1]
    assert rows[1]["loss"] == pytest.approx(third.mean().item())
    assert rows[1]["loss_error"] == pytest.approx(third.std().item() / 16**0.5)


def test_a_single_context_has_no_error():
    model = pathsum.open("two-layer-small")
    rows = pathsum.loss_by_position(model, text=list(range(20)), sequences=1).rows()
    assert len(rows) == 19 and all(row["loss_error"] is None for row in rows)


def test_bigram_pairs_are_tokens_as_text_the_most_frequent_first(subject):
    frame = pathsum.bigram_pairs(subject.model, text=" the cat the cat the", count=3).frame
    assert frame["count"].is_sorted(descending=True) and frame.height == 3
    whole = read_one("bigram_pairs", subject, count=30).frame
    tokens = subject.text_tokens
    assert whole["count"][0] == max(torch.stack([tokens[:-1], tokens[1:]]).unique(dim=1, return_counts=True)[1]).item()
    assert whole["direct_log_probability"].max() <= 0


@pytest.mark.parametrize("count", [0, 100_001])
def test_a_count_nobody_could_read_is_refused(subject, count):
    with pytest.raises(pathsum.PathsumError, match=f"count is {count}"):
        read_one("bigram_pairs", subject, count=count)


@pytest.mark.parametrize(("name", "least"), [("two-layer", 10.0), ("mixtral", 0.0), ("gpt_oss", 0.0)])
def test_partners_are_those_of_the_composition_table(name, least, monkeypatch):
    """The strongest K-composition above the baseline among sure ones: of rotary heads over all distances."""
    monkeypatch.setattr(on_tokens, "PARTNER_Z", least)
    case = cases.BY_NAME.get(name)
    subject = Subject(pathsum.open(name) if case is None else Model(name, case.weights))
    table = composition(subject, delta="rms").filter(pl.col("kind") == "K", pl.col("effect") > 0, pl.col("z") >= least)
    expected = {row["destination"]: row["source"] for row in table.reverse().to_dicts()}
    assert expected and on_tokens.k_partners(subject) == expected
