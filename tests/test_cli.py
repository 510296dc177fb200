"""The command line: clean output, one clear line for every mistake, nothing half-written."""

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import pathsum
from cases import BY_NAME
from pathsum.cli import main
from pathsum.cli.words import flowing
from pathsum.study.catalogue import READINGS
from pathsum.toys import induction_model, keep_in_mind_model, pointer_model, skip_trigram_model
from pathsum.weights.weights import Weights

FAST = "two-layer-small"


@pytest.fixture(scope="module")
def toy(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "toy"
    pathsum.save(folder, induction_model().weights)
    return folder


@pytest.fixture(scope="module")
def trigram_toy(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "trigrams"
    pathsum.save(folder, skip_trigram_model([(1, 2, 3)]).weights)
    return folder


@pytest.fixture(scope="module")
def bug_toy(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "bugs"
    pathsum.save(folder, keep_in_mind_model().weights)
    return folder


@pytest.fixture(scope="module")
def toys(toy, trigram_toy, bug_toy, tmp_path_factory) -> dict[str, Path]:
    """By reading, the toy that has something to show."""
    folder = tmp_path_factory.mktemp("models") / "pointer"
    pathsum.save(folder, pointer_model().weights)
    smeared = tmp_path_factory.mktemp("models") / "smeared"
    pathsum.save(smeared, BY_NAME["smeared_keys"].weights)
    known = {reading.name: toy for reading in READINGS}
    return {**known, "trigrams": trigram_toy, "bugs": bug_toy, "pointer": folder, "taps": smeared}


def succeed(arguments: list[str], capsys) -> str:
    """Output of a command that must work."""
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    captured = capsys.readouterr()
    assert stopped.value.code == 0, captured.err
    return captured.out


def fail(arguments: list[str], capsys) -> str:
    """The one line on stderr of a command that must fail, with nothing on stdout."""
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    captured = capsys.readouterr()
    assert stopped.value.code == 1
    assert captured.out == ""
    said = captured.err.lstrip("\n")  # rich before 14.3 ends a progress bar that showed nothing with a line
    assert said.count("\n") == 1 and said.startswith("pathsum: ")
    return said


# ---- what it prints ----


def test_help_names_every_reading_without_loading_torch():
    code = "import sys; from pathsum.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
    code += "assert not {'torch', 'polars', 'altair'} & set(sys.modules), 'heavy imports'"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(reading.name in done.stdout for reading in READINGS)


@pytest.mark.parametrize("reading", READINGS, ids=lambda r: r.name)
def test_every_reading_is_a_command_that_prints_one_json_object(reading, toys, capsys):
    found = json.loads(succeed([reading.name, str(toys[reading.name]), "--json"], capsys))
    assert set(found) == {"manifest", "rows"}
    assert found["manifest"]["reading"] == reading.name
    names = [column.name for column in reading.columns]
    assert found["rows"] and all(list(row) == names for row in found["rows"])


@pytest.mark.parametrize("reading", READINGS, ids=lambda r: r.name)
def test_every_reading_prints_a_table_within_80_columns_and_csv(reading, toys, capsys, monkeypatch):
    toy = toys[reading.name]
    monkeypatch.setenv("COLUMNS", "80")
    shown = succeed([reading.name, str(toy)], capsys)
    assert reading.title in shown
    assert max(map(len, shown.splitlines())) <= 80
    rows = list(csv.DictReader(io.StringIO(succeed([reading.name, str(toy), "--csv"], capsys))))
    assert list(rows[0]) == [column.name for column in reading.columns]


def test_help_of_a_reading_has_its_options_and_columns(capsys):
    shown = " ".join(succeed(["composition", "--help"], capsys).split())
    assert "--delta" in shown and "--erratum" in shown and "--sampled" in shown
    assert "largest score any relative rotation allows" in shown


def test_help_is_broken_by_the_terminal_and_speaks_of_commands_alone():
    said = flowing("""One line
        and its rest.

        Of `count`
        words. Raises `StudyError` for none
        of them. Then more.

        \b
        kept
        as it is
        """)
    assert said == "One line and its rest.\n\nOf `count` words. Then more.\n\n\b\nkept\nas it is"


def test_brackets_in_help_are_text(capsys):
    shown = " ".join(succeed(["trigrams", "--help"], capsys).split())
    assert "`[source] … [destination] → [out]`" in shown
    assert "mean A[i, i−1]" in " ".join(succeed(["attention", "--help"], capsys).split())


def test_options_reach_the_reading(toy, capsys):
    found = json.loads(succeed(["composition", str(toy), "--erratum", "--sampled", "--json"], capsys))
    assert {"cyclic_score", "sampled_baseline", "sampled_error"} <= set(found["rows"][0])
    assert found["manifest"]["options"]["erratum"] is True
    assert len(json.loads(succeed(["entries", str(toy), "--count", "2", "--json"], capsys))["rows"]) == 4 * 2 * 2


@pytest.fixture(scope="module")
def rotary(tmp_path_factory) -> Path:
    from cases import BY_NAME

    folder = tmp_path_factory.mktemp("models") / "rotary"
    pathsum.save(folder, BY_NAME["llama"].weights)
    return folder


@pytest.mark.parametrize(("delta", "shown"), [("1", {1.0}), ("0,1,2", {0.0, 1.0, 2.0}), ("rms", {"rms"})])
def test_composition_takes_one_distance_several_or_rms(delta, shown, rotary, capsys):
    rows = json.loads(succeed(["composition", str(rotary), "--delta", delta, "--json"], capsys))["rows"]
    assert {row["delta"] for row in rows if row["kind"] == "K"} == shown
    assert all(row["score"] is not None for row in rows)


@pytest.mark.parametrize("reading", ["matching", "spectra", "eigenvalues", "entries", "trigrams"])
def test_other_readings_of_qk_take_one_distance(reading, rotary, capsys):
    without, near, far = (
        json.loads(succeed([reading, str(rotary), *more, "--json"], capsys))["rows"]
        for more in ([], ["--delta", "0"], ["--delta", "3"])
    )
    assert near != far and near != without


def test_undefined_numbers_are_null(toy, capsys):
    found = json.loads(succeed(["spectra", str(toy), "--json"], capsys))
    assert found["rows"][0]["copying_score"] is None


def test_models_are_listed_with_their_facts(capsys):
    found = json.loads(succeed(["models", "--json"], capsys))
    assert [row["name"] for row in found] == ["one-layer", "two-layer", "two-layer-small", "zero-layer"]
    assert all(row["MB"] <= 12 for row in found)
    assert "two-layer-small" in succeed(["models"], capsys)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("target", ["/dev/full", "a closed pipe"])
def test_output_that_cannot_be_written_is_one_line_or_none(toy, target):
    command = [sys.executable, "-c", "from pathsum.cli import main; main()", "spectra", str(toy)]
    if target == "/dev/full":
        with Path(target).open("w") as full:
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert done.stderr.count("\n") == 1 and "No space left" in done.stderr
    else:
        shell = f"'{command[0]}' -c '{command[2]}' spectra '{toy}' | true"
        done = subprocess.run(["bash", "-o", "pipefail", "-c", shell], stderr=subprocess.PIPE, text=True, check=False)
        assert done.stderr == ""


def test_the_version_is_printed(capsys):
    assert succeed(["--version"], capsys).strip() == "0.1.0"


def test_read_prints_a_summary_and_writes_a_report(toy, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = succeed(["read", str(toy), "--out", str(tmp_path / "report")], capsys)
    *lines, report = shown.splitlines()
    assert "L1H1" in shown and max(map(len, lines)) <= 80
    assert report == f"Report: {tmp_path}/report/report.html"
    assert (tmp_path / "report" / "report.html").is_file() and (tmp_path / "report" / "manifest.json").is_file()


def test_read_json_has_every_reading_by_name_and_writes_nothing(toy, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = json.loads(succeed(["read", str(toy), "--json"], capsys))
    assert set(found["readings"]) == {reading.name for reading in READINGS if reading.in_report}
    assert list(tmp_path.iterdir()) == []


def test_a_model_whose_layer_writes_nothing_is_read(tmp_path, capsys):
    model = induction_model()
    tensors = model.weights.tensors()
    changed = tensors | {"L0.W_O": torch.zeros_like(tensors["L0.W_O"]), "L1.W_Q": torch.zeros_like(tensors["L1.W_Q"])}
    pathsum.save(tmp_path / "model", Weights.from_tensors(model.spec, changed))
    assert "report.html" in succeed(["read", str(tmp_path / "model"), "--out", str(tmp_path / "report")], capsys)


def test_the_manifest_counts_the_contexts_that_were_run(tmp_path, capsys):
    (tmp_path / "text.txt").write_text("some words and some more words " * 60)
    command = ["importance", FAST, "--text", str(tmp_path / "text.txt"), "--context", "100", "--json"]
    assert 1 < json.loads(succeed(command, capsys))["manifest"]["text"]["sequences"] < 16


def test_read_only_makes_the_readings_named(toy, capsys):
    found = json.loads(succeed(["read", str(toy), "--json", "--only", "spectra,repeats"], capsys))
    assert set(found["readings"]) == {"spectra", "repeats"}


def test_tokens_cannot_reach_the_terminal_as_control_characters(tmp_path, capsys):
    from pathsum.report.terminal import _cell

    assert _cell("\x1b[31mred\n") == "'\\x1b[31mred\\n'"
    assert _cell("é") == "é" and _cell(" é") == "' é'"
    assert len(_cell("x" * 1000)) <= 40


# ---- mistakes ----


def test_an_unknown_model_suggests_the_nearest(capsys):
    assert "did you mean 'two-layer'" in fail(["spectra", "two-layr"], capsys)


def test_a_folder_without_config_is_named(tmp_path, capsys):
    assert "has no config.json" in fail(["spectra", str(tmp_path)], capsys)


def test_a_file_instead_of_a_folder_is_named(toy, capsys):
    assert "is a file" in fail(["spectra", str(toy / "config.json")], capsys)


def test_a_truncated_safetensors_file_is_named(toy, tmp_path, capsys):
    whole = (toy / "model.safetensors").read_bytes()
    (tmp_path / "config.json").write_bytes((toy / "config.json").read_bytes())
    (tmp_path / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    message = fail(["spectra", str(tmp_path)], capsys)
    assert "model.safetensors" in message and "copy it again" in message
    (tmp_path / "model.safetensors").unlink()
    assert "model.safetensors is missing" in fail(["spectra", str(tmp_path)], capsys)


def changed_config(toy: Path, folder: Path, **fields) -> Path:
    config = json.loads((toy / "config.json").read_text()) | fields
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes((toy / "model.safetensors").read_bytes())
    return folder


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"d_model": 7}, "but config.json asks for"),
        ({"d_vocab": 17}, "but config.json asks for"),
        ({"n_layers": 3}, "3 layers, but facts for 2"),
        ({"n_heads": 0}, "n_heads is 0"),
        ({"norm": "batch"}, "norm 'batch'"),
        ({"colour": "red"}, "unknown field 'colour'"),
        ({"model_type": "bert"}, "no table for model_type 'bert'"),
        ({"layers": [{"positions": {"kind": "spiral"}}] * 2}, "kind 'spiral' is not one of sinusoidal"),
        ({"layers": [{"score_scale": "x"}] * 2}, "score_scale is 'x', must be a finite number"),
        ({"layers": [{"score_scale": float("nan")}] * 2}, "score_scale is nan"),
        ({"layers": [{"window": 0}] * 2}, "window is 0, must be a whole number, at least 1"),
        ({"layers": [{"score_cap": 0}] * 2}, "score_cap is 0, must be a finite number above 0"),
        ({"layers": [{"positions": {"kind": "sinusoidal", "amplitude": "big"}}] * 2}, "amplitude is 'big'"),
        ({"layers": [{"positions": {"kind": "sinusoidal", "base": 0}}] * 2}, "base is 0"),
        ({"layers": [{"positions": {"kind": "rotary", "d_rotary": 1}}] * 2}, "d_rotary is 1"),
        ({"layers": [{"colour": 1}] * 2}, "colour"),
        ({"parallel": "yes"}, "parallel is 'yes', must be true or false"),
        ({"norm_eps": "a"}, "norm_eps is 'a'"),
        ({"d_model": None}, "d_model is None"),
        ({"folded": True}, "models on disk are raw"),
        ({"d_head": "many"}, "d_head"),
    ],
)
def test_a_config_that_disagrees_with_the_tensors_is_named(fields, message, toy, tmp_path, capsys, unchecked):
    assert message in fail(["spectra", str(changed_config(toy, tmp_path, **fields))], capsys)


def test_a_missing_field_and_an_empty_name_are_named(toy, tmp_path, capsys):
    config = json.loads((toy / "config.json").read_text())
    del config["d_model"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes((toy / "model.safetensors").read_bytes())
    assert "field 'd_model' is missing" in fail(["spectra", str(tmp_path)], capsys)
    assert "no model is named" in fail(["spectra", ""], capsys)


def test_too_little_memory_is_one_clear_line(toy, capsys, monkeypatch):
    from pathsum.study import subject

    def huge(*_: object, **__: object) -> None:
        torch.empty(1 << 60)

    monkeypatch.setattr(subject, "run_weights", huge)
    assert "pass a smaller --context" in fail(["importance", str(toy)], capsys)


def test_a_tensor_without_a_place_is_named(toy, tmp_path, capsys):
    from safetensors.torch import load_file, save_file

    changed_config(toy, tmp_path)
    save_file({**load_file(toy / "model.safetensors"), "L5.W_Q": torch.zeros(2)}, tmp_path / "model.safetensors")
    assert "L5.W_Q has no place" in fail(["spectra", str(tmp_path)], capsys)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda W: W.index_fill(0, torch.tensor([0]), float("nan")), "not finite"),
        (lambda W: W + float("inf"), "not finite"),
        (lambda W: W.long(), "floating-point"),
    ],
)
def test_weights_that_are_no_finite_numbers_are_named(change, message, toy, tmp_path, capsys):
    from safetensors.torch import load_file, save_file

    changed_config(toy, tmp_path)
    tensors = load_file(toy / "model.safetensors")
    save_file(tensors | {"L1.W_Q": change(tensors["L1.W_Q"]).contiguous()}, tmp_path / "model.safetensors")
    found = fail(["spectra", str(tmp_path)], capsys)
    assert "L1.W_Q" in found and message in found


