"""What the claims measure, against what is counted by hand."""

import math

import polars as pl
import pytest
import torch

import pathsum
from pathsum.runs.run import run_weights
from pathsum.study import claim_circuits, claim_context, claim_measures, claim_training
from pathsum.study.subject import Subject
from pathsum.weights.weights import Weights


@pytest.fixture(scope="module")
def subject() -> Subject:
    return Subject(pathsum.open("two-layer-small"), sequences=4)


def test_windows_are_the_last_tenth_less_tokens_20_to_30():
    losses = torch.arange(2, 102, dtype=torch.float64)[None]  # of predicting token 2, 3 …: its own number
    assert claim_context.windows(losses) == pytest.approx(96.5 - 25.0)  # tokens 92 … 101 and 20 … 30


def test_a_change_of_gauge_changes_every_factor_and_no_logit(subject, monkeypatch):
    seen = {}
    original = Weights.from_tensors.__func__
    remembered = lambda cls, spec, tensors: seen.update(tensors) or original(cls, spec, tensors)
    monkeypatch.setattr(Weights, "from_tensors", classmethod(remembered))
    assert claim_measures.gauge_change(subject) < 1e-12
    before = subject.raw.to(torch.float64).tensors()
    for name in ("W_Q", "W_K", "W_V", "W_O"):
        assert (seen[f"L1.{name}"] / before[f"L1.{name}"] - 1).abs().median() > 0.05
    seen["L1.W_O"] = before["L1.W_O"]
    half = run_weights(subject.model, original(Weights, subject.model.spec, seen), subject.sample_tokens).logits
    whole = run_weights(subject.model, subject.raw.to(torch.float64), subject.sample_tokens).logits
    assert (half - whole).abs().max() / whole.abs().max() > 0.05


def test_what_goes_with_induction_heads_is_what_a_model_without_them_lacks(subject):
    found = claim_context.caused(subject)
    heads = (
        pathsum.induction(subject.model, sequences=4).frame.filter(pl.col("prefix_matching") >= 0.3)["head"].to_list()
    )
    assert heads == ["L1H1"]
    tensors = dict(subject.raw.tensors())
    tensors["L1.W_O"] = tensors["L1.W_O"].clone()
    tensors["L1.W_O"][1] = 0
    without = Weights.from_tensors(subject.raw.spec, tensors)
    tokens, block = subject.repeated_tokens, subject.block_length

    def saved(weights: Weights) -> float:
        logits = run_weights(subject.model, weights, tokens).logits[:, :-1]
        losses = torch.nn.functional.cross_entropy(logits.mT, tokens[:, 1:], reduction="none")
        first = tokens.shape[1] - 3 * block
        return (losses[:, first : first + block - 1].mean() - losses[:, -(block - 1) :].mean()).item()

    assert found["repeats_removed"] == pytest.approx(1 - saved(without) / saved(subject.raw), abs=1e-4)


def test_the_induction_head_compares_its_token_with_the_one_before(subject):
    assert claim_circuits.own_with_previous(subject, "L1H1") > 0.8
    assert claim_circuits.own_with_previous(subject, "L0H0") == pytest.approx(0, abs=1e-6)  # layer 0 reads no lag but 0


def test_edges_are_drawn_from_half_way_between_median_and_strongest():
    rows = {"kind": ["K"] * 5, "source": list("abcde"), "destination": ["x"] * 5}
    pairs = pl.DataFrame({**rows, "score": [0.0, 0.1, 0.2, 0.71, 1.2], "cyclic_score": [0.0, 0.1, 0.2, 0.69, 1.2]})
    assert claim_circuits._edges(pairs) == {"edges_cyclic_only": 0.0, "edges_corrected_only": 1.0}


def test_a_share_of_bigrams_is_of_what_they_say_beyond_unigrams(subject):
    (row,) = pathsum.bigrams(subject.model).rows()
    beyond = row["unigram_entropy"] - row["bigram_entropy"]
    missing = (row["direct_path_loss"] - row["bigram_entropy"]) / beyond
    assert claim_measures.bigrams(subject)["bigram_share"] == pytest.approx(1 - missing)


def test_what_comes_when_is_in_doublings_after_prefix_matching():
    tokens = [1, 2, 4, 8, 16, 32]
    steps = lambda at, size=1.0: [size * (seen >= at) for seen in tokens]
    over = lambda columns: pl.DataFrame({"tokens": tokens, **columns})
    pair = {"kind": ["K"] * 6, "source": ["L0H0"] * 6, "destination": ["L1H0"] * 6}
    tables = {
        "composition": over({**pair, "effect": steps(4)}),
        "matching": over({**pair, "matching_score": steps(8)}),
        "induction": over({"head": ["L1H0"] * 6, "prefix_matching": steps(8)}),
        "repeats": pl.concat([over({"copy": [copy] * 6, "loss": steps(16, 3.0 * (copy == 1))}) for copy in (1, 2, 3)]),
        "loss_by_position": pl.concat([
            over({"token": [place] * 6, "loss": steps(32, -1.0 * (place > 90))}) for place in range(2, 102)
        ]),
    }  # fmt: skip
    found = claim_training.changes(tables.__getitem__)
    assert found["rise"] == pytest.approx(math.log2(8) - 0.5)
    after = {name.removesuffix("_after_rise"): at for name, at in found.items() if name != "rise"}
    assert after == pytest.approx({"composition": -1, "matching": 0, "repeats": 1, "fall": 2})
