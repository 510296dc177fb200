"""`sweep`: readings of every checkpoint of a series, streamed into tables over training.

    OUT/sweep.json                          what was asked, and of each checkpoint its digest
    OUT/composition/step-000064.parquet     the reading's table at that checkpoint, with its `step` and `tokens`

1. One checkpoint is in memory at a time (in each process): opened, read, let go of.
2. A table is written beside its place and renamed in. What is there is not made again: a sweep that was stopped goes
   on where it was.
3. `series_table(OUT, "composition")` is all of a reading's tables as one.
"""

import hashlib
import importlib.metadata
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from pathsum.errors import NotApplicable, StudyError
from pathsum.study.catalogue import BY_NAME
from pathsum.study.cluster import connected, result_of
from pathsum.study.processes import in_processes
from pathsum.study.result import read_one, report_options
from pathsum.study.series import Checkpoint, checkpoints, elsewhere, remove_weights
from pathsum.study.subject import Subject, standard_library_text
from pathsum.weights.checkpoint import open_model

MANIFEST = "sweep.json"
Progress = Callable[[int, int, str], None]
"""Called with (checkpoints done, checkpoints in all, name of the one done last)."""


@dataclass(frozen=True)
class Asked:
    """What is read of every checkpoint, and on what."""

    readings: tuple[str, ...]
    text: str | None = None
    text_name: str | None = None
    seed: int = 0
    sequences: int | None = None
    context: int | None = None

    def subject(self, place: str) -> Subject:
        """A checkpoint to be read so."""
        return Subject(
            open_model(place), self.text, self.text_name,
            seed=self.seed, sequences=self.sequences, context=self.context,
        )  # fmt: skip

    def facts(self) -> dict[str, Any]:
        """For the manifest; a text by its name and its sha256."""
        text = "standard library" if self.text is None else self.text_name or "given"
        read = standard_library_text() if self.text is None else self.text
        digest = hashlib.sha256(read.encode()).hexdigest()
        return {
            "text": text,
            "text_sha256": digest,
            "seed": self.seed,
            "sequences": self.sequences,
            "context": self.context,
        }


@dataclass(frozen=True)
class Read:
    """What was found at one checkpoint."""

    digest: str
    frames: dict[str, pl.DataFrame]
    manifests: dict[str, dict[str, Any]]
    left_out: dict[str, str]
    """By reading, why it makes no sense for this model."""


def sweep(
    place: str,
    readings: Sequence[str],
    out: Path | str,
    *,
    text: str | None = None,
    text_name: str | None = None,
    seed: int = 0,
    sequences: int | None = None,
    context: int | None = None,
    processes: int = 1,
    cluster: str | None = None,
    remove: bool = False,
    progress: Progress = lambda done, every, name: None,
) -> dict[str, Any]:
    """Reads every checkpoint of a series into the folder `out`, and returns what its `sweep.json` says.

    `place`: a run's folder, a folder of model folders, or `MODEL@{a..b}` (`series.checkpoints`). `processes` at once
    on this machine, or the workers of a Dask scheduler at the address `cluster`; each has one checkpoint in memory.
    Readings of a text read `text` (None: sources of the standard library), called `text_name` in the manifest, in
    `sequences` contexts of `context` tokens. `remove` deletes a checkpoint's weights once its tables are written.
    Checkpoints of equal weights are read each for itself, and said: `duplicates` in the manifest.

    Columns and units of the tables are the readings' own, with `checkpoint`, `step` and `tokens` [count] in front.
    Raises `StudyError` for an unknown reading, a place without a series, or an `out` that is of another sweep.
    Not in the paper.

    >>> series = "checkpoints/two-layer-small@{step-000256,step-001024}"
    >>> manifest = pathsum.sweep(series, ["composition"], "over-training")
    >>> print([one["step"] for one in manifest["checkpoints"]], manifest["duplicates"])
    [256, 1024] []
    """
    asked = Asked(tuple(readings), text, text_name, seed, sequences, context)
    series, out = checkpoints(place), Path(out)
    manifest = _begun(out, place, asked, series)
    left = [one for one in series if not _is_done(out, one, manifest)]
    if processes < 1:
        raise StudyError(f"processes is {processes}, must be at least 1")
    for done, (one, found) in enumerate(_each(left, asked, processes, cluster), start=len(series) - len(left) + 1):
        _write(out, one, found, manifest)
        if remove:
            remove_weights(one)
        progress(done, len(series), one.name)
    return manifest


def series_table(out: Path | str, reading: str) -> pl.DataFrame:
    """A reading over training: the rows of all its checkpoints, each with `checkpoint`, `step` and `tokens`.

    The columns are the reading's own, `step` and `tokens` are counts. Raises `StudyError` where the sweep has no such
    reading. Not in the paper.

    >>> series = "checkpoints/two-layer-small@{step-000256,step-001024}"
    >>> _ = pathsum.sweep(series, ["composition"], "over-training")
    >>> pair = pathsum.series_table("over-training", "composition").filter(kind="K", source="L0H0", destination="L1H1")
    >>> print([(row["step"], round(row["effect"], 3)) for row in pair.rows(named=True)])
    [(256, -0.003), (1024, 0.057)]
    """
    order = [one["name"] for one in sweep_manifest(out)["checkpoints"]]
    files = [Path(out) / reading / f"{name}.parquet" for name in order]
    found = [pl.read_parquet(file) for file in files if file.is_file()]
    if not found:
        raise StudyError(f"{out} has no tables of the reading {reading!r}")
    return pl.concat(found, how="diagonal_relaxed")


