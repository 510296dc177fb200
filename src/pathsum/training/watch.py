"""What a person sees while a model trains: a bar, or a line now and then where the output is no terminal."""

from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from pathsum.training.recipe import Recipe

LINES = 10
"""Lines of a whole run where there is no terminal."""


class Watch:
    """Shows loss, tokens/s, time left and the best head's prefix matching; says when induction appeared."""

    def __init__(self, recipe: Recipe, first: int, console: Console) -> None:
        self.console = console
        self.recipe = recipe
        self.bar = Progress(
            BarColumn(bar_width=8),
            TextColumn("{task.completed}/{task.total}"),
            TextColumn("{task.fields[facts]}"),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self.task = self.bar.add_task("", total=recipe.steps, completed=first, facts="")

    def __enter__(self) -> "Watch":
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def step(self, step: int) -> None:
        self.bar.update(self.task, completed=step)

    def measured(self, row: dict[str, Any], speed: float) -> None:
        """A row of the curve, and tokens per second."""
        best = "" if row["prefix_matching"] is None else f" · best prefix matching {row['prefix_matching']:.2f}"
        facts = f"loss {row['loss']:.2f} · {speed / 1000:.0f}k tokens/s{best}"
        self.bar.update(self.task, facts=facts)
        every = max(1, self.recipe.steps // LINES)
        if not self.console.is_terminal and row["step"] % every == 0:
            self._line(f"{self.recipe.name} step {row['step']}/{self.recipe.steps} · {facts}")

    def induction(self, found: dict[str, Any]) -> None:
        self._line(
            f"induction appeared at step {found['step']} ({found['tokens'] / 1e6:.1f} M tokens): {found['head']} has "
            f"prefix matching {found['prefix_matching']:.2f} (threshold {found['threshold']})"
        )

    def _line(self, text: str) -> None:
        self.console.print(text, highlight=False, soft_wrap=True)
