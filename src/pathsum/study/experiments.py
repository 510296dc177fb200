"""The models that the claims are measured on: which are trained, and a cache of them by what decides their weights.

    MODELS/two-layer-small-s3-1f0c2a9b3d4e/    a run's folder, as `pathsum train` writes it

The name ends in a digest of recipe and text: the same model is trained once, and one that was stopped goes on.
"""

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pathsum.study.processes import in_processes
from pathsum.training.corpus import read_corpus
from pathsum.training.recipe import Recipe, recipe
from pathsum.training.run_folder import Settings, finished

SETTINGS = Settings(threads=1)
"""One thread a process: the same weights whatever the machine's cores, and several models at once."""
Progress = Callable[[int, int, str], None]
"""Called with (models ready, models in all, name of the one that is ready now)."""


@dataclass(frozen=True)
class Experiment:
    """One recipe, trained from several seeds."""

    name: str
    base: str
    """The recipe that it changes."""
    kind: str
    """What is measured on its models: a key of `claim_measures.MEASURES`."""
    changes: tuple[tuple[str, Any], ...] = ()
    seeds: int = 1
    over_training: bool = False
    """Its checkpoints are kept and read."""

    @property
    def recipes(self) -> list[Recipe]:
        return [recipe(self.base, **dict(self.changes), seed=seed) for seed in range(self.seeds)]


@dataclass(frozen=True)
class Trained:
    """A model of an experiment, as a run's folder."""

    experiment: str
    recipe: Recipe
    folder: Path

    @property
    def facts(self) -> dict[str, Any]:
        """What its `training.json` says."""
        return finished(self.folder) or {}


@dataclass(frozen=True)
class _Training:
    recipe: Recipe
    folder: Path
    sources: tuple[str | Path, ...]
    over_training: bool


def trained(
    experiments: Sequence[Experiment],
    models: Path,
    sources: Sequence[str | Path] = ("python",),
    processes: int = 1,
    progress: Progress = lambda done, every, name: None,
) -> list[Trained]:
    """Every model of the experiments, from the folder `models` or trained into it, `processes` at once.

    Raises `TrainingError` and `TextError` as training does.
    """
    text = read_corpus(sources).digest
    every = [Trained(one.name, each, models / folder_name(each, text)) for one in experiments for each in one.recipes]
    kept = {each.folder for each in every if _of(each.experiment, experiments).over_training}
    left = {each.folder: each.recipe for each in every if finished(each.folder) is None}
    done = len({each.folder for each in every}) - len(left)
    models.mkdir(parents=True, exist_ok=True)
    # The longest come first, so that none is left alone at the end.
    longest_first = sorted(left.items(), key=lambda one: -_operations(one[1]))
    asked = [_Training(each, folder, tuple(sources), folder in kept) for folder, each in longest_first]
    for at, (one, _) in enumerate(in_processes(_train, asked, processes), start=done + 1):
        progress(at, done + len(left), one.folder.name)
    return every


def folder_name(one: Recipe, text: str) -> str:
    """`two-layer-small-s3-1f0c2a9b3d4e`: the recipe, its seed, and a digest of all that decides the weights."""
    told = {name: value for name, value in _told(one).items() if name != "name"}
    plain = json.dumps({"recipe": told, "text": text, "settings": _told(SETTINGS)}, sort_keys=True)
    return f"{one.name}-s{one.seed}-{hashlib.sha256(plain.encode()).hexdigest()[:12]}"


def _told(given: Recipe | Settings) -> dict[str, Any]:
    """What differs from the defaults: a field that is new does not forget what was trained without it."""
    every = {field.name: (getattr(given, field.name), field.default) for field in dataclasses.fields(given)}
    return {name: value for name, (value, default) in every.items() if value != default}


def _of(name: str, experiments: Iterable[Experiment]) -> Experiment:
    return next(one for one in experiments if one.name == name)


def _operations(one: Recipe) -> int:
    """In proportion to what training it takes."""
    layer = 4 * one.heads * one.d_head + 2 * one.d_mlp + one.heads * one.context
    return one.steps * one.batch * one.context * one.d_model * (one.layers * layer + 2 * one.vocab)


def _train(asked: _Training) -> None:
    from pathsum.training.train import train

    begun = (asked.folder / "unfinished" / "run.json").is_file()
    train(asked.recipe, asked.folder, asked.sources, SETTINGS, resume=begun, quiet=True)
    if not asked.over_training:
        for checkpoint in asked.folder.glob("step-*"):
            shutil.rmtree(checkpoint)
