"""What a run must remember to go on bit for bit: parameters, optimizer moments, step and curve, in one safetensors."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from pathsum.errors import TrainingError
from pathsum.training.trainee import Trainee


@dataclass
class Progress:
    """How far a run is: steps done, seconds they took, one row of the curve per measurement."""

    step: int = 0
    seconds: float = 0.0
    curve: list[dict[str, Any]] = field(default_factory=list)
    induction: dict[str, Any] | None = None
    """Where induction appeared: `step`, `tokens`, `head`, `prefix_matching`, `threshold`."""


def save_state(path: Path, trainee: Trainee, optimizers: list[Optimizer], progress: Progress) -> None:
    """Writes beside `path` and renames, so that a run killed at any moment leaves a whole state."""
    beside = path.with_name(path.name + ".part")
    tensors = {name: tensor.detach().contiguous() for name, tensor in _tensors(trainee, optimizers).items()}
    save_file(tensors, beside, metadata={"progress": json.dumps(vars(progress))})
    beside.replace(path)


def load_state(path: Path, trainee: Trainee, optimizers: list[Optimizer]) -> Progress:
    """Puts a saved state into `trainee` and `optimizers`; a run that has none yet begins at step 0.

    Raises `TrainingError` for a file that cannot be read.
    """
    if not path.is_file():
        return Progress()
    owners = _owners(trainee, optimizers)
    try:
        with safe_open(path, framework="pt") as file:
            for name, parameter in trainee.named_parameters():
                parameter.data.copy_(file.get_tensor(f"parameters/{name}"))
            for key in file.keys():  # noqa: SIM118 - a safetensors handle is no mapping
                if key.startswith("moments/"):
                    _, name, moment = key.split("/")
                    state, parameter = owners[name]
                    state[parameter][moment] = file.get_tensor(key).to(parameter.device)
            return Progress(**json.loads(file.metadata()["progress"]))
    except (SafetensorError, OSError) as error:
        raise TrainingError(f"{path} cannot be read ({error}); delete it to train from the start") from error


def _tensors(trainee: Trainee, optimizers: list[Optimizer]) -> dict[str, Tensor]:
    named = dict(trainee.named_parameters())
    tensors: dict[str, Tensor] = {f"parameters/{name}": parameter for name, parameter in named.items()}
    for optimizer in optimizers:
        for name, parameter in named.items():
            for moment, tensor in optimizer.state.get(parameter, {}).items():
                tensors[f"moments/{name}/{moment}"] = tensor
    return tensors


def _owners(trainee: Trainee, optimizers: list[Optimizer]) -> dict[str, tuple[Any, Parameter]]:
    """By name, each parameter with the state of the optimizer that trains it."""
    names = {id(parameter): name for name, parameter in trainee.named_parameters()}
    return {
        names[id(parameter)]: (optimizer.state, parameter)
        for optimizer in optimizers
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