def test_broken_json_and_tokenizers_are_named(toy, tmp_path, capsys):
    changed_config(toy, tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    assert "no readable tokenizer" in fail(["spectra", str(tmp_path)], capsys)
    (tmp_path / "config.json").write_text("[1, 2")
    assert "no readable JSON" in fail(["spectra", str(tmp_path)], capsys)


def test_a_text_of_one_token_is_refused(tmp_path, capsys):
    (tmp_path / "short.txt").write_text("a")
    assert "at least 2" in fail(["importance", FAST, "--text", str(tmp_path / "short.txt")], capsys)


def test_a_context_longer_than_the_models_is_refused(capsys):
    assert "two-layer-small takes 2 to 256" in fail(["importance", FAST, "--context", "300"], capsys)
    found = json.loads(succeed(["importance", FAST, "--context", "20", "--sequences", "2", "--json"], capsys))
    assert found["manifest"]["text"]["context"] == 20


def test_a_text_that_is_not_there_is_named(capsys):
    assert "nowhere.txt does not exist" in fail(["importance", FAST, "--text", "nowhere.txt"], capsys)
    assert "'' does not exist" in fail(["importance", FAST, "--text", ""], capsys)
    assert "a file without a suffix" in fail(["importance", FAST, "--text", "/dev/null"], capsys)


def test_text_for_a_model_without_a_tokenizer_is_refused(toy, tmp_path, capsys):
    (tmp_path / "text.txt").write_text("some words")
    assert "no tokenizer.json" in fail(["importance", str(toy), "--text", str(tmp_path / "text.txt")], capsys)


@pytest.mark.parametrize("reading", ["entries", "trigrams"])
def test_a_table_nobody_could_read_is_refused_with_the_bound(reading, toy, capsys):
    assert "pass a smaller count=" in fail([reading, str(toy), "--count", "1000000"], capsys)


def test_an_unknown_reading_after_only_is_named(toy, capsys):
    assert "no reading 'spectr'" in fail(["read", str(toy), "--json", "--only", "spectr"], capsys)


def test_wrong_usage_exits_2(toy, capsys):
    for arguments in (
        ["nothing"],
        ["spectra"],
        ["spectra", str(toy), "--wrong"],
        ["composition", str(toy), "--delta", "x"],
        ["composition", str(toy), "--delta", "inf"],
        ["spectra", str(toy), "--delta", "1,2"],
        ["entries", str(toy), "--delta", "rms"],
        ["spectra", str(toy), "--text", "x"],
        ["entries", str(toy), "--count", "0"],
        ["spectra", str(toy), "--json", "--csv"],
        ["read", str(toy), "--json", "--only", ","],
    ):
        with pytest.raises(SystemExit) as stopped:
            main(arguments)
        assert stopped.value.code == 2
        assert "Traceback" not in capsys.readouterr().err


def test_a_report_never_replaces_a_folder_that_is_not_one(toy, tmp_path, capsys):
    (tmp_path / "precious.txt").write_text("mine")
    assert str(tmp_path) in fail(["read", str(toy), "--out", str(tmp_path)], capsys)
    assert [file.name for file in tmp_path.iterdir()] == ["precious.txt"]


# ---- models from memory and disk ----


def test_a_saved_model_opens_to_the_same_model(tmp_path):
    model = skip_trigram_model([(1, 2, 3)])
    pathsum.save(tmp_path / "deep" / "model", model.weights)
    opened = pathsum.open(tmp_path / "deep" / "model")
    assert opened.spec == model.spec
    assert all(torch.equal(opened.weights.tensors()[name], t) for name, t in model.weights.tensors().items())
    pathsum.save(tmp_path / "deep" / "model", induction_model().weights)
    assert pathsum.open(tmp_path / "deep" / "model").spec.n_layers == 2
    assert [file.name for file in (tmp_path / "deep").iterdir()] == ["model"]


def test_folded_weights_are_not_saved(tmp_path):
    with pytest.raises(pathsum.PathsumError, match="save the raw ones"):
        pathsum.save(tmp_path / "model", induction_model().weights.fold())
    assert list(tmp_path.iterdir()) == []


def test_opening_reads_no_weights_and_a_block_reads_only_its_own(toy, monkeypatch, unchecked):
    from pathsum.weights import checkpoint

    read = []
    original = checkpoint.SafetensorsFile.__getitem__
    monkeypatch.setattr(
        checkpoint.SafetensorsFile, "__getitem__", lambda self, name: read.append(name) or original(self, name)
    )
    model = pathsum.open(toy)
    assert read == []
    model.weights.head("L1H0")
    assert read and all(name.startswith("L1.") for name in read)


def test_columns_that_options_add_are_shown_before_others_and_are_in_the_catalogue(capsys):
    shown = succeed(["composition", FAST, "--erratum", "--sampled", "--limit", "2"], capsys)
    table, _, left = shown.partition("not shown:")
    assert max(map(len, shown.splitlines())) <= 80 and left
    assert "cyclic_" in table and "sampled_" in table and "sampled" not in left
    reading = next(reading for reading in READINGS if reading.name == "composition")
    found = pathsum.composition(pathsum.open(FAST), erratum=True, sampled=True, metric="tokens").frame.columns
    assert set(found) == {column.name for column in (*reading.columns, *reading.optional)}
