"""`pathsum paths`: the strongest of all paths to a prediction, from the command line to the formula."""

import json

import pytest

import pathsum
from cases import BY_NAME, CASES
from pathsum.cli import main
from pathsum.errors import ExpansionTooLarge, NotApplicable, TextError
from pathsum.report.figures import path_diagram
from pathsum.study.paths import prompt_paths
from pathsum.toys import virtual_head_model
from pathsum.weights.model import Model
from test_cli import succeed

FAST = "two-layer-small"


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_listed_and_all_others_are_the_target_and_the_list_is_certified(case):
    model = Model(case.name, case.weights)
    result = prompt_paths(model, case.tokens.tolist(), target=1, versus=2, limit=5, live=True)
    asked, rows = result.manifest["prompt"], result.rows()
    run = pathsum.run(model, case.tokens.tolist())
    raw = run.uncapped_logits[-1]
    size = run.uncapped_logits.abs().max().item()
    assert asked["certified"] and asked["bound"] <= abs(rows[-1]["value"]) + 1e-6
    assert asked["linear"] == pytest.approx((raw[1] - raw[2]).item(), abs=1e-5 * size)
    assert asked["value"] == pytest.approx((run.logits[-1, 1] - run.logits[-1, 2]).item(), abs=1e-5 * size)
    assert sum(row["value"] for row in rows) + asked["rest"] == pytest.approx(asked["linear"], abs=2e-5 * size)
    assert asked["error"] < 1e-5 and asked["paths"] == pathsum.expand(run).counts()
    assert [row["rank"] for row in rows] == list(range(1, len(rows) + 1))
    for row in rows:
        assert row["token"] == run.token_strings[row["position"]]
        if row["path"] != "unembed.bias":
            assert row["without_frozen"] is not None and row["without_live"] is not None


def test_a_planted_virtual_head_is_the_strongest_path_and_its_token_the_one_two_back():
    found = prompt_paths(virtual_head_model(), [5, 9, 2, 7])
    best = found.rows()[0]
    assert best["path"] == "embed → L0H0 → L1H0" and best["value"] == pytest.approx(20, abs=1e-3)
    assert best["position"] == 1 and best["from_position"] == pytest.approx(20, abs=1e-3)
    assert found.manifest["prompt"]["token"] == 9


def test_a_log_probability_says_what_its_tangent_leaves_out():
    found = prompt_paths(pathsum.open(FAST), "the cat", log_probability=True, limit=3).manifest["prompt"]
    assert found["target"] == "log-probability"
    assert found["value"] == pytest.approx(found["start"] + found["linear"] + found["left_out"], abs=1e-5)
    assert abs(found["left_out"]) > 0.1


def test_no_time_is_one_narrow_try_that_says_so_where_it_is_not_enough(monkeypatch):
    monkeypatch.setattr("pathsum.paths.search.WIDTH", 1)
    found = prompt_paths(pathsum.open(FAST), "the cat sat on the mat", seconds=0, limit=40)
    asked = found.manifest["prompt"]
    assert asked["width"] == 1 and not asked["certified"]
    assert asked["bound"] > abs(found.rows()[-1]["value"])


def test_what_is_not_there_is_refused():
    model = pathsum.open(FAST)
    with pytest.raises(NotApplicable, match="no position 99"):
        prompt_paths(model, "the cat", at=99)
    with pytest.raises(TextError):
        prompt_paths(model, "the cat", target="no single token of any model")


def test_the_command_prints_paths_and_what_is_known_of_all_others(capsys):
    text = succeed(["paths", FAST, "the cat sat", "--limit", "3"], capsys)
    assert "Strongest paths, two-layer-small" in text and "certified: no other path adds more" in text
    assert max(map(len, text.splitlines())) <= 80
    live = succeed(["paths", FAST, "--text", "the cat sat", "--limit", "3", "--live", "--log-probability"], capsys)
    assert "without it" in live and "that is not linear" in live and max(map(len, live.splitlines())) <= 80


def test_the_command_says_when_it_is_not_certified(capsys, monkeypatch):
    monkeypatch.setattr("pathsum.paths.search.WIDTH", 1)
    text = succeed(["paths", FAST, "the cat sat on the mat", "--seconds", "0", "--limit", "40"], capsys)
    assert "not certified: the last adds" in text and "a path not listed might add" in text


def test_json_is_one_object(capsys):
    found = json.loads(succeed(["paths", FAST, "--ids", "3,1,4", "--json", "--target", "5", "--limit", "2"], capsys))
    assert found["manifest"]["prompt"]["token_string"] == "5" and len(found["rows"]) == 2


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["the cat", "--versus", "t", "--log-probability"], "exclude each other"),
        ([], "give one prompt"),
        (["the cat", "--at", "50"], "no position 50"),
    ],
)
def test_the_command_refuses_clearly(capsys, arguments, said):
    with pytest.raises(SystemExit) as stopped:
        main(["paths", FAST, *arguments])
    captured = capsys.readouterr()
    assert stopped.value.code and captured.out == "" and said in captured.err


def test_a_prompt_whose_patterns_would_not_fit_is_refused_with_what_would(monkeypatch):
    model = pathsum.open(FAST)
    monkeypatch.setattr("pathsum.study.prompt.PATTERNS", 4 * 4 * 10**2)
    with pytest.raises(ExpansionTooLarge, match=r"one layer's 4 heads on 11 tokens .* at most 10 tokens"):
        prompt_paths(model, list(range(11)))
    assert len(prompt_paths(model, list(range(10)), limit=2).rows()) == 2


