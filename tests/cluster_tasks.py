"""A task that leaves a trace, for workers of a test's cluster to import."""

import os
import time
from pathlib import Path

from pathsum.study.subject import Subject


def slow(subject: Subject, number: int, folder: str) -> tuple[int, int]:
    """Says in `folder` which process takes the number, and takes a while."""
    with (Path(folder) / "taken").open("a") as file:
        file.write(f"{number} {os.getpid()}\n")
    time.sleep(0.4)
    return number, subject.model.spec.n_layers


def refuses(subject: Subject) -> None:
    raise ValueError(f"no such thing in {subject.model.name}")
