"""`verify`: every error beside its bound; what cannot be compared says why; a broken bound is named."""

import dataclasses
import json
import subprocess
import sys
import types

import pytest
import torch

import pathsum
from cases import BY_NAME, CASES
from pathsum.cli import main
from pathsum.study import peers
from pathsum.study import verify as module
from pathsum.study.verify import BOUNDS, DEVICE, FOLD, LOGITS, PEER, PRECISION, SCORES
from pathsum.toys import induction_model
from pathsum.weights.model import Model
from pathsum.weights.weights import Weights
from test_cli import fail, succeed

Checks = dict[tuple[str, str], dict]


def checks(model: Model, **options) -> Checks:
    options = {"text": list(range(4)) * 3, "context": 6} | options
    return {(row["check"], row["dtype"]): row for row in pathsum.verify(model, **options).rows()}


def of(name: str) -> Model:
    return Model(name, BY_NAME[name].weights)


def compared(found: Checks) -> set[str]:
    return {check for (check, _), row in found.items() if row["holds"] is not None}


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_every_bound_holds_for_every_architecture(case):
    found = checks(Model(case.name, case.weights))
    assert set(found) == set(BOUNDS)
    assert not [row for row in found.values() if row["holds"] is False]
    assert {FOLD, LOGITS, PRECISION} <= compared(found)
    assert (SCORES in compared(found)) is bool(case.spec.n_layers)
    assert 0 < found[PRECISION, "float32"]["error"] < 1e-5


def test_a_model_that_is_read_again_by_every_pass_gives_the_same_numbers(monkeypatch):
    at_once = checks(of("gpt2"))
    monkeypatch.setattr(module, "READ_ONCE", 0)
    assert checks(of("gpt2")) == at_once


def drifting() -> Model:
    """A model whose embedding sits far from zero: centring, exact in float64, costs float32 most of its digits."""
    case = BY_NAME["gpt2"]
    return Model("drifting", case.with_tensors(W_E=case.tensors["W_E"] + 1e5).weights)


def test_a_model_that_float32_cannot_run_breaks_the_bounds_of_float32():
    found = checks(drifting())
    broken = {which for which, row in found.items() if row["holds"] is False}
    assert (PRECISION, "float32") in broken and all(dtype == "float32" for _, dtype in broken)
    assert found[PRECISION, "float32"]["error"] > found[PRECISION, "float32"]["bound"]


def test_a_broken_bound_exits_1_and_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    pathsum.save(tmp_path / "model", drifting().weights)
    for options in ([], ["--json"]):
        with pytest.raises(SystemExit) as stopped:
            main(["verify", str(tmp_path / "model"), *options])
        captured = capsys.readouterr()
        assert stopped.value.code == 1 and captured.err.count("\n") == 1
        assert captured.err.startswith("pathsum: bound broken: ") and f"{PRECISION} (float32)" in captured.err
        if options:
            rows = json.loads(captured.out)["rows"]
            assert any(row["check"] == PRECISION and row["holds"] is False for row in rows)
        else:
            (shown,) = (line for line in captured.out.splitlines() if line.startswith(PRECISION))
            assert shown.endswith("no") and max(map(len, captured.out.splitlines())) <= 80


def test_wrong_terms_break_the_bound_of_their_sum(monkeypatch):
    def spoilt(run):
        layer = run.frozen.layers[0]
        wrong = dataclasses.replace(layer, kept=layer.pattern.roll(1, -1))
        frozen = dataclasses.replace(run.frozen, layers=(wrong, *run.frozen.layers[1:]))
        return pathsum.expand(dataclasses.replace(run, frozen=frozen))

    monkeypatch.setattr(module, "expand", spoilt)
    found = checks(of("gpt2"))
    assert found[LOGITS, "float32"]["holds"] is False and found[LOGITS, "float64"]["holds"] is False
    assert found[FOLD, "float64"]["holds"] is True


def test_a_wrong_fold_breaks_its_bound(monkeypatch):
    fold = Weights.fold
    monkeypatch.setattr(Weights, "fold", lambda self: fold(self).map(lambda tensor: tensor * 1.001))
    assert checks(of("llama"))[FOLD, "float64"]["holds"] is False


