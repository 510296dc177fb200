"""All readings of one subject, one after the other: what a report and a summary are made of."""

from collections.abc import Callable, Collection

from pathsum.errors import NotApplicable, StudyError, TextError
from pathsum.study.catalogue import BY_NAME, READINGS
from pathsum.study.reading import Reading
from pathsum.study.result import Result, manifest, read_one, report_options, table
from pathsum.study.subject import Subject
from pathsum.training.machine import give_back_freed_memory

Progress = Callable[[int, int, str], None]
"""Called with (readings done, readings in all, title of the one that starts now; "" after the last)."""


def run_readings(
    subject: Subject, progress: Progress | None = None, only: Collection[str] | None = None
) -> dict[str, Result]:
    """Every reading by name that is in a report, or those named in `only`, in the catalogue's order.

    A reading that makes no sense for this model keeps its place with an empty table, and its manifest says why under
    `not_applicable`. Raises `StudyError` for an unknown name, `TextError` for a text that is too short.

    >>> results = run_readings(Subject(pathsum.open("two-layer")))
    >>> results["composition"].frame.columns[:4]
    ['kind', 'source', 'destination', 'score']
    """
    chosen = _chosen(only)
    found: dict[str, Result] = {}
    # What is read off weights comes first: folded float64 weights and recorded runs are not in memory together.
    for done, reading in enumerate(sorted(chosen, key=_phase)):
        if _runs(reading):
            subject.forget("folded", "tables")
        if progress is not None:
            progress(done, len(chosen), reading.title)
        found[reading.name] = _read(reading, subject)
        give_back_freed_memory()
    if progress is not None:
        progress(len(chosen), len(chosen), "")
    return {reading.name: found[reading.name] for reading in chosen}


def _runs(reading: Reading) -> bool:
    return reading.module in ("on_tokens", "importance", "virtual")


def _phase(reading: Reading) -> int:
    """0: of weights alone; 1: of runs of its own, let go of at once; 2: of weights, then of runs; 3: of runs."""
    if not _runs(reading):
        return 0
    return 1 if reading.name == "reconstruction" else 2 if "weights" in reading.needs else 3


def _chosen(only: Collection[str] | None) -> list[Reading]:
    if only is None:
        return [reading for reading in READINGS if reading.in_report]
    if unknown := sorted(set(only) - set(BY_NAME)):
        raise StudyError(f"no reading {unknown[0]!r}; there are {', '.join(BY_NAME)}")
    return [reading for reading in READINGS if reading.name in only]


def _read(reading: Reading, subject: Subject) -> Result:
    reason = _no_room(reading, subject)
    if reason is None:
        try:
            return read_one(reading.name, subject, **report_options(reading.name, subject.model.spec))
        except NotApplicable as error:
            reason = str(error)
    return Result(reading, table(reading, []), manifest(subject, reading) | {"not_applicable": reason})


def _no_room(reading: Reading, subject: Subject) -> str | None:
    """Why repeated random tokens do not fit this model, where nobody asked for a block of a certain length."""
    if "random tokens" not in reading.needs or subject.block is not None:
        return None
    try:
        _ = subject.repeated_tokens
    except TextError as error:
        return str(error)
    return None
