"""The models a server has open, by name: nothing else can be asked for."""

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property

from pathsum.errors import StudyError
from pathsum.explorer.refused import Refused
from pathsum.runs.run import Run, run_weights
from pathsum.study.cluster import Source
from pathsum.study.describe import tensor_sizes
from pathsum.study.subject import Subject
from pathsum.weights.model import Model
from pathsum.weights.tokens import token_ids

PATIENCE = 60
"""Seconds a short answer waits for the ones before it."""
RUNS = 4
"""Recorded runs of prompts that are kept of each model."""
PATTERNS = 500_000_000
"""Bytes of attention patterns of one prompt."""
SHORT = 20_000_000_000
"""Parameters × tokens that may run while a page waits: some seconds."""


class Opened:
    """A model, what is kept of it in memory, and where a worker opens it again. Used by one thread at a time."""

    def __init__(self, name: str, model: Model):
        self.name, self.model = name, model
        self.place = Source.of(model).place
        self.subject = Subject(model)
        self._lock, self._runs = threading.Lock(), dict[tuple[str, bool | None], Run]()
        self._digesting = threading.Lock()

    @property
    def digest(self) -> str:
        """sha256 of the weights, taken once."""
        with self._digesting:
            return self.subject.digest

    @cached_property
    def parameters(self) -> int:
        return sum(tensor_sizes(self.model.weights).values())

    @contextmanager
    def alone(self) -> Iterator[Subject]:
        """The model's subject, with nobody else at it. Raises `Refused` (429) where others take too long."""
        if not self._lock.acquire(timeout=PATIENCE):
            raise Refused(429, "Busy", f"{self.name} is busy with other requests; try again in a moment")
        try:
            yield self.subject
        finally:
            self._lock.release()

    def run(self, prompt: str) -> Run:
        """The prompt, run and recorded; the last few are kept. Within `alone`.

        Raises `Refused` (413) for a prompt that this model takes too long to run, `TextError` as `pathsum.run`.
        """
        key = (prompt, None)
        found = self._runs.pop(key, None) or self._fresh(prompt)
        self._runs[key] = found
        while len(self._runs) > RUNS:
            self._runs.pop(next(iter(self._runs)))
        return found

    def _fresh(self, prompt: str) -> Run:
        spec, tokens = self.model.spec, token_ids(self.model, prompt)
        kept = 4 * spec.n_layers * spec.n_heads
        most = min(spec.n_ctx, max(8, SHORT // max(1, self.parameters)), int((PATTERNS / max(1, kept)) ** 0.5))
        if len(tokens) > most:
            raise Refused(
                413, "TextTooLong", f"the prompt has {len(tokens):,} tokens; {self.name} takes {most:,} of them here"
            )
        return run_weights(self.model, self.subject.raw, tokens)


def opened(models: Sequence[Model]) -> dict[str, Opened]:
    """By name, in their order; models of one name are told apart by their folders.

    Raises `StudyError` for no model at all, and for one that is in memory only.
    """
    if not models:
        raise StudyError("the explorer needs a model; name one, such as two-layer")
    names = [model.name for model in models]
    twice = {name for name, count in Counter(names).items() if count > 1}
    for place, model in enumerate(models):
        if model.name in twice and model.path is not None:
            names[place] = f"{model.path.resolve().parent.name}/{model.name}"
    for place, name in enumerate(names):
        if name in names[:place]:
            names[place] = f"{name} ({place + 1})"
    return {name: Opened(name, model) for name, model in zip(names, models, strict=True)}
