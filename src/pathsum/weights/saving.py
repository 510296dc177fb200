"""Saves a model folder: written beside its place and renamed in."""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from tokenizers import Tokenizer

from pathsum.errors import CheckpointError, NotApplicable
from pathsum.weights.model import Model
from pathsum.weights.weights import Weights


def save(
    directory: Path | str,
    model: Model | Weights,
    tokenizer: Tokenizer | None = None,
    training: dict[str, Any] | None = None,
) -> None:
    """Write a model folder beside `directory` and rename it into place (its files one by one if it exists).

    A model's tokenizer and record of training are saved with it unless others are given; weights have neither. Tensors
    have our names and shapes, `W_E [d_model, d_vocab]` and so on (`pathsum.weights.weights`). Raises `CheckpointError`
    for folded weights (what is on disk is raw, and `fold()` is asked for after opening), `NotApplicable` for what is
    neither. Not in the paper.

    >>> model = pathsum.open("two-layer-small")
    >>> pathsum.save("a-copy", model)
    >>> pathsum.open("a-copy").spec == model.spec
    True
    """
    directory = Path(directory)
    weights = model
    if isinstance(model, Model):
        weights = model.weights
        tokenizer = model.tokenizer if tokenizer is None else tokenizer
        training = (model.training or None) if training is None else training
    if not isinstance(weights, Weights):
        raise NotApplicable(f"save() takes an opened model or its weights, not {type(model).__name__}")
    if weights.spec.folded:
        raise CheckpointError(f"{directory}: folded weights are not saved; save the raw ones and fold() after opening")
    directory.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    try:
        tensors = {name: tensor.detach().contiguous().clone() for name, tensor in weights.tensors().items()}
        save_file(tensors, beside / "model.safetensors")
        _write_json(beside / "config.json", {"model_type": "pathsum", **weights.spec.to_dict()})
        if tokenizer is not None:
            tokenizer.save(str(beside / "tokenizer.json"))
        if training is not None:
            _write_json(beside / "training.json", training)
        for file in beside.iterdir():
            file.chmod(0o644)
        if directory.exists():
            for file in beside.iterdir():
                file.replace(directory / file.name)
        else:
            beside.chmod(0o755)
            beside.rename(directory)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _write_json(path: Path, plain: dict[str, Any]) -> None:
    path.write_text(json.dumps(plain, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
