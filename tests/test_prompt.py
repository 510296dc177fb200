"""One token's logit taken apart: every table sums to it, and the listed paths are the strongest."""

import json

import pytest
import torch

import pathsum
from cases import BY_NAME, CASES
from pathsum.cli import main
from pathsum.errors import ExpansionTooLarge, NotApplicable, TextError
from pathsum.study.prompt import prompt_expansion
from pathsum.toys import virtual_head_model
from pathsum.weights.model import Model
from test_cli import fail, succeed

FAST = "two-layer-small"


def rows(result, part: str) -> list[dict]:
    return [row for row in result.rows() if row["part"] == part]


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_orders_sources_and_paths_each_sum_to_the_models_logit(case):
    result = prompt_expansion(Model(case.name, case.weights), case.tokens.tolist(), target=3, top=4)
    run = pathsum.run(Model(case.name, case.weights), case.tokens.tolist())
    size = run.uncapped_logits.abs().max().item()
    logit = run.uncapped_logits[-1, 3].item()
    wanted = {"logit": logit, "centred": logit - run.uncapped_logits[-1].mean().item()}
    for part in ("order", "source", "term"):
        for column, value in wanted.items():
            assert sum(row[column] for row in rows(result, part)) == pytest.approx(value, abs=2e-5 * size)
        assert sum(row["paths"] for row in rows(result, part)) == pathsum.expand(run).counts()
    asked = result.manifest["prompt"]
    assert asked["error"] < 1e-5 and asked["logit"] == pytest.approx(logit, abs=1e-5 * size)
    assert asked["probability"] == pytest.approx(run.log_probabilities[-1, 3].exp().item(), rel=1e-4)


@pytest.mark.parametrize("max_order", [0, 1, 2])
def test_the_listed_paths_are_the_strongest_terms(max_order):
    case = BY_NAME["gpt2"]
    model = Model("gpt2", case.weights)
    found = rows(prompt_expansion(model, case.tokens.tolist(), target=3, max_order=max_order, top=5, at=2), "term")
    terms = list(pathsum.expand(pathsum.run(model, case.tokens.tolist())).terms(max_order))
    centred = {term.path.name: (term.logits[2, 3] - term.logits[2].mean()).item() for term in terms}
    strongest = sorted(centred, key=lambda name: -abs(centred[name]))[:5]
    assert [row["name"] for row in found[:5]] == strongest
    assert [row["centred"] for row in found[:5]] == pytest.approx([centred[name] for name in strongest], abs=1e-5)
    assert found[5]["name"] == "other paths" and found[5]["paths"] == len(terms) - 5
    assert found[5]["centred"] == pytest.approx(sum(centred.values()) - sum(map(centred.get, strongest)), abs=1e-4)


def test_a_planted_virtual_head_is_the_path():
    """The toy predicts the token two back by L0H0 → L1H0 and nothing else."""
    found = prompt_expansion(virtual_head_model(), [5, 9, 2, 7], max_order=2)
    assert found.manifest["prompt"]["token"] == 9
    best = rows(found, "term")[0]
    assert best["name"] == "embed → L0H0 → L1H0" and best["logit"] == pytest.approx(20, abs=1e-3)
    assert rows(found, "order")[2]["logit"] == pytest.approx(20, abs=1e-3)


def test_the_default_token_is_the_first_choice_at_the_position():
    model = pathsum.open(FAST)
    run = pathsum.run(model, "the cat sat on the mat")
    for position in (-1, 0, 2):
        asked = prompt_expansion(model, "the cat sat on the mat", at=position).manifest["prompt"]
        assert asked["token"] == run.logits[position].argmax() and asked["position"] == position % len(run.tokens)
        assert asked["token_strings"] == run.token_strings
    assert prompt_expansion(model, "the cat", target=" the").manifest["prompt"]["token_string"] == " the"


