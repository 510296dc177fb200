"""A head's scores on a prompt: every table sums to the score, and the command says what it shows."""

import json
import re
from pathlib import Path

import pytest
import torch

import pathsum
from cases import BY_NAME, CASES
from pathsum.cli import main
from pathsum.errors import ExpansionTooLarge, NotApplicable, TextError
from pathsum.paths.scores import expand_scores
from pathsum.report.figures import score_heat_maps
from pathsum.study.scores import prompt_scores
from pathsum.toys import induction_model
from pathsum.weights.model import Model
from test_cli import fail, succeed

FAST = "two-layer-small"
PARTS = ("order", "lag", "source", "term")


def rows(result, part: str) -> list[dict]:
    return [row for row in result.rows() if row["part"] == part]


def visible_mean(scores: torch.Tensor, i: int, window: int | None) -> float:
    return scores[i, max(0, 0 if window is None else i - window + 1) : i + 1].mean().item()


@pytest.mark.parametrize("case", [case for case in CASES if case.spec.n_layers], ids=repr)
def test_every_part_sums_to_the_heads_own_score(case):
    model, layer = Model(case.name, case.weights), case.spec.n_layers - 1
    result = prompt_scores(model, case.tokens.tolist(), f"L{layer}H0", destination=5, source=4, max_order=1, top=4)
    seen = pathsum.run(model, case.tokens.tolist()).frozen.layers[layer]
    scores, size = seen.scores[0], seen.scores[0].abs().max().item()
    score = scores[5, 4].item()
    centred = score - visible_mean(scores, 5, case.spec.layers[layer].window)
    for part in PARTS:
        assert sum(row["score"] for row in rows(result, part)) == pytest.approx(score, abs=2e-5 * size)
        assert sum(row["centred"] for row in rows(result, part)) == pytest.approx(centred, abs=2e-5 * size)
    asked = result.manifest["prompt"]
    assert asked["error"] < 1e-5 and asked["score"] == pytest.approx(score, abs=1e-5 * size)
    assert asked["attention"] == pytest.approx(seen.pattern[0, 5, 4].item(), rel=1e-4)
    counts = {part: sum(row["pairs"] or 0 for row in rows(result, part)) for part in PARTS}
    assert counts["order"] == counts["source"] == counts["term"] and counts["lag"] in (0, 1)


@pytest.mark.parametrize("max_order", [0, 1, 2])
def test_the_listed_terms_are_the_strongest(max_order):
    case = BY_NAME["three_layers_normed"]
    model = Model(case.name, case.weights)
    result = prompt_scores(model, case.tokens.tolist(), "L2H1", destination=4, source=2, max_order=max_order, top=5)
    found = rows(result, "term")
    terms = expand_scores(pathsum.run(model, case.tokens.tolist()), "L2H1").terms(max_order)
    centred = {(t.query, t.key): t.scores[4, 2].item() - visible_mean(t.scores, 4, None) for t in terms}
    strongest = sorted(centred, key=lambda pair: -abs(centred[pair]))[:5]
    assert [(row["query"], row["key"]) for row in found[:5]] == strongest
    assert [row["centred"] for row in found[:5]] == pytest.approx([centred[pair] for pair in strongest], abs=1e-5)
    rest = sum(centred.values()) - sum(centred[pair] for pair in strongest)
    assert found[5]["query"] == "other pairs" and found[5]["pairs"] == len(centred) - 5
    assert found[5]["centred"] == pytest.approx(rest, abs=1e-5)
    assert [row["query"] for row in found[6:]] == ["longer paths"] * (max_order < 2)


def test_the_default_pair_is_the_last_token_and_what_it_looks_at_most():
    model = induction_model()
    asked = prompt_scores(model, [5, 9, 2, 7, 5], "L1H1").manifest["prompt"]
    assert (asked["destination"], asked["source"], asked["pairs"]) == (4, 1, "one")
    asked = prompt_scores(model, [5, 9, 2, 5, 9], "L1H1", destination=-2).manifest["prompt"]
    assert (asked["destination"], asked["source"]) == (3, 1) and asked["attention"] == pytest.approx(1)


def test_without_a_prompt_it_is_random_tokens_repeated_three_times():
    found = prompt_scores(induction_model(), None, "L1H1", pairs="induction")
    asked = found.manifest["prompt"]
    block = asked["repeated_block"]
    assert asked["tokens"] == asked["tokens"][:block] * 3 and len(set(asked["tokens"])) == block
    # Every token of the second copy has one source, every one of the third two.
    assert asked["positions"] == 3 * block
    best = rows(found, "term")[0]
    assert (best["query"], best["key"]) == ("embed", "embed → L0H0") and best["score"] == pytest.approx(60, abs=1e-3)