def test_the_worst_head_is_named(monkeypatch):
    monkeypatch.setattr(module, "score_errors", lambda expansion: {"L0H1": 1e-15, "L1H2": 1e-3, "L1H0": 0.0})
    row = checks(of("gpt2"))[SCORES, "float64"]
    assert row["error"] == 1e-3 and row["holds"] is False and row["note"] == "worst head L1H2"


def test_what_cannot_be_folded_says_why():
    case = BY_NAME["gemma2"]
    zero = case.tensors["L0.post_attention_norm.gain"].clone()
    zero[0] = 0
    found = checks(Model("zero gain", case.with_tensors(**{"L0.post_attention_norm.gain": zero}).weights))
    for which in ((FOLD, "float64"), (LOGITS, "float32"), (SCORES, "float64")):
        assert found[which]["error"] is None and found[which]["holds"] is None
        assert "gain has a zero in it" in found[which]["note"]
    assert found[PRECISION, "float32"]["holds"] is True


# ---- devices ----


def test_no_accelerator_is_said(monkeypatch):
    monkeypatch.setattr(module, "accelerators", list)
    assert checks(of("gpt2"))[DEVICE, "float32"]["note"] == "not compared: no accelerator"


def test_every_accelerator_is_compared(monkeypatch):
    monkeypatch.setattr(module, "accelerators", lambda: ["cpu"])
    row = checks(of("gpt2"))[DEVICE, "float32"]
    assert row["error"] == 0 and row["holds"] is True and row["note"] == "cpu"
    monkeypatch.setattr(module, "logits_on", lambda device, *rest: 1.01 * peers.logits_on("cpu", *rest))
    row = checks(of("gpt2"))[DEVICE, "float32"]
    assert row["error"] == pytest.approx(0.01, rel=1e-3) and row["holds"] is False


def test_accelerators_are_what_torch_has(monkeypatch):
    for device in (torch.cuda, torch.backends.mps, torch.xpu):
        monkeypatch.setattr(device, "is_available", lambda: False)
    assert peers.accelerators() == []
    monkeypatch.setattr(torch.xpu, "is_available", lambda: True)
    assert peers.accelerators() == ["xpu"]


# ---- transformers ----


@pytest.fixture
def folder(tmp_path) -> Model:
    """A model that says it came from a folder of another library's."""
    case = BY_NAME["llama"]
    weights = dataclasses.replace(case.weights, spec=dataclasses.replace(case.spec, family="llama"))
    return Model("llama", weights, path=tmp_path, files=(tmp_path / "model.safetensors",))


def stand_in(monkeypatch, answer) -> list[dict]:
    """A `transformers` that notes how it is asked, and answers."""
    asked = []

    class AutoModelForCausalLM:
        @staticmethod
        def from_pretrained(**options):
            asked.append(options)
            return types.SimpleNamespace(eval=lambda: answer)

    fake = types.ModuleType("transformers")
    fake.AutoModelForCausalLM = AutoModelForCausalLM
    monkeypatch.setitem(sys.modules, "transformers", fake)
    monkeypatch.setattr(peers.importlib.util, "find_spec", lambda name: fake)
    monkeypatch.setattr(Model, "digest", lambda self: "")
    return asked


def test_transformers_is_asked_for_local_files_in_float32_without_code(folder, monkeypatch):
    run = lambda ids: types.SimpleNamespace(logits=1.01 * pathsum.run(folder, ids[0]).logits[None])
    asked = stand_in(monkeypatch, run)
    row = checks(folder)[PEER, "float32"]
    assert row["error"] == pytest.approx(0.01, rel=1e-3) and row["holds"] is False
    assert asked == [{"pretrained_model_name_or_path": folder.path, "local_files_only": True,
                      "trust_remote_code": False, "dtype": torch.float32, "attn_implementation": "eager"}]  # fmt: skip


