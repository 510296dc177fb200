"""A series of checkpoints: what one model was on the way, in the order of its training."""

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path

from pathsum.errors import StudyError
from pathsum.weights import hub
from pathsum.weights.checkpoint import STORED

MOST = 10_000
BRACES = re.compile(r"(?P<before>[^{}]+@[^{}]*)\{(?P<inside>[^{}]*)\}(?P<after>[^{}]*)")
RANGE = re.compile(r"(\d+)\.\.(\d+)(?:\.\.(\d+))?")


@dataclass(frozen=True)
class Checkpoint:
    """One model of a series, not opened yet."""

    name: str
    place: str
    """What `pathsum.open` takes."""
    step: int | None
    tokens: int | None
    """Seen in training, where the checkpoint says so."""

    @property
    def order(self) -> tuple[int, str]:
        return (-1 if self.step is None else self.step, self.name)


def checkpoints(place: str) -> list[Checkpoint]:
    """The checkpoints of a run's folder, of a folder of model folders, or of `MODEL@{…}`, in the order of their steps.

    `hf:owner/name@step{0..143000..1000}` is every thousandth revision up to there, `MODEL@{a,b}` two of them; before
    the @ may also stand a folder, whose folders are meant. Nothing is opened, nothing is downloaded.

    Raises `StudyError` for a place with no checkpoints, or braces that say nothing.

    >>> [one.name for one in checkpoints("hf:owner/name@step{0..2000..1000}")]
    ['step0', 'step1000', 'step2000']
    """
    if (match := BRACES.fullmatch(place)) is not None:
        model, before = match["before"].split("@", 1)
        names = [f"{before}{word}{match['after']}" for word in _words(match["inside"], place)]
        where = [f"{model}@{name}" if model.startswith(hub.PREFIX) else str(Path(model) / name) for name in names]
        return [_checkpoint(name, spot) for name, spot in zip(names, where, strict=True)]
    folder = Path(place)
    if not folder.is_dir():
        raise StudyError(f"{place} is no folder of checkpoints; give a run's folder, or MODEL@{{a..b}}")
    inside = [each for each in sorted(folder.iterdir()) if each.is_dir() and _is_model(each)]
    found = sorted((_checkpoint(each.name, str(each)) for each in inside), key=lambda one: one.order)
    if _is_model(folder):
        found.append(_checkpoint(folder.resolve().name, place))
    if len(found) < 2:
        raise StudyError(f"{place} holds {len(found)} checkpoint(s), no series; a run's folder has step-… folders")
    return found


def elsewhere(one: Checkpoint) -> Checkpoint:
    """The same for a process in another folder: a place on the disk in full."""
    return one if one.place.startswith(hub.PREFIX) else replace(one, place=str(Path(one.place).resolve()))


def remove_weights(one: Checkpoint) -> None:
    """Removes the checkpoint's tensors from this disk: a folder's files of weights, or the hub's downloaded revision.

    The rest of a folder stays, its config and what it says of its training.
    """
    if one.place.startswith(hub.PREFIX):
        hub.forget(one.place)
        return
    for pattern in (*STORED, "*.safetensors", "pytorch_model*.bin", "*.gguf"):
        for file in Path(one.place).glob(pattern):
            file.unlink()


def _words(inside: str, place: str) -> list[str]:
    if (match := RANGE.fullmatch(inside)) is not None:
        first, last, step = int(match[1]), int(match[2]), int(match[3] or 1)
        if last < first or step < 1 or (last - first) // step >= MOST:
            raise StudyError(f"{place}: {{{inside}}} is no range; write {{first..last}} or {{first..last..step}}")
        return [str(number) for number in range(first, last + 1, step)]
    words = [word.strip() for word in inside.split(",")]
    if not all(words) or len(words) < 2:
        raise StudyError(f"{place}: {{{inside}}} names no checkpoints; write {{0..1000..100}} or {{a,b,c}}")
    return words


def _is_model(folder: Path) -> bool:
    return (folder / "config.json").is_file() or any(folder.glob("*.gguf"))


def _checkpoint(name: str, place: str) -> Checkpoint:
    """With the step and tokens its `training.json` says, or else the number its name ends in."""
    said = {} if place.startswith(hub.PREFIX) else _said(Path(place) / "training.json")
    number = re.search(r"(\d+)\D*$", name)
    step = said.get("step", int(number[1]) if number else None)
    return Checkpoint(name, place, step, said.get("tokens"))


def _said(file: Path) -> dict[str, int]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        return {name: found[name] for name in ("step", "tokens") if isinstance(found.get(name), int)}
    except (OSError, ValueError, AttributeError):
        return {}