def test_what_cannot_be_asked_is_refused(monkeypatch):
    model = pathsum.open(FAST)
    ask = lambda head="L1H0", text=(1, 2, 3), **options: prompt_scores(model, text, head, **options)
    for options, message in (
        ({"head": "L2H0"}, "no head L2H0"), ({"head": "1.0"}, "'1.0' is no head"),
        ({"destination": 9}, "no position 9"), ({"source": -9}, "no position -9"),
        ({"destination": 0, "source": 1}, "position 0 does not attend to position 1: it comes later"),
        ({"pairs": "previous", "source": 1}, "not both"), ({"pairs": "next"}, "no pairs named 'next'"),
        ({"pairs": []}, "at least one"), ({"pairs": "induction"}, "no induction pairs in this text"),
    ):  # fmt: skip
        with pytest.raises(NotApplicable, match=message):
            ask(**options)
    with pytest.raises(TextError, match="the text is empty"):
        ask(text="", bos=False)
    monkeypatch.setattr("pathsum.study.prompt.PATTERNS", 4 * 4 * 3**2)
    ask()
    with pytest.raises(ExpansionTooLarge, match=r"patterns of one layer's 4 heads on 4 tokens .* at most 3 tokens"):
        ask(text=(1, 2, 3, 4))
    monkeypatch.setattr("pathsum.study.scores.MOST_PAIRS", 20)
    with pytest.raises(ExpansionTooLarge, match=r"25 pairs .* more than 20; .*--max-order 0\), which has 1"):
        ask()


# ---- the command ----


def test_the_command_gives_the_functions_table(capsys):
    shown = json.loads(succeed(["scores", FAST, "L1H0", "the cat, the cat", "--pairs", "previous", "--json"], capsys))
    result = prompt_scores(pathsum.open(FAST), "the cat, the cat", "L1H0", pairs="previous")
    assert shown["rows"] == result.rows()
    assert shown["manifest"]["reading"] == "scores" and shown["manifest"]["weights_sha256"]
    ids = ",".join(map(str, shown["manifest"]["prompt"]["tokens"]))
    listed = ["--pairs", "3:1,2:2", "--ids", ids, "--json"]
    asked = json.loads(succeed(["scores", FAST, "L1H0", *listed], capsys))["manifest"]["prompt"]
    assert (asked["pairs"], asked["positions"]) == ("given", 2)


def test_usage_errors_are_usage_errors(capsys):
    for arguments in (["a", "--text", "b"], ["a", "--pairs", "1:x"], ["a", "--top", "0"], ["--ids", "1,x"]):
        with pytest.raises(SystemExit) as stopped:
            main(["scores", FAST, "L1H0", *arguments])
        assert stopped.value.code == 2


def test_a_mistake_is_one_line(capsys):
    assert "no head L9H0" in fail(["scores", FAST, "L9H0", "the cat"], capsys)
    assert "outside" not in fail(["scores", FAST, "L1H0", "the cat", "--pairs", "0:1"], capsys)
    assert "no pairs named 'nxt'" in fail(["scores", FAST, "L1H0", "the cat", "--pairs", "nxt"], capsys)


def test_the_tables_fit_80_columns_and_end_with_the_error(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "80")
    pathsum.save(tmp_path / "capped", BY_NAME["gemma2"].weights)
    pathsum.save(tmp_path / "deep", BY_NAME["three_layers_alibi"].weights)
    monkeypatch.setattr("pathsum.report.scores.ORDERS", 1)
    prompt = "the cat sat on the mat, the\n\x1b[31m"
    for arguments in (
        [FAST, "L1H2", prompt, "--max-order", "2"], [FAST, "L0H0", prompt], [FAST, "L1H1", "--pairs", "induction"],
        [str(tmp_path / "capped"), "L1H0", "--ids", "1,2,3"], [str(tmp_path / "deep"), "L2H0", "--ids", "1,2,3"],
    ):  # fmt: skip
        shown = succeed(["scores", *arguments], capsys)
        assert max(map(len, shown.splitlines())) <= 80 and "\x1b" not in shown
        assert ": error " in shown.splitlines()[-1] and "all pairs sum to the score" in shown
        assert ("before the soft-cap" in shown) == ("capped" in arguments[0])
        assert ("1–2" in shown and "distance" in shown) == ("deep" in arguments[0])


PAGE = (Path(__file__).parent.parent / "docs" / "scores.md").read_text(encoding="utf-8")


def test_the_page_shows_what_its_command_prints(capsys, monkeypatch):
    """Word for word; numbers may differ in what rounding does elsewhere."""
    monkeypatch.setenv("COLUMNS", "80")
    ((command, shown),) = re.findall(r"^\$ pathsum (.*?)\n(.*?)```", PAGE, re.S | re.M)
    printed = succeed(command.split(), capsys)
    numbers = lambda text: [float(n.replace("−", "-")) for n in re.findall(r"−?\d+\.\d+", text)]
    words = lambda text: re.sub(r"−?\d[\d.]*(e-\d+)?", "#", text).split()
    assert words(shown) == words(printed)
    assert numbers(shown) == pytest.approx(numbers(printed), abs=0.11)


def test_the_score_is_drawn_as_heat_maps_of_its_rows(capsys, tmp_path):
    result = prompt_scores(pathsum.open("two-layer-small"), "the cat sat on the mat", "L1H1")
    data = [row for rows in score_heat_maps(result.rows()).to_dict()["datasets"].values() for row in rows]
    drawn = {(row["part"], row["query"], row["key"]): row["centred"] for row in data}
    for row in result.rows():
        if row["query"] not in ("other pairs", "longer paths") and row["part"] in ("order", "lag"):
            value = drawn[row["part"], row["query"], row["key"]]
            assert value == pytest.approx(row["centred"], rel=1e-4, abs=1e-9)
    out = tmp_path / "scores.svg"
    succeed(["scores", "two-layer-small", "L1H1", "the cat sat", "--figure", str(out)], capsys)
    assert out.stat().st_size > 1000
