import os
import sys
from pathlib import Path

import pytest
import torch
import typer
from rich.console import Console

from pathsum.cli.train import summary, train
from pathsum.errors import TrainingError
from pathsum.training.machine import keep_freed_memory, let_waiting_threads_sleep
from pathsum.training.recipe import recipe
from pathsum.training.watch import Watch
from pathsum.weights.checkpoint import open_model

FACTS = {
    "recipe": {"name": "two-layer", "layers": 2},
    "tokens": 4_100_000,
    "seconds": 65.2,
    "validation_loss": 3.1416,
    "induction": {"step": 400, "tokens": 1_638_400},
    "head": "L1H3",
    "prefix_matching": 0.5,
}


def test_the_command_trains_what_its_options_say(
    texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = torch.get_num_threads()
    options = {
        "heads": 2,
        "d_model": 16,
        "d_head": 8,
        "d_mlp": 24,
        "vocab": 300,
        "context": 32,
        "batch": 4,
        "steps": 3,
        "seed": 5,
    }
    train("two-layer-small", tmp_path / "out", [str(texts)], threads=1, accelerator="cpu", **options)
    facts = open_model(tmp_path / "out").training
    assert {name: facts["recipe"][name] for name in options} == options
    assert facts["settings"]["threads"] == 1 and torch.get_num_threads() == before
    assert "induction did not appear; train longer (--steps)" in capsys.readouterr().out


def test_the_command_refuses_an_unknown_recipe(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="did you mean 'one-layer'"):
        train("onelayer", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_summary_says_when_induction_appeared(tmp_path: Path) -> None:
    assert summary(FACTS, Path("out")).splitlines() == [
        "out: two-layer, 4.1 M tokens in 65 s",
        "validation loss 3.142 nats a token",
        "induction appeared at step 400 (1.6 M tokens)",
        "best head L1H3: prefix matching 0.50",
    ]


def test_a_model_that_cannot_have_induction_is_not_blamed_for_it() -> None:
    one_layer = FACTS | {"recipe": {"name": "one-layer", "layers": 1}, "induction": None}
    assert "induction" not in summary(one_layer, Path("out"))
    smeared = FACTS | {"recipe": {"name": "one-layer", "layers": 1, "smeared_keys": True}, "induction": None}
    assert "induction did not appear" in summary(smeared, Path("out"))
    zero_layer = one_layer | {"recipe": {"name": "zero-layer", "layers": 0}, "head": None}
    assert "best head" not in summary(zero_layer, Path("out"))


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_shows_loss_speed_and_the_best_head(terminal: bool, capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(stderr=True, force_terminal=terminal, width=80)
    watch = Watch(recipe("two-layer-small", steps=20), 0, console)
    row = {"step": 2, "tokens": 8192, "loss": 3.5, "head": "L1H3", "prefix_matching": 0.25}
    with watch:
        watch.step(2)
        watch.measured(row, 61_000.0)
        watch.induction(row | {"threshold": 0.2})
    seen = capsys.readouterr().err
    assert "loss 3.50 · 61k tokens/s · best prefix matching 0.25" in seen
    assert "induction appeared at step 2 (0.0 M tokens): L1H3 has prefix matching 0.25 (threshold 0.2)" in seen


def test_memory_is_kept_only_where_malloc_can(monkeypatch: pytest.MonkeyPatch) -> None:
    assert keep_freed_memory() in (True, False)
    monkeypatch.setattr("platform.libc_ver", lambda: ("", ""))
    assert not keep_freed_memory()


def test_waiting_threads_are_told_to_sleep_before_torch_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not let_waiting_threads_sleep()
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    assert let_waiting_threads_sleep() and os.environ["GOMP_SPINCOUNT"] == "1000"
    monkeypatch.setenv("GOMP_SPINCOUNT", "5")
    assert let_waiting_threads_sleep() and os.environ["GOMP_SPINCOUNT"] == "5"


@pytest.mark.parametrize("accelerator", ["cuda", "nonsense"])
def test_an_accelerator_that_is_not_there_is_named_and_nothing_is_written(tmp_path: Path, accelerator: str) -> None:
    if accelerator == "cuda" and torch.cuda.is_available():
        pytest.skip("it is there")
    with pytest.raises(TrainingError, match=f"'{accelerator}' cannot be used"):
        train("two-layer-small", tmp_path / "out", accelerator=accelerator)
    assert not (tmp_path / "out").exists()


def test_an_interrupted_run_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pathsum.training.train.train", interrupted)
    with pytest.raises(typer.Exit) as stopped:
        train("two-layer-small", tmp_path / "out")
    assert stopped.value.exit_code == 130
    assert "--resume goes on" in capsys.readouterr().err


def test_a_dry_run_needs_no_folder_and_training_does(capsys, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    train("two-layer-small", dry_run=True)
    assert "M parameters" in capsys.readouterr().out
    with pytest.raises(typer.BadParameter, match="name a folder"):
        train("two-layer-small")
    assert not list(tmp_path.iterdir())
