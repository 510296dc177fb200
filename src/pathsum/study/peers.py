"""The same logits by other means: an accelerator, and the `transformers` library where it is installed.

Nothing here is needed to read a model. `transformers` is imported only when a comparison is asked for, offline, and
runs no code of the checkpoint's own.
"""

import contextlib
import importlib
import importlib.util
import io
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from pathsum.runs.run import run_weights
from pathsum.weights.model import Model


class Uncompared(Exception):
    """Why a comparison could not be made."""


def accelerators() -> list[str]:
    """Devices beside the CPU that torch can run on here."""
    found = {"cuda": torch.cuda, "mps": torch.backends.mps, "xpu": torch.xpu}
    return [name for name, device in found.items() if device.is_available()]


@torch.no_grad()
def logits_on(device: str, model: Model, tokens: Int[Tensor, " pos"]) -> Float[Tensor, "pos d_vocab"]:
    """The model's logits in float32, run on a device one layer at a time."""
    weights = model.weights.map(lambda tensor: tensor.to(device, torch.float32))
    return run_weights(model, weights, tokens.to(device)).logits.cpu()


@torch.no_grad()
def transformers_logits(model: Model, tokens: Int[Tensor, " pos"]) -> Float[Tensor, "pos d_vocab"]:
    """The logits that `transformers` computes in float32 from the files that the model was opened from.

    Raises `Uncompared` where it is not installed, or cannot open them.
    """
    where = _place(model)
    if importlib.util.find_spec("transformers") is None:
        raise Uncompared("transformers is not installed")
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            auto: Any = importlib.import_module("transformers").AutoModelForCausalLM
            peer = auto.from_pretrained(
                **where, local_files_only=True, trust_remote_code=False, dtype=torch.float32,
                attn_implementation="eager",
            )  # fmt: skip
            logits = peer.eval()(tokens[None]).logits[0].float()
    except Exception as error:  # whatever another library's loader raises is its reason
        said = str(error).strip().splitlines() or [""]
        raise Uncompared(f"transformers cannot run it ({type(error).__name__}: {said[0]})") from error
    if logits.shape != (len(tokens), model.spec.d_vocab):
        raise Uncompared(f"transformers gives logits of shape {tuple(logits.shape)}")
    return logits


def _place(model: Model) -> dict[str, Any]:
    """What `from_pretrained` takes."""
    if model.path is None or not model.files:
        raise Uncompared("the model was opened from memory")
    if model.spec.family == "pathsum":
        raise Uncompared("its format is pathsum's own")
    file = Path(model.files[0])
    return {"pretrained_model_name_or_path": model.path, **({"gguf_file": file.name} if file.suffix == ".gguf" else {})}
