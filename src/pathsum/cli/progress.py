"""A bar on the terminal while something long is done; nothing where there is no terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(first: str) -> Iterator[Callable[[int, int, str], None]]:
    """Gives what is to be called with (done, in all, what is done now); until then the bar says `first`."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    terminal = Console(stderr=True)
    bar = Progress(
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        console=terminal, transient=True, disable=not terminal.is_terminal,
    )  # fmt: skip
    with bar:
        task = bar.add_task(first, total=None)
        yield lambda done, every, words: bar.update(task, completed=done, total=every, description=words)
