"""Roles of heads, and the argument for an induction circuit, on a circuit that was planted."""

import polars as pl
import pytest

from pathsum.report.evidence import circuits
from pathsum.report.heads import head_table, looks
from pathsum.report.partners import circuit_pairs, partners_of
from pathsum.report.patterns import heads_to_show, pattern_table
from pathsum.study.result import Result


def test_the_planted_heads_get_their_roles(results):
    table = head_table(results)
    assert table.filter("is_induction_head")["head"].to_list() == ["L1H1"]
    assert table.filter("is_previous_token")["head"].to_list() == ["L0H0"]
    assert table.select("layer", "index").rows() == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_the_strongest_partner_of_the_planted_head_is_the_planted_one(results):
    assert partners_of(results, "L1H1")["source"].to_list() == ["L0H0"]
    assert circuit_pairs(results).filter(pl.col("head") == "L1H1")["partner"].item() == "L0H0"


def test_a_previous_token_head_comes_before_a_stronger_partner_that_is_none(results):
    rows = [("K", "L0H1", "L1H1", 0.5, 0.1, 0.9, 50.0, 0.4), ("K", "L0H0", "L1H1", 0.3, 0.1, 0.9, 20.0, 0.2)]
    columns = ["kind", "source", "destination", "score", "baseline", "ceiling", "z", "effect"]
    pairs = Result(results["composition"].reading, pl.DataFrame(rows, columns, orient="row"), {})
    changed = {**results, "composition": pairs}
    assert partners_of(changed, "L1H1")["source"].to_list() == ["L0H0", "L0H1"]
    (circuit,) = circuits(changed)
    assert circuit.partner == "L0H0"
    others = next(step for step in circuit.steps if step.claim == "it surely reads other heads too")
    assert others.found == "K L0H1 +0.400" and others.verdict == "unknown"


def test_a_head_looks_where_one_lag_has_half_of_its_attention(results):
    assert dict(head_table(results).select("head", "lag").iter_rows())["L0H0"] == 1
    assert [looks(lag) for lag in (None, 0, 1, 2)] == ["", "own token", "previous token", "2 back"]


def test_every_step_of_the_planted_circuit_is_weighed(results):
    (circuit,) = circuits(results)
    assert (circuit.partner, circuit.head, circuit.accepted) == ("L0H0", "L1H1", True)
    verdicts = {step.claim: step.verdict for step in circuit.steps}
    assert verdicts["L0H0 attends to the token before"] == "for"
    assert verdicts["L1H1 makes its keys from what L0H0 wrote"] == "for"
    assert verdicts["and it does so with its keys rather than with its queries or values"] == "for"
    assert verdicts["L1H1 attends to what came after earlier copies of the token at hand"] == "for"
    assert verdicts["the model needs L1H1 to predict the repeats"] == "for"


def test_where_no_head_passes_the_nearest_is_argued_about(plain):
    _, found = plain
    for circuit in circuits(found):
        assert not circuit.accepted
        assert {step.verdict for step in circuit.steps} & {"against"}


def test_disagreement_of_eigenvalues_and_ranks_is_marked(results):
    spectra = results["spectra"]
    scores = {"copying_score": [0.9, 0.9, 0.1, 0.1], "own_token_rank": [0.5, 0.0, 0.0, 0.5]}
    changed = Result(spectra.reading, spectra.frame.with_columns(**{k: pl.Series(v) for k, v in scores.items()}), {})
    table = head_table({**results, "spectra": changed})
    assert table["disagrees"].to_list() == [True, False, True, False]
    assert table["is_copying"].to_list() == [True, True, False, False]


def test_undefined_scores_give_no_role(results):
    spectra = results["spectra"]
    undefined = spectra.frame.with_columns(pl.lit(float("nan")).alias("copying_score"))
    table = head_table({**results, "spectra": Result(spectra.reading, undefined, {})})
    assert table["is_copying"].null_count() == len(table)


def test_patterns_are_those_of_the_induction_head_and_its_partner(hostile, results):
    shown = heads_to_show(results)
    assert shown == ["L1H1", "L0H0"]
    table = pattern_table(hostile, shown)
    sums = table.group_by("head", "destination").agg(pl.col("attention").sum())["attention"]
    assert sums.to_list() == pytest.approx([1.0] * len(sums), abs=1e-5)
    assert (table["source"] <= table["destination"]).all()