def test_what_transformers_cannot_open_says_why(folder, monkeypatch):
    def refuse(ids):
        raise ValueError("no such thing\nand a long story")

    stand_in(monkeypatch, refuse)
    note = checks(folder)[PEER, "float32"]["note"]
    assert note == "not compared: transformers cannot run it (ValueError: no such thing)"
    stand_in(monkeypatch, lambda ids: types.SimpleNamespace(logits=torch.zeros(1, 2, 3)))
    assert "logits of shape (2, 3)" in checks(folder)[PEER, "float32"]["note"]


def test_without_transformers_the_row_says_so(folder, monkeypatch):
    monkeypatch.setattr(peers.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(Model, "digest", lambda self: "")
    assert checks(folder)[PEER, "float32"]["note"] == "not compared: transformers is not installed"
    assert "opened from memory" in checks(of("llama"))[PEER, "float32"]["note"]


def test_transformers_is_not_imported_for_a_model_of_our_own():
    code = "import sys, pathsum; found = pathsum.verify(pathsum.open('zero-layer'))\n"
    code += "assert found.frame['holds'].all() and 'transformers' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


SMALL = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4}
PEERS = {
    "GPT2": {"vocab_size": 40, "n_positions": 24, "n_embd": 16, "n_layer": 2, "n_head": 4},
    "Llama": {**SMALL, "num_key_value_heads": 2, "intermediate_size": 24, "max_position_embeddings": 24},
    "Gemma2": {**SMALL, "num_key_value_heads": 2, "intermediate_size": 24, "head_dim": 4, "sliding_window": 5,
               "final_logit_softcapping": 3.0, "attn_logit_softcapping": 2.0, "query_pre_attn_scalar": 4},
}  # fmt: skip


@pytest.mark.parametrize("family", PEERS)
def test_transformers_agrees_where_it_is_installed(family, tmp_path, capsys):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(3)
    config = getattr(transformers, f"{family}Config")(**PEERS[family])
    peer = getattr(transformers, "GPT2LMHeadModel" if family == "GPT2" else f"{family}ForCausalLM")(config)
    with torch.no_grad():
        for parameter in peer.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3)
    peer.save_pretrained(tmp_path / "peer")
    capsys.readouterr()
    shown = succeed(["verify", str(tmp_path / "peer"), "--context", "20", "--json"], capsys)
    rows = {row["check"]: row for row in json.loads(shown)["rows"]}
    assert rows[PEER]["holds"] is True and 0 < rows[PEER]["error"] < 1e-5
    opened = pathsum.open(tmp_path / "peer")
    other = dataclasses.replace(opened, weights=opened.weights.map(lambda tensor: tensor * 1.02))
    assert checks(other)[PEER, "float32"]["holds"] is False


# ---- what is verified on ----


def test_the_sample_is_the_first_tokens_of_the_text(tmp_path, capsys):
    (tmp_path / "text.txt").write_text("the cat sat on the mat and the dog on the log " * 8)
    arguments = ["verify", "two-layer-small", "--text", str(tmp_path / "text.txt"), "--context", "11", "--json"]
    sample = json.loads(succeed(arguments, capsys))["manifest"]["sample"]
    assert len(sample["tokens"]) == 11
    default = pathsum.verify(pathsum.open("two-layer-small")).manifest
    assert len(default["sample"]["tokens"]) == module.TOKENS
    assert len(pathsum.verify(induction_model()).manifest["sample"]["tokens"]) == induction_model().spec.n_ctx
    assert {(bound["check"], bound["dtype"]) for bound in default["bounds"]} == set(BOUNDS)
    assert all(bound["reason"] for bound in default["bounds"])


def test_the_table_fits_80_columns_and_its_notes_follow(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(module, "accelerators", list)
    shown = succeed(["verify", "two-layer-small"], capsys)
    assert max(map(len, shown.splitlines())) <= 80
    assert all(check in shown for check, _ in BOUNDS)
    assert f"{DEVICE}: not compared: no accelerator" in shown and "worst head L1H" in shown


def test_mistakes_are_one_line(capsys, unchecked):
    assert "takes 2 to 256" in fail(["verify", "two-layer-small", "--context", "300"], capsys)
    with pytest.raises(pathsum.PathsumError, match="takes an opened model"):
        pathsum.verify("two-layer")
