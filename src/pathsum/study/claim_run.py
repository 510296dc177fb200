"""`run_claims`: trains what the claims need, measures it, and judges.

    OUT/models/…             runs of training, by a digest of recipe and text
    OUT/over-training/…      sweeps of their checkpoints
    OUT/measured/…           a model's numbers, by a digest of its weights

Everything there is used again: a run that was stopped goes on, and a full one uses what a quick one made.
"""

import datetime
import hashlib
import importlib.metadata
import json
import os
import platform
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import torch

from pathsum.study import claim_measures as measures
from pathsum.study.claim_models import BUILTIN, DEPTHS, FULL, QUICK, depth_experiment
from pathsum.study.claim_training import OVER_TRAINING, over_training
from pathsum.study.claims import CLAIMS, Claim, Verdict
from pathsum.study.estimates import Estimate, estimate, share
from pathsum.study.experiments import Experiment, Trained, trained
from pathsum.study.processes import in_processes
from pathsum.study.subject import Subject
from pathsum.study.sweep import sweep
from pathsum.training.corpus import read_corpus
from pathsum.weights.checkpoint import open_model

MEASURES_VERSION = 3
"""Of the numbers in `measured/`: raised where a measure changes, so that old ones are made again."""
SEQUENCES = 64
"""Contexts of text that checkpoints are read on."""
REAL = "real model"
SHARES_OF_SEEDS = ("induction_formed", "corner", "previous_token_alone")
"""Quantities that are 1 or 0 of a model."""
Progress = Callable[[str, int, int, str], None]
"""Called with (stage, done, in all, name of the one done last)."""


@dataclass(frozen=True)
class Judged:
    """A claim with what was found."""

    claim: Claim
    verdict: Verdict
    estimates: dict[tuple[str, str], Estimate]
    """By (experiment, quantity), of the claim's quantities."""


@dataclass(frozen=True)
class Claims:
    """All claims, judged; and every number they rest on."""

    judged: list[Judged]
    measurements: pl.DataFrame
    """A row a number: experiment, model, seed, quantity, tokens (null: of the trained model), value.

    Examples have a `note`, in words.
    """
    manifest: dict[str, Any]


@dataclass(frozen=True)
class Measured:
    """What to measure, and where its numbers are kept."""

    experiment: str
    kind: str
    place: str
    seed: int
    sources: tuple[str, ...] | None
    """The texts that it was trained on, for a measure that is of these."""
    over_training: Path | None = None


def run_claims(
    out: Path | str,
    full: bool = False,
    *,
    real: str | None = None,
    sources: Sequence[str | Path] = ("python",),
    processes: int | None = None,
    progress: Progress = lambda stage, done, every, name: None,
) -> Claims:
    """Trains, measures and judges, in the folder `out`; `full` is the run of many seeds, sizes and depths.

    `real`, a model to be opened, joins the claim about in-context learning. `sources` are the texts to train on.
    `processes` models at once, one thread each; all cores by default. `measurements` has columns `experiment`, `model`,
    `seed`, `quantity`, `tokens` [count], `value` and `note`; each claim says its quantities' units.

    Raises `TextError` for a source that is not there. Paper: every section with a claim; each names its own.

    >>> claims = pathsum.run_claims("claims")      # doctest: +SKIP
    >>> from pathsum.study.claims import CLAIMS    # what is judged stands before the run, which trains for minutes
    >>> print(CLAIMS[0].section, "|", CLAIMS[0].rule)
    The Path Expansion Trick | holds if every model's errors are at most 1e-10
    """
    out, processes = Path(out), processes or os.cpu_count() or 1
    experiments = FULL if full else QUICK
    models = trained(
        experiments, out / "models", sources, processes, lambda *at: progress("training", *at)
    )  # fmt: skip
    asked = [_asked(each, experiments, sources, out) for each in models]
    asked += [Measured(name, kind, name, 0, None) for name, kind in BUILTIN.items()]
    asked += [Measured(REAL, "real", real, 0, None)] if real is not None else []
    rows = list(_measured(asked, out / "measured", processes, lambda *at: progress("measuring", *at)))
    table = pl.DataFrame(rows, schema={
        "experiment": pl.String, "model": pl.String, "seed": pl.Int64, "quantity": pl.String, "tokens": pl.Int64,
        "value": pl.Float64, "note": pl.String,
    })  # fmt: skip
    estimates = _estimates(table) | _slopes(table)
    judged = [_judge(claim, estimates) for claim in CLAIMS]
    return Claims(judged, table, _manifest(models, full, sources, real))


def _judge(claim: Claim, estimates: dict[tuple[str, str], Estimate]) -> Judged:
    verdict = claim.judge(estimates) or "not testable here"
    own = {
        (experiment, quantity): one
        for (experiment, quantity), one in estimates.items()
        if quantity in claim.quantities and experiment.startswith(claim.models)
    }
    return Judged(claim, verdict, own)


# ---- measuring ----