def test_what_is_no_token_or_no_position_is_refused():
    model = pathsum.open(FAST)
    with pytest.raises(TextError, match=r"is 4 tokens of two-layer-small \(' ', 'x', 'q', '9'\)"):
        prompt_expansion(model, "the cat", target=" xq9")
    with pytest.raises(TextError, match=r"is 0 tokens of two-layer-small \(none\)"):
        prompt_expansion(model, "the cat", target="")
    with pytest.raises(TextError, match="token ids must be from 0 to 1023"):
        prompt_expansion(model, "the cat", target=2048)
    with pytest.raises(TextError, match=r"no tokenizer.json: give the id of a token instead of 'the'"):
        prompt_expansion(virtual_head_model(), [1, 2], target="the")
    with pytest.raises(NotApplicable, match="no position 9"):
        prompt_expansion(model, "the cat", at=9)


def test_a_table_by_one_axis_takes_its_name_alone():
    model = pathsum.open(FAST)
    alone, listed = (pathsum.prompt_table(model, "the cat sat", by) for by in ("head", ["head"]))
    assert alone.rows() == listed.rows() and {row["first"] for row in alone.rows()} >= {"direct", "L1H1"}


def test_too_many_paths_name_the_option(monkeypatch):
    monkeypatch.setattr("pathsum.study.prompt.MOST_PATHS", 20)
    with pytest.raises(ExpansionTooLarge, match=r"--max-order 1\), which has 9"):
        prompt_expansion(pathsum.open(FAST), "the cat", max_order=2)


# ---- the command ----


def test_the_prompt_is_an_argument_or_text_or_ids(capsys):
    by_argument = json.loads(succeed(["expand", FAST, "the cat", "--json"], capsys))
    assert json.loads(succeed(["expand", FAST, "--text", "the cat", "--json"], capsys)) == by_argument
    ids = ",".join(map(str, by_argument["manifest"]["prompt"]["tokens"]))
    assert json.loads(succeed(["expand", FAST, "--ids", ids, "--json"], capsys))["rows"] == by_argument["rows"]
    assert by_argument["manifest"]["reading"] == "expand" and by_argument["manifest"]["weights_sha256"]


def test_one_prompt_must_be_given(capsys):
    for arguments in ([], ["a", "--text", "b"], ["--ids", "1,x"], ["a", "--top", "0"]):
        with pytest.raises(SystemExit) as stopped:
            main(["expand", FAST, *arguments])
        assert stopped.value.code == 2


def test_the_tables_fit_80_columns_and_end_with_the_error(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for model in (FAST, "zero-layer"):
        shown = succeed(["expand", model, "the cat sat on the mat, the\n\x1b[31m", "--max-order", "2"], capsys)
        assert max(map(len, shown.splitlines())) <= 80 and "\x1b" not in shown
        assert "all paths sum to the model's logit: error " in shown.splitlines()[-1]
    shown = succeed(["expand", FAST, "the cat", "--max-order", "1", "--top", "2"], capsys)
    assert "other paths, order 0–1" in shown and "longer paths, order 2" in shown


def test_deep_models_show_their_long_orders_as_one_row(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("pathsum.report.prompt.ORDERS", 1)
    case = BY_NAME["three_layers_alibi"]
    pathsum.save(tmp_path / "model", case.weights)
    shown = succeed(["expand", str(tmp_path / "model"), "--ids", "1,2,3", "--max-order", "0"], capsys)
    assert "orders 1 to 3" in shown and "order 1 " not in shown


def test_a_mistake_is_one_line(capsys):
    assert "is 4 tokens of" in fail(["expand", FAST, "the cat", "--token", "the cat"], capsys)
    assert "did you mean" in fail(["expand", "two-layr", "x"], capsys)
    assert "the text is empty" in fail(["expand", FAST, "", "--no-bos"], capsys)


def test_a_soft_cap_is_said(tmp_path, capsys):
    pathsum.save(tmp_path / "model", BY_NAME["gemma2"].weights)
    shown = succeed(["expand", str(tmp_path / "model"), "--ids", "1,2,3"], capsys)
    assert "before the soft-cap" in shown
    assert torch.isfinite(
        torch.tensor(
            json.loads(succeed(["expand", str(tmp_path / "model"), "--ids", "1,2,3", "--json"], capsys))["manifest"][
                "prompt"
            ]["logit"]
        )
    )
