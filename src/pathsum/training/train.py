"""Trains a recipe: `train(recipe("two-layer-small"), Path("out"))`.

1. The text is tokenized into the run's folder (`run_folder`).
2. Every step's batch is a function of seed and step (`batches`); the loss comes from the one forward pass.
3. A hundred times a run the model is measured and its state saved; at log-spaced steps it is written as a checkpoint.
4. The trained model is written at the folder's top, and what resuming needed is removed.
"""

import logging
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor
from torch.optim import Optimizer

from pathsum.errors import TrainingError
from pathsum.training import run_folder
from pathsum.training.batches import batch_at, even_windows
from pathsum.training.machine import keep_freed_memory
from pathsum.training.measure import INDUCTION, best_head, induction_text, validation_loss
from pathsum.training.optimizers import optimizers_of, set_rates
from pathsum.training.recipe import Recipe
from pathsum.training.run_folder import Run, Settings
from pathsum.training.state import Progress, load_state, save_state
from pathsum.training.trainee import Trainee
from pathsum.training.watch import Watch
from pathsum.weights.saving import save

try:
    from lightning_fabric import Fabric
except ImportError as error:
    raise TrainingError("training needs Lightning Fabric: pip install 'pathsum[train]'") from error

PRECISIONS = ("bf16-mixed", "32-true")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
MEASUREMENTS = 100
"""Times a run that the model is measured and the state saved: a killed run loses at most 1 % of its work."""
ONE_PROCESS = Settings()
WINDOWS, LAST_WINDOWS = 16, 256
"""Stretches of held-out text in a measurement, and in the last one."""


def train(
    recipe: Recipe,
    out: Path,
    sources: Sequence[str | Path] = ("python",),
    settings: Settings = ONE_PROCESS,
    resume: bool = False,
    quiet: bool = False,
    vocabulary: Path | None = None,
) -> dict[str, Any]:
    """Trains a model into the folder `out` and returns what its `training.json` says.

    `vocabulary` is a tokenizer's file or folder; None trains one on the text.

    The same recipe, text and settings give the same weights, bit for bit, also when a run was killed and resumed.
    Raises `TrainingError` for a folder that is in use or a resume that does not fit, `TextError` for unusable text.
    """
    _check(recipe, settings)
    fabric = _fabric(settings)
    prepare = run_folder.resume if resume else run_folder.start
    with Console(stderr=True, quiet=quiet).status("reading the text"):
        run = prepare(recipe, settings, out, sources, vocabulary)
    if (facts := run_folder.finished(out)) is not None:
        return facts
    # Bound, not passed: Fabric copies what it passes on, and refuses to copy frozen dataclasses.
    return fabric.launch(partial(_process, run=run, quiet=quiet))


def _fabric(settings: Settings) -> Fabric:
    """The devices to train on, before anything is written.

    Raises `TrainingError` for an accelerator that is unknown or not there.
    """
    # Fabric's own notices would tear the progress bar apart.
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    try:
        return Fabric(
            accelerator=settings.accelerator,
            devices=settings.devices,
            precision=settings.precision,  # type: ignore[arg-type]
            strategy="ddp_spawn" if settings.devices > 1 else "auto",
        )
    except (ValueError, RuntimeError) as error:
        raise TrainingError(f"accelerator {settings.accelerator!r} cannot be used here: {error}") from error


def checkpoint_steps(steps: int) -> list[int]:
    """Log-spaced steps after which a checkpoint is written: doublings up to 64, then four a doubling.

    >>> checkpoint_steps(100)
    [1, 2, 4, 8, 16, 32, 64, 76, 91]
    """
    doublings = [2**k for k in range(6)]
    quarters = [round(2 ** (k / 4)) for k in range(24, 24 + 4 * max(0, steps.bit_length() - 6) + 1)]
    return [step for step in doublings + quarters if step < steps]


@dataclass(frozen=True)
class _Worker:
    """One process of a run."""

    fabric: Fabric
    run: Run
    trainee: Trainee
    loss: Any
    """The trainee as Fabric wraps it: calling it gives the loss, in the run's precision, over all devices."""
    optimizers: list[Optimizer]
    watch: Watch
    windows: Tensor
    repeated: Tensor


def _process(fabric: Fabric, run: Run, quiet: bool) -> dict[str, Any]:
    """What each process of a run does; the first one's facts are the run's."""
    keep_freed_memory()
    with _arithmetic(run.settings.threads):
        trainee = Trainee(run.recipe)
        optimizers = optimizers_of(trainee)
        loss, *_ = fabric.setup(trainee, *optimizers)
        progress = load_state(run.state, trainee, optimizers)
        console = Console(stderr=True, quiet=quiet or not fabric.is_global_zero)
        watch = Watch(run.recipe, progress.step, console)
        windows = even_windows(run.tokens("validation"), run.recipe.context, WINDOWS)
        repeated = induction_text(run.recipe.spec())
        worker = _Worker(fabric, run, trainee, loss, optimizers, watch, *map(fabric.to_device, (windows, repeated)))
        with watch:
            _steps(worker, progress)
        facts = _finish(worker, progress) if fabric.is_global_zero else {}
    fabric.barrier()
    return facts


