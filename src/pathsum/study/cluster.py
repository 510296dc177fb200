"""Work cut into tasks that run in this process, or on a Dask cluster whose address is given.

1. A task is a function of a `Subject` and of its own arguments, such as a layer.
2. Here, tasks run one after the other. On a cluster each worker opens the checkpoint itself, from the same path, and
   keeps what tasks share (`Subject`); only arguments and results travel.
3. Results come in the order of the tasks. The tasks of a worker that is lost run again on others.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pathsum.errors import StudyError
from pathsum.study.subject import Subject
from pathsum.weights.checkpoint import BUILTIN, open_model
from pathsum.weights.model import Model
from pathsum.weights.spec import Spec

if TYPE_CHECKING:
    from distributed import Client, Future

TIMEOUT = 10
"""Seconds to wait for a scheduler."""


@dataclass(frozen=True)
class Source:
    """Where a worker finds a model, and what it must find there."""

    place: str
    sizes: tuple[int, ...]
    """Of its files, in bytes."""

    @classmethod
    def of(cls, model: Model) -> "Source":
        """Raises `StudyError` for a model that is only in this process's memory."""
        if not model.files:
            raise StudyError(f"{model.name} is in memory only; workers of a cluster open a checkpoint by its path")
        sizes = tuple(file.stat().st_size for file in model.files)
        if model.path is not None and model.path.parent == BUILTIN:
            return cls(model.path.name, sizes)
        place = model.files[0] if len(model.files) == 1 or model.path is None else model.path
        return cls(str(place.resolve()), sizes)


def run_tasks(
    task: Callable[..., Any], subject: Subject, arguments: Sequence[tuple[Any, ...]], cluster: str | None = None
) -> Iterator[Any]:
    """`task(subject, *one)` for each of the arguments, in their order; `cluster` is a Dask scheduler's address.

    On a cluster `task` is a module's function, and sees of the subject its model and its seed.
    Raises `StudyError` where the cluster cannot be reached, has no workers, or opens another model; and what a task
    raises.
    """
    if cluster is None:
        yield from (task(subject, *one) for one in arguments)
        return
    source = Source.of(subject.model)
    with connected(cluster) as client:
        shared = (task, source, subject.model.spec, subject.seed)
        futures = [client.submit(_on_worker, *shared, *one, pure=False) for one in arguments]
        while futures:
            yield result_of(futures.pop(0))


def worker_count(cluster: str) -> int:
    """How many threads of workers a cluster has."""
    with connected(cluster) as client:
        threads: Any = client.nthreads()
        return sum(threads.values())


@contextmanager
def connected(cluster: str) -> Iterator["Client"]:
    """A client of the scheduler at this address. Raises `StudyError`."""
    try:
        import distributed
    except ImportError as error:
        raise StudyError("a cluster needs Dask: pip install 'pathsum[cluster]', here and where workers run") from error
    try:
        client = distributed.Client(cluster, timeout=TIMEOUT, set_as_default=False)
    except (OSError, ValueError) as error:
        raise StudyError(
            f"no Dask scheduler answers at {cluster}; start one with `dask scheduler` and pass the address it prints"
        ) from error
    with client:
        if not client.nthreads():
            raise StudyError(f"the cluster at {cluster} has no workers; start some with `dask worker {cluster}`")
        yield client


def result_of(future: "Future") -> Any:
    """What a task on the cluster returns. Raises `StudyError` where every worker that tried it was lost."""
    from distributed import KilledWorker

    try:
        return future.result()
    except KilledWorker as error:
        raise StudyError(
            f"one task lost all workers that tried it, {error.last_worker.address} last: do they have the memory?"
        ) from error


def _on_worker(task: Callable[..., Any], source: Source, spec: Spec, seed: int, *arguments: Any) -> Any:
    subject = _opened(source, seed)
    if subject.model.spec != spec:
        raise StudyError(f"{source.place} is another model on a worker than here; save it as a folder and open that")
    return task(subject, *arguments)


@lru_cache(maxsize=1)
def _opened(source: Source, seed: int) -> Subject:
    """The worker's own subject, kept between tasks."""
    model = open_model(source.place)
    found = tuple(file.stat().st_size for file in model.files)
    if found != source.sizes:
        raise StudyError(f"{source.place} has files of {found} bytes on a worker, of {source.sizes} here")
    return Subject(model, seed=seed)