def _asked(one: Trained, experiments: Sequence[Experiment], sources: Sequence[str | Path], out: Path) -> Measured:
    experiment = next(each for each in experiments if each.name == one.experiment)
    own = tuple(str(source) for source in sources) if experiment.kind == "zero layers" else None
    swept = out / "over-training" / f"{one.folder.name}-{MEASURES_VERSION}" if experiment.over_training else None
    return Measured(one.experiment, experiment.kind, str(one.folder), one.recipe.seed, own, swept)


def _measured(
    asked: list[Measured], kept: Path, processes: int, progress: Callable[[int, int, str], None]
) -> Iterator[dict[str, Any]]:
    """Every number as a row, made now or before."""
    kept.mkdir(parents=True, exist_ok=True)
    for done, (one, rows) in enumerate(in_processes(partial(_numbers, kept=kept), asked, processes), start=1):
        yield from rows
        progress(done, len(asked), one.experiment)


def _numbers(one: Measured, kept: Path) -> list[dict[str, Any]]:
    """The numbers of one model, from the file that has them or into it."""
    torch.set_num_threads(1)
    weights = open_model(one.place).digest()
    told = json.dumps([MEASURES_VERSION, one.experiment, one.kind, weights, one.sources])
    file = kept / f"{Path(one.place).name}-{hashlib.sha256(told.encode()).hexdigest()[:8]}.json"
    if not file.is_file():
        beside = file.with_suffix(".part")
        beside.write_text(json.dumps(_measure(one), indent=1) + "\n", encoding="utf-8")
        beside.replace(file)
    return json.loads(file.read_text(encoding="utf-8"))


def _measure(one: Measured) -> list[dict[str, Any]]:
    text = None if one.sources is None else "\n\n".join(read_corpus(one.sources).documents)
    subject = Subject(open_model(one.place), text)
    every = (measures.caused,) if one.kind == "real" else measures.MEASURES[one.kind]
    numbers = {name: value for measure in every for name, value in measure(subject).items()}
    rows: list[dict[str, Any]] = [{"quantity": name, "tokens": None, "value": value} for name, value in numbers.items()]
    if one.kind in measures.EXAMPLES and one.seed == 0:
        name, examples = measures.EXAMPLES[one.kind]
        rows += [{"quantity": name, "tokens": None, "value": value, "note": note} for note, value in examples(subject)]
    if one.over_training is not None:
        sweep(one.place, OVER_TRAINING, one.over_training, sequences=SEQUENCES)
        rows += over_training(one.over_training)
    head = {"experiment": one.experiment, "model": Path(one.place).name, "seed": one.seed, "note": None}
    return [head | row for row in rows]


# ---- judging ----


def _estimates(table: pl.DataFrame) -> dict[tuple[str, str], Estimate]:
    """Over seeds, of the trained models' numbers."""
    found = {}
    last = table.filter(pl.col("tokens").is_null() & pl.col("note").is_null())
    for (experiment, quantity), frame in last.group_by("experiment", "quantity", maintain_order=True):
        over_seeds = share if str(quantity) in SHARES_OF_SEEDS else estimate
        if (one := over_seeds(frame["value"].to_list())) is not None:
            found[str(experiment), str(quantity)] = one
    return found


def _slopes(table: pl.DataFrame) -> dict[tuple[str, str], Estimate]:
    """How much the share of virtual heads changes a layer: one slope a seed, then over seeds."""
    found = {}
    shares = table.filter((pl.col("quantity") == "virtual_share") & pl.col("tokens").is_null())
    for name, depths in DEPTHS.items():
        slopes = []
        for (_,), frame in shares.group_by("seed"):
            known = dict(frame.select("experiment", "value").iter_rows())
            points = [(layers, known.get(depth_experiment(layers, d_model))) for layers, d_model in depths]
            if None not in dict(points).values():
                slopes.append(statistics.linear_regression(*zip(*points, strict=True)).slope)  # type: ignore[arg-type]
        if (one := estimate(slopes)) is not None:
            found[name, "virtual_share_slope"] = one
    return found


def _manifest(models: list[Trained], full: bool, sources: Sequence[str | Path], real: str | None) -> dict[str, Any]:
    first = models[0].facts
    recipes = {one.experiment: one.recipe.to_dict() | {"seed": "0 …"} for one in models}
    return {
        "run": "full" if full else "quick", "texts": [Path(source).name for source in sources],
        "text_sha256": first["text"]["sha256"], "real_model": _named(real), "recipes": recipes,
        "models": sorted({one.folder.name for one in models}),
        "training_seconds": round(sum(one.facts["seconds"] for one in models), 1), "cores": os.cpu_count(),
        "versions": {name: importlib.metadata.version(name) for name in ("pathsum", "torch", "polars")},
        "python": platform.python_version(), "date": datetime.date.today().isoformat(),
    }  # fmt: skip


def _named(real: str | None) -> str | None:
    """A model's name, of a file or folder without the place it lies at."""
    return Path(real).name if real is not None and Path(real).exists() else real
