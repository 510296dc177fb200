"""Readings find exactly what was planted, and nothing else."""

import math

import polars as pl
import pytest
import torch

import pathsum
from pathsum.errors import NotApplicable
from pathsum.paths.logits import expand
from pathsum.toys import bigram_model, induction_model, skip_trigram_model, virtual_head_model


def test_a_planted_bigram_table_is_the_direct_path():
    table = torch.randn(9, 9, dtype=torch.float64)
    model = bigram_model(table)
    run = pathsum.run(model, [3, 1, 4], dtype=torch.float64)
    assert torch.equal(run.logits, table[:, [3, 1, 4]].T)
    assert pathsum.importance(model).frame["order"].to_list() == [-1, 0]


def test_planted_skip_trigrams_are_found_and_no_others():
    planted = [(1, 2, 3), (4, 5, 6), (7, 0, 7)]
    frame = pathsum.trigrams(skip_trigram_model(planted), count=50, per_source=12).frame
    assert {(int(r["source"]), int(r["destination"]), int(r["out"])) for r in frame.iter_rows(named=True)} == set(
        planted
    )
    assert set(frame["head"]) == {"L0H0"}
    # attention 8 and push 5, each less its mean over the 12 tokens
    assert frame["qk"].to_list() == pytest.approx([8 * 11 / 12] * 3)
    assert frame["ov"].to_list() == pytest.approx([5 * 11 / 12] * 3)


def test_a_planted_skip_trigram_works_on_tokens():
    run = pathsum.run(skip_trigram_model([(1, 2, 3)], attention=40.0), [1, 9, 8, 2], dtype=torch.float64)
    assert run.logits[-1].argmax() == 3
    assert run.patterns[0, 0, -1, 0] == pytest.approx(1)


def test_trigrams_that_would_plant_others_are_refused():
    with pytest.raises(NotApplicable, match="every source may occur once"):
        skip_trigram_model([(1, 2, 3), (1, 5, 6)])


def test_the_planted_induction_pair_is_found_by_every_reading():
    model = induction_model()
    found = {row["head"]: row for row in pathsum.induction(model, block=12).rows()}
    assert [head for head, row in found.items() if row["is_induction_head"]] == ["L1H1"]
    assert found["L1H1"]["prefix_matching"] == pytest.approx(1)
    assert found["L1H1"]["start_token"] < 0.5
    assert found["L1H1"]["copying"] == pytest.approx(20 * 15 / 16)
    assert found["L1H1"]["partner"] == "L0H0"
    previous = {row["head"]: row["previous_token"] for row in pathsum.attention(model).rows()}
    assert previous["L0H0"] == pytest.approx(1) and max(v for h, v in previous.items() if h != "L0H0") < 0.2
    assert pathsum.repeats(model, block=12).frame["loss"][1:].to_list() == pytest.approx([0, 0], abs=1e-5)


def test_only_the_planted_composition_is_there():
    frame = pathsum.composition(induction_model()).frame
    composed = frame.filter(pl.col("score") > 1e-9)
    assert composed.select("kind", "source", "destination").rows() == [("K", "L0H0", "L1H1")]
    assert composed["z"].item() > 10 and composed["effect"].item() > 0
    assert frame.filter(pl.col("score") <= 1e-9)["effect"].max() < 0


def test_the_planted_pair_matches_and_its_later_head_copies():
    model = induction_model()
    pairs = pathsum.matching(model).frame.filter(pl.col("matching_score").is_not_nan())
    assert pairs.select("source", "destination", "matching_score").rows() == [("L0H0", "L1H1", 1.0)]
    spectra = {row["head"]: row for row in pathsum.spectra(model).rows()}
    assert spectra["L1H1"]["copying_score"] == pytest.approx(1)
    assert spectra["L1H1"]["own_token_top"] == 1.0
    for column in ("copying_score", "own_token_rank", "own_token_top"):
        assert {head for head, row in spectra.items() if row[column] is not None} == {"L1H1"}


def test_the_induction_heads_scores_come_from_the_direct_path_and_the_previous_token_head():
    tokens = torch.arange(12).repeat(3)
    split = pathsum.expand_scores(pathsum.run(induction_model(), tokens, dtype=torch.float64), "L1H1").by_order()
    total, one = split.scores.sum((0, 1)), split.scores[0, 1]
    pairs = torch.tensor([(i, i - 11) for i in range(12, 36)])
    assert one[pairs[:, 0], pairs[:, 1]].tolist() == pytest.approx(total[pairs[:, 0], pairs[:, 1]].tolist())


def test_the_planted_virtual_head_carries_everything():
    model = virtual_head_model()
    tokens = [5, 3, 8, 1, 9, 2]
    expansion = expand(pathsum.run(model, tokens, dtype=torch.float64))
    norms = {term.path.name: term.logits.norm().item() for term in expansion.terms()}
    assert [path for path, norm in norms.items() if norm > 1e-9] == ["embed → L0H0 → L1H0"]
    assert expansion.run.logits[2:].argmax(-1).tolist() == tokens[:-2]
    pattern = expansion.pattern("embed → L0H0 → L1H0")
    assert pattern.diagonal(-2).tolist() == pytest.approx([1] * 4)
    composed = pathsum.composition(model).frame.filter(pl.col("score") > 1e-9)
    assert composed.select("kind", "source", "destination").rows() == [("V", "L0H0", "L1H0")]


def test_removing_either_planted_head_costs_what_induction_is_worth():
    """Frozen, L0H0 only made keys: its terms carry nothing. Live, without it there is no induction."""
    found = {row["head"]: row for row in pathsum.induction(induction_model(), block=12).rows()}
    assert found["L1H1"]["causal_effect"] == pytest.approx(math.log(16), rel=1e-3)
    assert found["L0H0"]["causal_effect_frozen"] == pytest.approx(0, abs=1e-6)
    assert found["L0H0"]["causal_effect"] > 1
    assert found["L0H1"]["causal_effect"] == pytest.approx(0, abs=1e-6)
