import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import pathsum
from pathsum.errors import TextError, TrainingError
from pathsum.training.recipe import Recipe, recipe
from pathsum.training.run_folder import Settings
from pathsum.training.train import checkpoint_steps, train
from pathsum.weights.checkpoint import open_model

TINY = recipe("two-layer-small", heads=2, d_model=32, d_head=16, vocab=300, context=32, batch=8, steps=50, warm_up=5)
WITH_MLPS = dataclasses.replace(TINY, d_mlp=48, norm="rms")
ONE = Settings(accelerator="cpu", threads=1)


@pytest.fixture(scope="module")
def trained(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "tiny"
    train(TINY, out, [texts], ONE, quiet=True)
    return out


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def same(one: Path, other: Path) -> bool:
    return (one / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()


def test_training_lowers_the_loss_and_the_curve_shows_it(trained: Path) -> None:
    facts = json.loads((trained / "training.json").read_text())
    curve = facts["curve"]
    assert [row["step"] for row in curve] == list(range(1, 51))
    assert curve[-1]["tokens"] == facts["tokens"] == 50 * 8 * 32
    assert curve[-1]["loss"] < curve[0]["loss"] - 1
    assert curve[-1]["validation_loss"] < curve[0]["validation_loss"] - 1
    assert facts["validation_loss"] == pytest.approx(curve[-1]["validation_loss"], abs=0.1)
    assert facts["induction"] is None and 0 <= facts["prefix_matching"] < 0.2


def test_what_decided_the_numbers_is_written_down(trained: Path) -> None:
    facts = json.loads((trained / "training.json").read_text())
    assert facts["recipe"] == TINY.to_dict()
    assert facts["settings"] == dataclasses.asdict(ONE)
    assert facts["text"]["sources"] == ["texts0"] and len(facts["text"]["sha256"]) == 64
    assert set(facts["versions"]) == {"python", "pathsum", "torch", "tokenizers"}


def test_the_folder_opens_as_a_model_and_so_does_every_checkpoint(trained: Path) -> None:
    folders = sorted(path.name for path in trained.glob("step-*"))
    assert folders == [f"step-{step:06d}" for step in checkpoint_steps(50)]
    assert not (trained / "unfinished").exists()
    for folder in (trained, trained / "step-000032"):
        model = open_model(folder)
        assert model.spec == TINY.spec() and model.tokenizer is not None
        assert set(weights(folder)) == set(model.weights.tensors())
    assert open_model(trained / "step-000032").training["step"] == 32
    assert not same(trained, trained / "step-000032")


def test_the_same_recipe_text_and_settings_give_the_same_bits(trained: Path, texts: Path, tmp_path: Path) -> None:
    train(TINY, tmp_path / "again", [texts], ONE, quiet=True)
    assert same(trained, tmp_path / "again")
    short = {"steps": 10, "warm_up": 5}
    train(dataclasses.replace(TINY, **short), tmp_path / "a", [texts], ONE, quiet=True)
    train(dataclasses.replace(TINY, **short, seed=1), tmp_path / "b", [texts], ONE, quiet=True)
    assert not same(tmp_path / "a", tmp_path / "b")


KILLED_AT = 37
SCRIPT = """
import os, signal, sys
from pathlib import Path
from pathsum.training import train as training, watch
from pathsum.training.recipe import Recipe

class Killer(watch.Watch):
    def step(self, step):
        if step == {killed_at}:
            os.kill(os.getpid(), signal.SIGKILL)

training.Watch = Killer
recipe = Recipe(**{recipe})
training.train(recipe, Path(sys.argv[1]), [sys.argv[2]], training.Settings(accelerator="cpu", threads=1), quiet=True)
"""


@pytest.fixture(scope="module")
def killed(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return killed_run(TINY, texts, tmp_path_factory.mktemp("killed") / "tiny")


def killed_run(chosen: Recipe, texts: Path, out: Path) -> Path:
    """The folder of a run that was killed with SIGKILL between two measurements."""
    script = SCRIPT.format(killed_at=KILLED_AT, recipe=chosen.to_dict())
    source = str(Path(pathsum.__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, "-c", script, out, texts],
        env={**os.environ, "PYTHONPATH": source},
        stderr=subprocess.PIPE,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    return out


def test_a_killed_run_is_not_a_model_and_is_not_overwritten(killed: Path, texts: Path) -> None:
    assert not (killed / "config.json").exists()
    with pytest.raises(TrainingError, match="not empty; pass --resume to go on, or another --out"):
        train(TINY, killed, [texts], ONE, quiet=True)


def test_resuming_with_another_recipe_setting_or_text_is_refused(killed: Path, texts: Path) -> None:
    with pytest.raises(TrainingError, match="begun with steps 50, not 60"):
        train(dataclasses.replace(TINY, steps=60), killed, [texts], ONE, resume=True, quiet=True)
    with pytest.raises(TrainingError, match="begun with threads 1, not 2"):
        train(TINY, killed, [texts], dataclasses.replace(ONE, threads=2), resume=True, quiet=True)
    with pytest.raises(TrainingError, match="begun with another text"):
        train(TINY, killed, [texts / "text00.txt"], ONE, resume=True, quiet=True)


def test_a_run_begun_before_recipes_had_a_field_had_its_default(killed: Path, texts: Path) -> None:
    begun = killed / "unfinished" / "run.json"
    facts = json.loads(begun.read_text())
    del facts["recipe"]["d_mlp"]
    begun.write_text(json.dumps(facts))
    with pytest.raises(TrainingError, match="begun with d_mlp 0, not 48"):
        train(dataclasses.replace(TINY, d_mlp=48), killed, [texts], ONE, resume=True, quiet=True)
    with pytest.raises(TrainingError, match="begun with another text"):
        train(TINY, killed, [texts / "text00.txt"], ONE, resume=True, quiet=True)


def test_a_state_that_cannot_be_read_is_named(killed: Path, texts: Path, tmp_path: Path) -> None:
    state = killed / "unfinished" / "state.safetensors"
    whole = state.read_bytes()
    state.write_bytes(whole[:1000])
    with pytest.raises(TrainingError, match=r"state\.safetensors cannot be read"):
        train(TINY, killed, [texts], ONE, resume=True, quiet=True)
    state.write_bytes(whole)


def test_a_run_killed_and_resumed_ends_in_the_same_bits(killed: Path, trained: Path, texts: Path) -> None:
    facts = train(TINY, killed, [texts], ONE, resume=True, quiet=True)
    assert same(killed, trained)
    whole = json.loads((trained / "training.json").read_text())
    assert facts["curve"] == whole["curve"] and facts["validation_loss"] == whole["validation_loss"]
    assert train(TINY, killed, [texts], ONE, resume=True, quiet=True) == facts


def test_so_does_one_with_mlps_and_norms(texts: Path, tmp_path: Path) -> None:
    killed = killed_run(WITH_MLPS, texts, tmp_path / "killed")
    train(WITH_MLPS, killed, [texts], ONE, resume=True, quiet=True)
    train(WITH_MLPS, tmp_path / "whole", [texts], ONE, quiet=True)
    assert same(killed, tmp_path / "whole")


def test_two_processes_train_as_one_does(texts: Path, tmp_path: Path) -> None:
    exact = dataclasses.replace(ONE, precision="32-true")
    short = dataclasses.replace(TINY, steps=12)
    alone = train(short, tmp_path / "alone", [texts], exact, quiet=True)
    together = train(short, tmp_path / "together", [texts], dataclasses.replace(exact, devices=2), quiet=True)
    for row, other in zip(alone["curve"], together["curve"], strict=True):
        assert other["loss"] == pytest.approx(row["loss"], rel=1e-3)
    for name, tensor in weights(tmp_path / "together").items():
        torch.testing.assert_close(tensor, weights(tmp_path / "alone")[name], rtol=0, atol=2e-2)


@pytest.mark.parametrize(
    ("layers", "norm", "d_mlp"), [(0, "none", 0), (1, "layer", 48), (2, "none", 64), (3, "rms", 0)]
)
def test_any_depth_and_norm_trains_with_and_without_mlps(
    layers: int, norm: str, d_mlp: int, texts: Path, tmp_path: Path
) -> None:
    chosen = dataclasses.replace(TINY, layers=layers, norm=norm, d_mlp=d_mlp, steps=15, tiled=0.2)
    facts = train(chosen, tmp_path / "out", [texts], ONE, quiet=True)
    assert facts["curve"][-1]["loss"] < facts["curve"][0]["loss"]
    assert open_model(tmp_path / "out").spec == chosen.spec()
    assert (facts["head"] is None) == (layers == 0)


@pytest.mark.parametrize("norm", ["none", "layer"])
def test_what_paths_carry_of_a_model_trained_with_mlps(norm: str, texts: Path, tmp_path: Path) -> None:
    chosen = dataclasses.replace(TINY, d_mlp=64, norm=norm)
    facts = train(chosen, tmp_path / "out", [texts], ONE, quiet=True)
    assert facts["curve"][-1]["loss"] < facts["curve"][0]["loss"] - 1
    model = open_model(tmp_path / "out")
    assert model.spec == chosen.spec()
    rows = pathsum.carried(model, text=(texts / "text00.txt").read_text(), sequences=2).rows()
    assert [row["source"] for row in rows] == ["embed", "embed through heads", "L0.mlp", "L1.mlp"], "no biases"
    assert sum(row["variance_share"] for row in rows) == pytest.approx(1, abs=1e-5)
    assert sum(row["saved_share"] for row in rows) == pytest.approx(1, abs=1e-5)
    assert max(abs(row["variance_share"]) for row in rows[2:]) > 0.01


def test_models_can_be_written_in_half_the_size(texts: Path, tmp_path: Path) -> None:
    short = dataclasses.replace(TINY, steps=2)
    train(short, tmp_path / "out", [texts], dataclasses.replace(ONE, weights_dtype="bfloat16"), quiet=True)
    assert {tensor.dtype for tensor in weights(tmp_path / "out").values()} == {torch.bfloat16}


def test_checkpoints_are_log_spaced() -> None:
    assert checkpoint_steps(1) == []
    assert checkpoint_steps(128) == [1, 2, 4, 8, 16, 32, 64, 76, 91, 108]
    steps = checkpoint_steps(100_000)
    assert steps[-1] < 100_000 <= steps[-1] * 2**0.25 and len(steps) == len(set(steps)) == 49


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"precision": "8-bit"}, "precision '8-bit' is not one of bf16-mixed, 32-true"),
        ({"weights_dtype": "float16"}, "weights dtype 'float16' is not one of float32, bfloat16"),
        ({"devices": 0}, "must be at least 1"),
        ({"threads": 0}, "must be at least 1"),
        ({"devices": 3}, "a batch of 8 does not divide by 3 devices"),
    ],
)
def test_settings_out_of_range_are_named(change: dict, message: str, texts: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=message):
        train(TINY, tmp_path / "out", [texts], dataclasses.replace(ONE, **change), quiet=True)


def test_nothing_is_left_behind_when_the_text_is_unusable(tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("the head reads the token that the layer writes " * 40)
    long = dataclasses.replace(TINY, vocab=270, context=4096)
    with pytest.raises(TextError, match="too short"):
        train(long, tmp_path / "out", [tmp_path / "short.txt"], ONE, quiet=True)
    assert not (tmp_path / "out").exists()


def test_a_run_killed_before_its_text_was_tokenized_starts_afresh(texts: Path, tmp_path: Path) -> None:
    (tmp_path / "out" / "unfinished").mkdir(parents=True)
    (tmp_path / "out" / "unfinished" / "train.tokens.part").write_bytes(b"half")
    train(dataclasses.replace(TINY, steps=2), tmp_path / "out", [texts], ONE, quiet=True)
    assert open_model(tmp_path / "out").spec == TINY.spec()
    (tmp_path / "file").write_text("")
    with pytest.raises(TrainingError, match="is there already"):
        train(TINY, tmp_path / "file", [texts], ONE, quiet=True)


def test_resuming_what_never_began_is_refused(texts: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="holds no run to resume"):
        train(TINY, tmp_path / "out", [texts], ONE, resume=True, quiet=True)