def _steps(worker: _Worker, progress: Progress) -> None:
    """All steps that are left."""
    recipe, tokens = worker.run.recipe, worker.run.tokens("train")
    every, checkpoints = max(1, recipe.steps // MEASUREMENTS), set(checkpoint_steps(recipe.steps))
    losses, since, steps_since = torch.zeros((), device=worker.fabric.device), time.perf_counter(), 0
    while progress.step < recipe.steps:
        losses += _step(worker, tokens, progress.step)
        progress.step, steps_since = progress.step + 1, steps_since + 1
        worker.watch.step(progress.step)
        if progress.step in checkpoints and worker.fabric.is_global_zero:
            _checkpoint(worker, progress.step)
        if progress.step % every == 0 or progress.step == recipe.steps:
            seconds, since = time.perf_counter() - since, time.perf_counter()
            progress.seconds += seconds
            loss = worker.fabric.all_reduce(losses / steps_since)
            _measure(worker, progress, loss, steps_since / seconds)
            losses, steps_since = torch.zeros_like(losses), 0


def _step(worker: _Worker, tokens: Any, step: int) -> Tensor:
    """One step of training; returns the loss of this process's share of the batch."""
    recipe, fabric = worker.run.recipe, worker.fabric
    rows = fabric.to_device(batch_at(tokens, recipe, step)[fabric.global_rank :: fabric.world_size])
    parts, total = rows.chunk(worker.run.settings.accumulate), torch.zeros((), device=rows.device)
    for at, part in enumerate(parts, start=1):
        # Gradients of all devices are added up once, with the last part.
        with fabric.no_backward_sync(worker.loss, enabled=at < len(parts)):
            loss = worker.loss(part[:, :-1], part[:, 1:]) / len(parts)
            fabric.backward(loss)
        total += loss.detach()
    torch.nn.utils.clip_grad_norm_(worker.trainee.parameters(), recipe.clip)
    set_rates(worker.optimizers, recipe, step)
    for optimizer in worker.optimizers:
        optimizer.step()
        optimizer.zero_grad()
    return total


def _measure(worker: _Worker, progress: Progress, loss: Any, steps_a_second: float) -> None:
    """Adds a row to the curve, says when induction appeared, and saves the state (the first process does)."""
    if not worker.fabric.is_global_zero:
        return
    recipe = worker.run.recipe
    a_step = recipe.batch * recipe.context
    weights = worker.trainee.weights()
    with worker.fabric.autocast():
        validation = validation_loss(weights, worker.windows)
        best = best_head(weights, worker.repeated)
    row: dict[str, Any] = {
        "step": progress.step,
        "tokens": progress.step * a_step,
        "loss": float(loss),
        "validation_loss": validation,
    }
    row |= {"head": best and best.name, "prefix_matching": best and best.prefix_matching}
    progress.curve.append(row)
    worker.watch.measured(row, steps_a_second * a_step)
    if best and best.prefix_matching >= INDUCTION and progress.induction is None:
        found = ("step", "tokens", "head", "prefix_matching")
        progress.induction = {**{name: row[name] for name in found}, "threshold": INDUCTION}
        worker.watch.induction(progress.induction)
    save_state(worker.run.state, worker.trainee, worker.optimizers, progress)


def _finish(worker: _Worker, progress: Progress) -> dict[str, Any]:
    """Writes the trained model and removes what resuming needed."""
    run = worker.run
    windows = even_windows(run.tokens("validation"), run.recipe.context, LAST_WINDOWS)
    with worker.fabric.autocast():
        validation = validation_loss(worker.trainee.weights(), worker.fabric.to_device(windows))
    last = progress.curve[-1]
    measured = {name: last[name] for name in ("step", "tokens", "loss", "head", "prefix_matching")}
    facts = measured | {"validation_loss": validation, "induction": progress.induction}
    _write(worker, run.out, facts | {"seconds": round(progress.seconds, 1), "curve": progress.curve})
    # Renamed first: a process killed while it deletes must not leave half of what resuming needs.
    shutil.rmtree(run.unfinished.rename(run.out / "finished"))
    return run_folder.read_json(run.out / "training.json") or {}


def _checkpoint(worker: _Worker, step: int) -> None:
    recipe = worker.run.recipe
    facts = {"step": step, "tokens": step * recipe.batch * recipe.context}
    _write(worker, worker.run.out / f"step-{step:06d}", facts)


def _write(worker: _Worker, folder: Path, facts: dict[str, Any]) -> None:
    run = worker.run
    weights = worker.trainee.weights().map(lambda tensor: tensor.detach().cpu().to(DTYPES[run.settings.weights_dtype]))
    save(folder, weights, run.tokenizer(), {**facts, **run.facts()})


@contextmanager
def _arithmetic(threads: int) -> Iterator[None]:
    """Threads as asked, and attention weights too small to matter taken as zero (they are slow to compute with)."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(before)


def _check(recipe: Recipe, settings: Settings) -> None:
    for name, value, known in (
        ("precision", settings.precision, PRECISIONS),
        ("weights dtype", settings.weights_dtype, tuple(DTYPES)),
    ):
        if value not in known:
            raise TrainingError(f"{name} {value!r} is not one of {', '.join(known)}")
    if settings.devices < 1 or settings.threads < 1:
        raise TrainingError(f"devices ({settings.devices}) and threads ({settings.threads}) must be at least 1")
    if settings.accumulate < 1 or recipe.batch % (settings.devices * settings.accumulate):
        raise TrainingError(
            f"a batch of {recipe.batch} does not divide by {settings.devices} devices × {settings.accumulate} parts; "
            "pass --batch"
        )
