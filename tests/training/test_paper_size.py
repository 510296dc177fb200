"""What the paper's own size needs: a given vocabulary, batches in parts, and what a run takes, counted."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch.utils.flop_counter import FlopCounterMode

from pathsum.errors import TrainingError
from pathsum.training.cost import cost
from pathsum.training.recipe import recipe
from pathsum.training.run_folder import Settings
from pathsum.training.train import train
from pathsum.training.trainee import Trainee
from pathsum.weights.checkpoint import open_model

TINY = recipe("two-layer-small", heads=2, d_model=32, d_head=16, vocab=300, context=32, batch=8, steps=6, warm_up=5)
EXACT = Settings(accelerator="cpu", precision="32-true")


@pytest.fixture(scope="module")
def run(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "tiny"
    train(TINY, out, [texts], EXACT, quiet=True)
    return out


@pytest.fixture
def two_files(run: Path, tmp_path: Path) -> Path:
    """The run's vocabulary as GPT-2's first release has its own."""
    plain = json.loads((run / "tokenizer.json").read_text())["model"]
    folder = tmp_path / "gpt2"
    folder.mkdir()
    (folder / "encoder.json").write_text(json.dumps(plain["vocab"]))
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in plain["merges"]]
    (folder / "vocab.bpe").write_text("\n".join(["#version: 0.2", *merges]) + "\n")
    return folder


def test_the_papers_size_is_a_recipe() -> None:
    spec = recipe("paper-two-layer").spec()
    shape = (spec.n_layers, spec.n_heads, spec.d_head, spec.d_model, spec.n_ctx, spec.d_vocab)
    assert shape == (2, 12, 64, 768, 2048, 50_257) and spec.norm == "none" and spec.d_mlp is None


def test_a_batch_in_parts_trains_as_a_whole_one_does(run: Path, texts: Path, tmp_path: Path) -> None:
    train(TINY, tmp_path / "parts", [texts], dataclasses.replace(EXACT, accumulate=4), quiet=True)
    whole, parts = (load_file(folder / "model.safetensors") for folder in (run, tmp_path / "parts"))
    for name, tensor in whole.items():
        # Muon multiplies in bfloat16: where a gradient differs in its last bit, a step differs in its third digit.
        torch.testing.assert_close(parts[name], tensor, rtol=0, atol=2e-2)
    losses = [[row["loss"] for row in open_model(folder).training["curve"]] for folder in (run, tmp_path / "parts")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_parts_that_do_not_divide_the_batch_are_refused(texts: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="1 devices × 3 parts"):
        train(TINY, tmp_path / "parts", [texts], dataclasses.replace(EXACT, accumulate=3), quiet=True)
    assert not (tmp_path / "parts").exists()


@pytest.mark.parametrize("as_file", [False, True])
def test_a_given_vocabulary_is_the_models(
    as_file: bool, two_files: Path, run: Path, texts: Path, tmp_path: Path
) -> None:
    given = run / "tokenizer.json" if as_file else two_files
    train(TINY, tmp_path / "out", [texts], EXACT, quiet=True, vocabulary=given)
    one, other = (Tokenizer.from_file(str(folder / "tokenizer.json")) for folder in (run, tmp_path / "out"))
    assert one.get_vocab() == other.get_vocab()
    text = "def f(x):\n    return x"
    assert one.encode(text).ids == other.encode(text).ids
    # The same text in the same tokens: the same bits.
    assert (run / "model.safetensors").read_bytes() == (tmp_path / "out" / "model.safetensors").read_bytes()
    assert len(open_model(tmp_path / "out").training["text"]["vocabulary_sha256"]) == 64


def test_a_vocabulary_of_another_size_or_none_is_refused(two_files: Path, texts: Path, tmp_path: Path) -> None:
    larger = dataclasses.replace(TINY, vocab=301)
    with pytest.raises(TrainingError, match="pass --vocab 300"):
        train(larger, tmp_path / "out", [texts], EXACT, quiet=True, vocabulary=two_files)
    with pytest.raises(TrainingError, match="holds no vocabulary"):
        train(TINY, tmp_path / "out", [texts], EXACT, quiet=True, vocabulary=texts)
    assert not (tmp_path / "out").exists()


def test_a_vocabulary_without_an_end_of_text_is_refused(two_files: Path, texts: Path, tmp_path: Path) -> None:
    vocabulary = json.loads((two_files / "encoder.json").read_text())
    vocabulary["other"] = vocabulary.pop("<|endoftext|>")
    (two_files / "encoder.json").write_text(json.dumps(vocabulary))
    with pytest.raises(TrainingError, match="ends a document"):
        train(TINY, tmp_path / "out", [texts], EXACT, quiet=True, vocabulary=two_files)


def test_resuming_with_another_vocabulary_is_refused(two_files: Path, run: Path, texts: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    with pytest.raises(TrainingError, match="another vocabulary"):
        train(TINY, tmp_path / "run", [texts], EXACT, resume=True, quiet=True, vocabulary=two_files)


@pytest.mark.parametrize("changes", [{}, {"d_mlp": 48}, {"layers": 0}])
def test_operations_are_those_that_are_counted_on_the_way(changes: dict) -> None:
    one = dataclasses.replace(TINY, **changes)
    trainee, tokens = Trainee(one), torch.randint(one.vocab, (one.batch, one.context + 1))
    with FlopCounterMode(display=False) as counter:
        trainee(tokens[:, :-1], tokens[:, 1:]).backward()
    # Here patterns are whole squares; what is needed of them is half.
    square = 3 * one.layers * one.batch * one.context * 2 * one.heads * one.d_head * one.context
    assert counter.get_total_flops() == cost(one).operations / one.steps + square
    assert cost(one).parameters == sum(parameter.numel() for parameter in trainee.parameters())
