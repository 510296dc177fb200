"""The typer application: the commands with a file of their own here, and one command for every reading.

Torch is loaded by the command that runs, never by `--help`.
"""

import importlib.metadata
from collections.abc import Callable
from typing import Annotated

import typer

from pathsum.cli.claims import claims
from pathsum.cli.expand import expand
from pathsum.cli.explore import explore
from pathsum.cli.lens import lens
from pathsum.cli.models import models
from pathsum.cli.paths import paths
from pathsum.cli.per_source import per_source
from pathsum.cli.read import read
from pathsum.cli.reading import add_reading
from pathsum.cli.scores import scores
from pathsum.cli.sweep import sweep
from pathsum.cli.train import train
from pathsum.cli.verify import verify
from pathsum.cli.words import flowing
from pathsum.study.catalogue import READINGS

HELP = """Transformers read as circuits: an exact sum of paths from tokens to logits.

Start with: pathsum read two-layer"""

COMMANDS: dict[str, Callable[..., None]] = {
    "models": models, "train": train, "read": read, "claims": claims, "sweep": sweep, "explore": explore,
    "expand": expand, "scores": scores, "paths": paths, "lens": lens, "verify": verify, "per-source": per_source,
}  # fmt: skip


def print_version(wanted: bool | None) -> None:
    if wanted:
        print(importlib.metadata.version("pathsum"))
        raise typer.Exit


def build_app(wanted: str | None) -> typer.Typer:
    """The application. The reading named `wanted` gets all its options; the others only their line in `--help`."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
    app.callback(help=HELP)(top)
    for name, command in COMMANDS.items():
        app.command(name, help=flowing(command.__doc__))(command)
    for reading in READINGS:
        add_reading(app, reading, reading.name == wanted)
    return app


def top(
    version: Annotated[
        bool | None,
        typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and exit."),
    ] = None,
) -> None:
    """Options of `pathsum` itself; commands have their own."""
