"""The summary says what is wanted first, within 80 columns."""

import re
from itertools import pairwise

import polars as pl
from rich.console import Console
from rich.text import Text

from pathsum.report.numbers import count, fixed, in_millions, signed, significant, small
from pathsum.report.story import term_steps
from pathsum.report.summary import summary
from pathsum.study.result import Result


def rendered(results, *more, width: int = 80) -> str:
    console = Console(width=width, record=True, file=open("/dev/null", "w"), force_terminal=False)  # noqa: PTH123, SIM115
    console.print(summary(results, *more))
    return console.export_text()


def words(results, *more) -> str:
    """The summary on lines as long as they like."""
    return re.sub(r"\s+", " ", rendered(results, *more, width=400))


def test_no_line_is_wider_than_80(results, plain):
    for found in (results, plain[1]):
        assert max(Text(line).cell_len for line in rendered(found).splitlines()) <= 80


def test_it_names_the_model_and_its_heads(results):
    text = words(results)
    assert "<b>toy</b> & co: 2 layers × 2 heads" in text
    assert "Previous token L0H0 1.00" in text
    assert re.search(r"L1H1 1\.00 .* L0H0 \(previous token\) \+0\.\d+ [\d.]+ 1\.00", text)


def test_avoidance_is_reported_with_its_sign(results):
    assert re.search(r"Avoidance [QKV] L0H\d → L1H\d −0\.\d+ \(z −[\d.]+\)", words(results))


def test_terms_are_told_order_by_order_and_the_error_in_both_dtypes(results):
    text = words(results)
    assert re.search(r"Terms uniform 2\.77 → direct path .* → single heads .* → virtual heads .* nats per token", text)
    assert re.search(r"= logits to (0|\de-\d\d) in float32, (0|\de-\d\d) in float64", text)


def test_a_head_on_whose_copying_the_two_scores_disagree_is_marked(results):
    spectra = results["spectra"]
    scores = {"copying_score": [0.9, 0.9, 0.1, 0.1], "own_token_rank": [0.5, 0.0, 0.0, 0.5]}
    frame = spectra.frame.with_columns(**{name: pl.Series(values) for name, values in scores.items()})
    text = words({**results, "spectra": Result(spectra.reading, frame, spectra.manifest)})
    assert "2 of 4 heads copy by eigenvalues (score ≥ 0.5): L0H0*, L0H1" in text
    assert "by own-token rank only: L1H0" in text


def test_each_depth_says_what_it_is_known_for(plain):
    subject, found = plain
    text = words(found)
    if subject.model.spec.n_layers == 0:
        assert "KL(text's bigrams ‖ direct path)" in text and "Copying" not in text
    if subject.model.spec.n_layers == 1:
        assert "of 3 heads copy (paper: 10 of 12)" in text
    if subject.model.spec.n_layers > 1:
        assert "no head passes all of" in text


def test_some_readings_alone_give_a_short_summary(results):
    text = words({"composition": results["composition"]})
    assert "Avoidance" in text and "Terms" not in text and "Induction" not in text


def test_numbers_are_written_the_same_everywhere():
    assert [fixed(-0.004), fixed(1234.5, 1), fixed(None), fixed(float("nan"))] == ["0.00", "1,234.5", "–", "–"]
    assert [signed(0.066), signed(-0.031), signed(None)] == ["+0.066", "−0.031", "–"]
    assert [small(3.2e-7), significant(4096.0), significant(-0.0312345), significant(3.1e-7)] == [
        "3e-07", "4,096", "−0.03123", "3.1e-07"]  # fmt: skip
    assert [in_millions(83_968), in_millions(4_700_000)] == ["83,968", "4.7 million"]


def test_the_highest_orders_of_a_deep_model_are_one_step(results):
    losses = [5.0, 4.0, 3.0, 2.5, 2.25, 2.0, 1.75, 1.5, 1.25, 1.0, 0.75, 0.5]
    gains = [None, *(before - after for before, after in pairwise(losses))]
    rows = pl.DataFrame({"order": range(-1, 11), "loss": losses, "gain": gains})
    importance = results["importance"]
    steps = term_steps({"importance": Result(importance.reading, rows, importance.manifest)})
    assert [step.name for step in steps[-2:]] == ["order 7", "orders 8 to 10"]
    assert (steps[-1].loss, steps[-1].gain) == (0.5, 0.75)
    few = rows.head(10)
    assert len(term_steps({"importance": Result(importance.reading, few, importance.manifest)})) == 10


def test_counts_that_a_float_cannot_tell_are_powers():
    assert [count(value) for value in (12, 1e6, 10.0**30)] == ["12", "1,000,000", "1e+30"]
