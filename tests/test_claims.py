"""The claims: intervals against scipy, change points, rules, and a whole run on tiny models."""

import math

import polars as pl
import pytest
from scipy import stats

from pathsum.report.claims import claims_dict, claims_summary, write_claims
from pathsum.study import claim_models, claim_run
from pathsum.study.claims import CLAIMS
from pathsum.study.estimates import T_975, Estimate, change_point, estimate, share
from pathsum.study.experiments import Experiment, folder_name, trained
from pathsum.training.recipe import recipe


@pytest.mark.parametrize("values", [[1.0, 2.0], [3.0, 3.5, 2.5, 9.0, -1.0], [float(n % 7) for n in range(45)]])
def test_intervals_are_students(values):
    found = estimate(values)
    low, high = stats.t.interval(0.95, len(values) - 1, stats.tmean(values), stats.sem(values))
    # Beyond 31 values the normal's quantile stands for Student's, 3 % below it at most.
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.03 * (high - low))
    if len(values) <= 31:
        assert (found.low, found.high) == pytest.approx((low, high), rel=1e-3)


@pytest.mark.parametrize(("so", "n"), [(10, 10), (9, 10), (0, 3), (1, 2), (27, 40)])
def test_shares_of_seeds_have_wilsons_interval(so, n):
    found = share([1.0] * so + [0.0] * (n - so))
    expected = stats.binomtest(so, n).proportion_ci(0.95, "wilson")
    assert (found.mean, found.low, found.high) == pytest.approx((so / n, expected.low, expected.high), abs=1e-6)
    assert 0 <= found.low <= found.mean <= found.high <= 1 and found.count == n
    assert share([1.0]) == Estimate(1.0, None, None, 1) and share([]) is None


def test_quantiles_are_scipys():
    assert [stats.t.ppf(0.975, df) for df in range(1, 31)] == pytest.approx(T_975, abs=6e-4)


def test_what_is_not_known_has_no_part_in_a_mean():
    assert estimate([]) is None and estimate([math.nan]) is None
    assert estimate([2.0, math.nan]) == Estimate(2.0, None, None, 1)


def test_a_change_is_where_the_series_crosses_half_for_good():
    tokens = [1, 2, 4, 8, 16]
    assert change_point(tokens, [0, 0, 1, 1, 1], 0.1) == pytest.approx(1.5)
    assert change_point(tokens, [0, 0.9, 0, 0.25, 1], 0.1) == pytest.approx(3 + 1 / 3)
    assert change_point(tokens, [5, 5, 4, 1, 1], 0.1) == pytest.approx(2 + 1 / 3)
    assert change_point(tokens, [0, 1, 0, 1, 0.01], 0.1) is None


def _found(**given):
    return {("two-layer-small", name): Estimate(*value) for name, value in given.items()}


JUDGE = {claim.name: claim.judge for claim in CLAIMS}
SURE = (0.0, -0.1, 0.1, 9)


@pytest.mark.parametrize(
    ("claim", "given", "verdict"),
    [
        ("exact", {"logits_error": (1e-15, None, None, 1)}, "holds"),
        ("exact", {"logits_error": (1e-15, None, None, 1), "gauge": (1e-3, None, None, 1)}, "fails"),
        ("in-context", {"fall_after_rise": SURE, "text_score_removed": (0.8, 0.7, 0.9, 9)}, "holds"),
        ("in-context", {"fall_after_rise": SURE, "text_score_removed": (0.4, 0.3, 0.5, 9)}, "holds with changes"),
        ("in-context", {"fall_after_rise": (2.0, 1.0, 3.0, 9), "text_score_removed": (0.4, 0.3, 0.5, 9)}, "fails"),
        ("minimal circuit", {"previous_token_alone": (0.9, 0.7, 1.1, 10)}, "holds"),
        ("minimal circuit", {"previous_token_alone": (1.0, None, None, 1)}, None),
        ("minimal circuit", {"previous_token_alone": (0.1, 0.0, 0.3, 10)}, "fails"),
        ("second order", {"second_order_share": (0.02, 0.01, 0.03, 9), "first_order_share": (0.5, 0.4, 0.6, 9),
                          "later_layer_lead": (0.5, 0.4, 0.6, 9)}, "holds"),
        ("second order", {"second_order_share": (0.2, 0.1, 0.3, 9), "first_order_share": (0.5, 0.4, 0.6, 9),
                          "later_layer_lead": (-0.5, -0.6, -0.4, 9)}, "fails"),
    ],
)  # fmt: skip
def test_rules_say_what_they_say(claim, given, verdict):
    assert JUDGE[claim](_found(**given)) == verdict


