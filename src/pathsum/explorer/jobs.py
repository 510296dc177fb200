"""Long answers: a process for each job, one at a time per model, the others in a queue.

1. A job is a model and what is asked of it; what is on disk already is not asked again.
2. A thread reads what the process says: progress, answers (put on disk at once), or why it failed.
3. Cancelling kills the process. Closing kills all of them and empties the queues.
"""

import contextlib
import json
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from subprocess import PIPE
from typing import IO, Any, Literal, cast

from pathsum.explorer.ask import Ask
from pathsum.explorer.cache import Cache
from pathsum.explorer.opened import Opened
from pathsum.explorer.refused import Refused

WORKER = [sys.executable, "-m", "pathsum.explorer.worker"]
State = Literal["queued", "running", "done", "failed", "cancelled"]
WAITING = 16
"""Jobs of one model in its queue."""
REMEMBERED = 200
"""Jobs that are over and can still be asked for."""


@dataclass
class Job:
    """One model, what is asked of it by digest, and how far it is."""

    opened: Opened
    asks: dict[str, Ask]
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    state: State = "queued"
    done: int = 0
    stage: str = ""
    error: str = ""
    detail: str = ""
    begun: float | None = None
    ended: float | None = None
    process: subprocess.Popen[str] | None = None

    @property
    def is_over(self) -> bool:
        return self.state not in ("queued", "running")

    @property
    def elapsed(self) -> float:
        """Seconds since its process started."""
        return 0.0 if self.begun is None else (self.ended or time.monotonic()) - self.begun


class Jobs:
    """All jobs of a server."""

    def __init__(self, cache: Cache):
        self.cache = cache
        self._lock, self._jobs, self._closed = threading.Lock(), dict[str, Job](), False

    def answers(self, opened: Opened, asks: list[Ask]) -> dict[str, dict[str, Any]] | None:
        """All answers by reading's name, from disk; None where one is not there."""
        found = {ask.reading: self.cache.get(ask.digest(opened.model, opened.digest)) for ask in asks}
        return None if any(one is None for one in found.values()) else found  # type: ignore[return-value]

    def start(self, opened: Opened, asks: list[Ask]) -> Job:
        """A job for these, or the one that is at them already; over at once where all is on disk.

        Raises `Refused` (429) where too many wait or the server is closing.
        """
        every = {ask.digest(opened.model, opened.digest): ask for ask in asks}
        missing = {digest: ask for digest, ask in every.items() if self.cache.get(digest) is None}
        with self._lock:
            mine = [job for job in self._jobs.values() if job.opened is opened and not job.is_over]
            if same := next((job for job in mine if missing and set(missing) <= set(job.asks)), None):
                return same
            if self._closed or len(mine) > WAITING:
                raise Refused(429, "Busy", f"{len(mine)} jobs of {opened.name} wait already; cancel some, or try later")
            job = Job(opened, every, state="queued" if missing else "done")
            self._jobs[job.id] = job
            self._forget()
        self._next(opened)
        return job

    def get(self, name: str) -> Job:
        """Raises `Refused` (404)."""
        job = self._jobs.get(name)
        if job is None:
            raise Refused(404, "NoSuchJob", f"there is no job {name[:40]!r}; jobs that are long over are forgotten")
        return job

    def every(self) -> list[Job]:
        with self._lock:
            return list(self._jobs.values())

    def before(self, job: Job) -> int:
        """How many go first."""
        mine = [one for one in self.every() if one.opened is job.opened and not one.is_over]
        return mine.index(job) if job in mine else 0

    def cancel(self, job: Job) -> None:
        """Take it out of the queue, or kill its process; nothing happens to one that is over."""
        with self._lock:
            if job.is_over:
                return
            job.state, job.ended = "cancelled", time.monotonic()
            if job.process is not None:
                job.process.kill()
        self._next(job.opened)

    def close(self) -> None:
        """Kill every process, and take no more jobs."""
        with self._lock:
            self._closed = True
        for job in self.every():
            self.cancel(job)
            if job.process is not None:
                job.process.wait()

    def _forget(self) -> None:
        over = [name for name, job in self._jobs.items() if job.is_over]
        for name in over[:-REMEMBERED]:
            del self._jobs[name]

    def _next(self, opened: Opened) -> None:
        """Start the first of the model's queue, where none of its jobs runs."""
        with self._lock:
            mine = [job for job in self._jobs.values() if job.opened is opened and not job.is_over]
            if self._closed or not mine or any(job.state == "running" for job in mine):
                return
            job = mine[0]
            job.state, job.begun = "running", time.monotonic()
            try:
                # A session of its own: Ctrl-C in the terminal is the server's, which ends its workers.
                job.process = subprocess.Popen(
                    WORKER, stdin=PIPE, stdout=PIPE, text=True, encoding="utf-8", start_new_session=True
                )
            except OSError as error:
                job.state, job.error, job.detail = "failed", "WorkerEnded", f"no process could be started: {error}"
                job.ended = time.monotonic()
                return
        threading.Thread(target=self._follow, args=(job, job.process), daemon=True).start()

    def _follow(self, job: Job, process: subprocess.Popen[str]) -> None:
        """Until the process ends; then the next one's turn."""
        missing = {digest: ask for digest, ask in job.asks.items() if self.cache.get(digest) is None}
        wanted = {"place": job.opened.place, "asks": {digest: ask.model_dump() for digest, ask in missing.items()}}
        told, said = cast(IO[str], process.stdin), cast(IO[str], process.stdout)
        try:
            told.write(json.dumps(wanted) + "\n")
            told.flush()
            for line in said:
                self._heard(job, json.loads(line), len(job.asks) - len(missing))
        except (OSError, ValueError) as error:
            self._end(job, "failed", type(error).__name__, str(error))
        finally:
            process.kill()
            code = process.wait()
            with contextlib.suppress(OSError):
                said.close()
                told.close()
        self._end(job, *self._outcome(job, code))
        self._next(job.opened)

    def _heard(self, job: Job, message: Mapping[str, Any], before: int) -> None:
        if "progress" in message:
            done, _, job.stage = message["progress"]
            job.done = before + done
        elif "answer" in message:
            self.cache.put(message["answer"], message["value"])
        else:
            self._end(job, "failed", **message["failed"])

    def _outcome(self, job: Job, code: int) -> tuple[State, str, str]:
        if all(self.cache.get(digest) is not None for digest in job.asks):
            return "done", "", ""
        killed = f"signal {-code}" if code < 0 else f"exit {code}"
        return "failed", "WorkerEnded", f"its process ended ({killed}); a kill (9) is often a lack of memory"

    def _end(self, job: Job, state: State, error: str = "", detail: str = "") -> None:
        with self._lock:
            if not job.is_over:
                job.state, job.error, job.detail, job.ended = state, error, detail, time.monotonic()
                job.done = len(job.asks) if state == "done" else job.done
