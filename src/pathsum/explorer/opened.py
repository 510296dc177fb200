"""The models a server has open, by name: nothing else can be asked for."""

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property

import torch

from pathsum.errors import StudyError
from pathsum.explorer.lately import Lately
from pathsum.explorer.prompts import prompt_tokens
from pathsum.explorer.refused import Refused
from pathsum.paths.search import WIDTH
from pathsum.report.tokens import visible
from pathsum.report.views.attention import LONGEST, AttentionView
from pathsum.report.views.token_tables import vocabulary
from pathsum.runs.graded import frozen_run
from pathsum.runs.run import run_weights
from pathsum.study.cluster import Source
from pathsum.study.describe import tensor_sizes
from pathsum.study.subject import Subject
from pathsum.weights.model import Model
from pathsum.weights.tokens import token_strings

PATIENCE = 60
"""Seconds a short answer waits for the ones before it."""
RUNS = 4
"""Recorded runs of prompts that are kept of each model."""
SEARCHED = 1_000_000_000
"""Layers² × heads × positions × d_model × nodes of a search for paths that a page waits for: a second or so."""
PAGES = 16
"""Pages of each model whose figures and tables are kept."""
PATTERNS = 500_000_000
"""Bytes of attention patterns of one prompt."""
SHORT = 20_000_000_000
"""Parameters × tokens that may run while a page waits: some seconds."""
SMALL = 50_000_000
"""Parameters of a model whose readings are made as soon as a page needs them, unasked."""


class Opened:
    """A model, what is kept of it in memory, and where a worker opens it again. Used by one thread at a time."""

    def __init__(self, name: str, model: Model):
        self.name, self.model = name, model
        self.place = Source.of(model).place
        self.subject = Subject(model)
        self._lock, self._runs, self.pages = threading.Lock(), Lately(RUNS), Lately(PAGES)
        self._digesting = threading.Lock()

    @property
    def digest(self) -> str:
        """sha256 of the weights, taken once."""
        with self._digesting:
            return self.subject.digest

    @cached_property
    def parameters(self) -> int:
        return sum(tensor_sizes(self.model.weights).values())

    @cached_property
    def vocabulary(self) -> list[str]:
        """Every token as it is shown, by id."""
        return vocabulary(self.model)

    @property
    def is_small(self) -> bool:
        return self.parameters <= SMALL

    @contextmanager
    def alone(self) -> Iterator[Subject]:
        """The model's subject, with nobody else at it. Raises `Refused` (429) where others take too long."""
        if not self._lock.acquire(timeout=PATIENCE):
            raise Refused(429, "Busy", f"{self.name} is busy with other requests; try again in a moment")
        try:
            yield self.subject
        finally:
            self._lock.release()

    def tokens(self, prompt: str) -> list[int]:
        """Of a prompt as it is run. Raises `TextError`."""
        return prompt_tokens(self.model, prompt)

    def strings(self, prompt: str) -> list[str]:
        """The prompt's tokens as they are shown."""
        return [visible(text, LONGEST) for text in token_strings(self.model, self.tokens(prompt))]

    def check_distance(self, delta: int | None) -> None:
        """Raises `Refused` (422) for a distance that no two tokens of the model have."""
        n_ctx = self.model.spec.n_ctx
        if delta is not None and delta >= n_ctx:
            raise Refused(422, "NotApplicable", f"distances of {self.name} are from 0 to {n_ctx - 1}, not {delta}")

    def attention(self, prompt: str) -> AttentionView:
        """Where heads look in a prompt; of the last few prompts it is kept. Within `alone`.

        Raises `Refused` (413) for a prompt that this model takes too long to run, `TextError` for one it cannot.
        """
        return self._runs.get(prompt, lambda: self._fresh(prompt))

    def is_short(self, prompt: str) -> bool:
        """Whether the paths of a prediction are found while a page waits."""
        spec = self.model.spec
        once = spec.n_layers**2 * spec.n_heads * len(self.tokens(prompt)) * spec.d_model * WIDTH
        return self.is_small and once <= SEARCHED

    def _fresh(self, prompt: str) -> AttentionView:
        spec, tokens = self.model.spec, self.tokens(prompt)
        kept = 4 * spec.n_layers * spec.n_heads
        most = min(spec.n_ctx, max(8, SHORT // max(1, self.parameters)), int((PATTERNS / max(1, kept)) ** 0.5))
        if len(tokens) > most:
            raise Refused(
                413, "TextTooLong", f"the prompt has {len(tokens):,} tokens; {self.name} takes {most:,} of them here"
            )
        recorded = run_weights(self.model, self.subject.raw, torch.tensor(tokens))
        return AttentionView(frozen_run(recorded, self.subject.frozen_weights))


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