@pytest.mark.parametrize("claim", [claim.name for claim in CLAIMS])
def test_a_claim_of_which_nothing_was_measured_is_not_judged(claim):
    assert JUDGE[claim]({}) is None


def test_a_model_is_known_by_what_decides_its_weights_alone():
    one = recipe("two-layer-small")
    assert folder_name(one, "text") == folder_name(recipe("two-layer-small", steps=1000), "text")
    others = [
        (recipe("two-layer-small", seed=1), "text"),
        (recipe("two-layer-small", d_model=64), "text"),
        (one, "other"),
    ]
    assert len({folder_name(one, "text"), *(folder_name(*other) for other in others)}) == 4


TINY = (("heads", 2), ("d_model", 16), ("d_head", 8), ("vocab", 300), ("context", 48), ("batch", 2), ("steps", 12))


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """Claims on models that are trained in a second; whatever they say is not asked."""
    monkeypatch.setattr(claim_run, "QUICK", (
        Experiment("two-layer-small", "two-layer-small", "two layers", TINY, 2, over_training=True),
        Experiment("one-layer-control", "one-layer", "one-layer variants", TINY),
        Experiment("zero-layer-300-12", "zero-layer", "zero layers", TINY[1:]),
        Experiment("3-layer-d16", "two-layer-small", "deeper", (*TINY, ("layers", 3))),
    ))  # fmt: skip
    monkeypatch.setattr(claim_run, "BUILTIN", {})
    text = tmp_path / "text.py"
    text.write_text("\n\n".join(f"def f{n}(x):\n    return x * {n} + len('word {n}')" for n in range(3000)))
    return text


def test_a_run_measures_judges_and_uses_again_what_is_there(tiny, tmp_path):
    found = claim_run.run_claims(tmp_path / "out", sources=[tiny], processes=2)
    verdicts = {one.claim.name: one.verdict for one in found.judged}
    assert verdicts["exact"] == "holds" and verdicts["with MLPs"] == "not testable here"
    assert set(verdicts) == {claim.name for claim in CLAIMS}
    page = write_claims(tmp_path / "out", found)
    assert page.is_file() and claims_summary(found) is not None
    plain = claims_dict(found)
    errors = [one for one in plain["claims"][0]["estimates"] if one["quantity"] == "logits_error"]
    assert errors and max(one["mean"] for one in errors) < 1e-10
    files = {file: file.stat().st_mtime_ns for file in (tmp_path / "out" / "models").rglob("*") if file.is_file()}
    again = claim_run.run_claims(tmp_path / "out", sources=[tiny], processes=1)
    assert again.measurements.sort(pl.all()).equals(found.measurements.sort(pl.all()))
    assert files == {
        file: file.stat().st_mtime_ns for file in (tmp_path / "out" / "models").rglob("*") if file.is_file()
    }


def test_results_name_a_real_model_without_the_place_it_lies_at(tmp_path):
    (tmp_path / "model.gguf").touch()
    named = [claim_run._named(one) for one in (str(tmp_path / "model.gguf"), "hf:owner/name", None)]
    assert named == ["model.gguf", "hf:owner/name", None]


def test_experiments_keep_checkpoints_only_where_they_are_read(tiny, tmp_path):
    some = [
        Experiment("a", "one-layer", "one layer", TINY),
        Experiment("b", "two-layer-small", "two layers", TINY, over_training=True),
    ]
    one, two = trained(some, tmp_path / "models", [tiny])
    assert not list(one.folder.glob("step-*")) and len(list(two.folder.glob("step-*"))) == 4
    assert one.facts["step"] == 12


def test_first_seeds_of_the_quick_run_are_those_of_the_full_one():
    quick = {folder_name(each, "text") for one in claim_models.QUICK for each in one.recipes}
    assert quick <= {folder_name(each, "text") for one in claim_models.FULL for each in one.recipes}