def test_a_longer_prompt_of_a_grouped_model_is_certified():
    case = BY_NAME["qwen3"]
    result = prompt_paths(Model("qwen3", case.weights), case.tokens.tolist(), limit=50)
    assert result.manifest["prompt"]["certified"]


# ---- tables by what paths have in common, and the lens ----


@pytest.mark.parametrize("by", ["head", "source,order", "head,position", "layer,source", "order"])
def test_tables_sum_to_the_target_and_fit_the_terminal(capsys, by):
    arguments = ["expand", FAST, "the cat sat on the mat and the cat", "--by", by, "--target", "s", "--versus", "t"]
    text = succeed(arguments, capsys)
    assert max(map(len, text.splitlines())) <= 80 and "…" not in text.split("\n\n")[-2]
    found = json.loads(succeed([*arguments, "--json"], capsys))
    asked = found["manifest"]["prompt"]
    assert sum(row["value"] for row in found["rows"]) == pytest.approx(asked["linear"], abs=1e-4)
    assert asked["target"] == "logit difference" and asked["error"] < 1e-4
    assert sum(row["share"] for row in found["rows"]) == pytest.approx(1, abs=1e-3)


def test_a_table_of_a_log_probability_says_what_is_not_linear(capsys):
    text = succeed(["expand", FAST, "the cat sat", "--by", "order", "--log-probability"], capsys)
    assert "log-probability of" in text and "that is not linear" in text
    with pytest.raises(SystemExit):
        main(["expand", FAST, "the cat sat", "--log-probability"])
    assert "go with --by" in capsys.readouterr().err


def test_other_axes_are_refused_by_name(capsys):
    with pytest.raises(SystemExit):
        main(["expand", FAST, "the cat", "--by", "token"])
    assert "one or two of order, source, position, head, layer" in capsys.readouterr().err


def test_the_lens_ends_at_the_models_own_prediction(capsys):
    arguments = ["lens", FAST, "the cat sat on the mat", "--target", "s", "--versus", "t"]
    text = succeed(arguments, capsys)
    assert max(map(len, text.splitlines())) <= 80
    rows = json.loads(succeed([*arguments, "--json"], capsys))["rows"]
    model = pathsum.open(FAST)
    run = pathsum.run(model, "the cat sat on the mat")
    one, two = (model.tokenizer.encode(x, add_special_tokens=False).ids[0] for x in "st")
    value = (run.logits[-1, one] - run.logits[-1, two]).item()
    last = [row for row in rows if row["step"] == "all"]
    assert len(last) == 2 and len(rows) == 2 * (model.spec.n_layers + 1)
    for row in last:
        assert row["frozen_target"] == pytest.approx(value, abs=1e-4)
        assert row["recomputed_target"] == pytest.approx(value, abs=1e-4)
        assert row["frozen_rank"] == (run.logits[-1] > run.logits[-1, one]).sum()
        assert row["frozen_log_probability"] == pytest.approx(run.log_probabilities[-1, one].item(), abs=1e-4)


def test_the_lens_of_a_log_probability(capsys):
    rows = json.loads(succeed(["lens", FAST, "the cat", "--log-probability", "--json"], capsys))["rows"]
    for row in rows:
        assert row["frozen_target"] == row["frozen_log_probability"]


# ---- pictures ----


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_every_path_of_every_shape_of_model_can_be_drawn(case, tmp_path):
    result = prompt_paths(Model(case.name, case.weights), case.tokens.tolist(), limit=12)
    figure = path_diagram(result.rows(), result.manifest["prompt"]).to_dict()
    names = {value["name"] for data in _inlined(figure) for value in data if "name" in value}
    for row in result.rows():
        source, *heads = row["path"].split(" → ")
        assert set(heads) <= names and (source == "embed" or source in names)
    assert result.manifest["prompt"]["target"] in names


def _inlined(figure) -> list:
    """All data of a chart."""
    return [*figure["datasets"].values()]


@pytest.mark.parametrize("suffix", [".svg", ".png", ".pdf", ".html"])
def test_a_picture_is_saved_as_what_its_name_ends_with(capsys, tmp_path, suffix):
    for arguments in (["paths", FAST, "the cat sat"], ["expand", FAST, "the cat sat", "--by", "order,position"]):
        out = tmp_path / f"{arguments[0]}{suffix}"
        succeed([*arguments, "--figure", str(out)], capsys)
        assert out.stat().st_size > 1000
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("name", ["picture.doc", "nowhere/picture.svg"])
def test_another_name_is_refused_before_anything_runs(capsys, tmp_path, monkeypatch, name):
    monkeypatch.setattr("pathsum.study.paths.prompt_run", None)
    with pytest.raises(SystemExit) as stopped:
        main(["paths", FAST, "the cat", "--figure", str(tmp_path / name)])
    assert stopped.value.code and name.split("/")[0] in capsys.readouterr().err


def test_widths_of_lines_are_what_the_listed_paths_add():
    result = prompt_paths(virtual_head_model(), [5, 9, 2, 7], limit=1)
    figure = path_diagram(result.rows(), result.manifest["prompt"]).to_dict()
    lines = {value["step"]: value["value"] for data in _inlined(figure) for value in data if "step" in value}
    assert list(lines) == ["9 at 1 → L0H0", "L0H0 → L1H0", "L1H0 → logit"]
    assert all(value == pytest.approx(20, abs=1e-2) for value in lines.values())
