"""What must hold of the models that ship."""

from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

import pathsum
from pathsum.behaviour.attention import prefix_matching
from pathsum.report.results import run_readings
from pathsum.report.summary import summary
from pathsum.study.on_tokens import PARTNER_Z
from pathsum.study.subject import Subject
from pathsum.weights.checkpoint import BUILTIN, builtin_names

CHECKPOINTS = Path(__file__).parent.parent / "checkpoints" / "two-layer-small"


@pytest.fixture(scope="module")
def two_layer() -> dict:
    return run_readings(Subject(pathsum.open("two-layer"), sequences=4))


def shown(results: dict, capsys) -> str:
    Console(width=200).print(summary(results))
    return capsys.readouterr().out


@pytest.mark.parametrize("name", builtin_names())
def test_a_built_in_is_small_and_says_how_it_was_trained(name):
    assert sum(file.stat().st_size for file in (BUILTIN / name).iterdir()) <= 12e6
    training = pathsum.open(name).training
    assert {"recipe", "text", "settings", "versions", "curve"} <= set(training)


def test_two_layer_has_a_head_that_passes_all_three_induction_tests(two_layer):
    assert two_layer["induction"].frame["is_induction_head"].sum() >= 1


def test_its_induction_heads_k_compose_with_a_previous_token_head(two_layer):
    """More than they Q- or V-compose with it, and the pair's circuit matches equal tokens."""
    heads = two_layer["induction"].frame.filter("is_induction_head")["head"].to_list()
    previous = two_layer["attention"].frame.filter(pl.col("previous_token") >= 0.5)["head"].to_list()
    composition, matching = two_layer["composition"].frame, two_layer["matching"].frame
    for head in heads:
        pairs = composition.filter((pl.col("destination") == head) & pl.col("source").is_in(previous))
        effects = pairs.pivot("kind", index="source", values="effect")
        sure = pairs.filter((pl.col("kind") == "K") & (pl.col("z") >= PARTNER_Z))["source"].to_list()
        more = effects.filter((pl.col("K") > pl.col("Q")) & (pl.col("K") > pl.col("V")))["source"].to_list()
        matched = matching.filter((pl.col("destination") == head) & (pl.col("matching_score") >= 0.9))["source"]
        assert set(sure) & set(more) & set(matched.to_list()), head


def test_avoidance_is_reported_as_such(two_layer, capsys):
    below = two_layer["composition"].frame.filter(pl.col("effect") < 0)
    sure = below.filter(pl.col("z") <= -PARTNER_Z)
    assert len(sure) > 0
    assert f"{len(sure)} of {len(below)} pairs below chance have z ≤ −10" in shown(two_layer, capsys)


def test_the_sum_of_terms_is_the_logits_and_the_error_is_printed(two_layer, capsys):
    errors = {(row["quantity"], row["dtype"]): row["error"] for row in two_layer["reconstruction"].rows()}
    assert errors["logits", "float32"] <= 1e-4 and errors["logits", "float64"] <= 1e-10
    assert errors["attention scores", "float32"] <= 1e-4 and errors["attention scores", "float64"] <= 1e-10
    assert "in float32" in shown(two_layer, capsys)


def test_one_layers_copying_count_is_printed_beside_the_papers(capsys):
    results = run_readings(Subject(pathsum.open("one-layer"), sequences=2))
    count = (results["spectra"].frame["copying_score"] >= 0.5).sum()
    assert f"{count} of 12 heads copy (paper: 10 of 12)" in shown(results, capsys)
    assert results["induction"].frame["is_induction_head"].sum() == 0


def test_zero_layers_kl_to_the_texts_bigrams_is_printed(capsys):
    results = run_readings(Subject(pathsum.open("zero-layer"), sequences=2))
    kl = results["bigrams"].rows()[0]["kl"]
    assert 0 < kl < 2
    assert f"KL(text's bigrams ‖ direct path) {kl:.2f}" in shown(results, capsys)


def test_the_small_models_checkpoints_go_through_the_phase_change():
    from pathsum.training.measure import best_head, induction_text

    steps = sorted(CHECKPOINTS.glob("step-*"))
    assert len(steps) >= 15
    models = [pathsum.open(steps[0]), pathsum.open(steps[-1])]
    best = [best_head(model.weights, induction_text(model.spec)).prefix_matching for model in models]
    assert best[0] < 0.05 and best[1] > 0.3
    assert models[0].tokenizer is not None


def test_on_a_repeated_phrase_the_induction_head_looks_after_the_earlier_copy():
    model = pathsum.open("two-layer")
    run = pathsum.run(model, "Marlow Quill and Tamsin Orrery met. Marlow Quill and Tamsin Orrery met. Marlow Quill")
    patterns = prefix_matching(run.patterns[1], run.tokens)
    assert patterns.max() > 0.4