def sweep_manifest(out: Path | str) -> dict[str, Any]:
    """What the folder's `sweep.json` says. Raises `StudyError` where there is none."""
    try:
        return json.loads((Path(out) / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StudyError(f"{out} holds no sweep (no readable {MANIFEST}); pass the folder of one") from error


# ---- one checkpoint ----


def read_checkpoint(one: Checkpoint, asked: Asked) -> Read:
    """All that is asked of one checkpoint."""
    subject = asked.subject(one.place)
    frames, manifests, left_out = {}, {}, {}
    for name in asked.readings:
        try:
            found = read_one(name, subject, **report_options(name, subject.model.spec))
        except NotApplicable as error:
            left_out[name] = str(error)
            continue
        where = [pl.lit(one.name).alias("checkpoint"), pl.lit(one.step, pl.Int64).alias("step")]
        where += [pl.lit(one.tokens, pl.Int64).alias("tokens")]
        frames[name], manifests[name] = found.frame.select(*where, pl.all()), found.manifest
    return Read(subject.digest, frames, manifests, left_out)


def _each(
    series: list[Checkpoint], asked: Asked, processes: int, cluster: str | None
) -> Iterator[tuple[Checkpoint, Read]]:
    """Each checkpoint with what was found, in the order in which they are done."""
    if cluster is not None:
        with connected(cluster) as client:
            futures = {one: client.submit(read_checkpoint, elsewhere(one), asked, pure=False) for one in series}
            yield from ((one, result_of(futures.pop(one))) for one in series)
        return
    yield from in_processes(partial(read_checkpoint, asked=asked), series, processes)


# ---- the folder ----


def _begun(out: Path, place: str, asked: Asked, series: list[Checkpoint]) -> dict[str, Any]:
    """The manifest of this sweep, begun now or before."""
    if unknown := [name for name in asked.readings if name not in BY_NAME]:
        raise StudyError(f"no reading {unknown[0]!r}; there are {', '.join(BY_NAME)}")
    if not asked.readings:
        raise StudyError("no reading was asked for; name some, such as composition and induction")
    fresh: dict[str, Any] = {
        "series": place, **asked.facts(), "readings": list(asked.readings),
        "checkpoints": [{"name": one.name, "step": one.step, "tokens": one.tokens} for one in series],
        "duplicates": [], "manifests": {}, "not_applicable": {}, "versions": _versions(),
    }  # fmt: skip
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return fresh
    begun = sweep_manifest(out)
    for name in ("series", "text", "text_sha256", "seed", "sequences", "context"):
        if begun.get(name) != fresh[name]:
            raise StudyError(
                f"{out} was begun with {name} {begun.get(name)!r}, not {fresh[name]!r}; pass another folder"
            )
    read = {one["name"]: one for one in begun["checkpoints"]}
    fresh["checkpoints"] = [read.get(one["name"], one) for one in fresh["checkpoints"]]
    fresh["readings"] = list(dict.fromkeys([*begun["readings"], *asked.readings]))
    return {**begun, **{name: fresh[name] for name in ("checkpoints", "readings")}, "asked": list(asked.readings)}


def _is_done(out: Path, one: Checkpoint, manifest: dict[str, Any]) -> bool:
    asked = manifest.get("asked", manifest["readings"])
    left_out = manifest["not_applicable"].get(one.name, {})
    return all(name in left_out or (out / name / f"{one.name}.parquet").is_file() for name in asked)


def _write(out: Path, one: Checkpoint, found: Read, manifest: dict[str, Any]) -> None:
    for name, frame in found.frames.items():
        (out / name).mkdir(parents=True, exist_ok=True)
        beside = out / name / f".{one.name}.part"
        frame.write_parquet(beside)
        beside.replace(out / name / f"{one.name}.parquet")
        manifest["manifests"].setdefault(name, found.manifests[name])
    if found.left_out:
        manifest["not_applicable"][one.name] = found.left_out
    for known in manifest["checkpoints"]:
        if known["name"] == one.name:
            known["weights_sha256"] = found.digest
    manifest["duplicates"] = _duplicates(manifest["checkpoints"])
    out.mkdir(parents=True, exist_ok=True)
    beside = out / f".{MANIFEST}.part"
    plain = {name: value for name, value in manifest.items() if name != "asked"}
    beside.write_text(json.dumps(plain, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    beside.replace(out / MANIFEST)


def _duplicates(known: list[dict[str, Any]]) -> list[list[str]]:
    """Names of checkpoints whose weights are the same."""
    by_digest: dict[str, list[str]] = {}
    for one in known:
        if "weights_sha256" in one:
            by_digest.setdefault(one["weights_sha256"], []).append(one["name"])
    return [names for names in by_digest.values() if len(names) > 1]


def _versions() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in ("pathsum", "torch", "polars")}
