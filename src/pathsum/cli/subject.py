"""From command-line arguments to a `Subject`, and the options every reading shares."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pathsum.study.subject import Subject

MODEL = Annotated[
    str, typer.Argument(help="A built-in model (see: pathsum models), a folder, a file, or hf:owner/name.")
]
TEXT = Annotated[
    list[str] | None,
    typer.Option(
        "--text",
        help="Text to read the model on: a file, a folder, or the word python; may be given more than once. "
        "Default: some modules of Python's standard library.",
    ),
]
SEED = Annotated[int, typer.Option("--seed", help="Of what is random.")]
SEQUENCES = Annotated[
    int | None,
    typer.Option(
        "--sequences", min=1, help="Contexts of text to run (default: 16, or fewer for a model of many heads)."
    ),
]

CONTEXT = Annotated[
    int | None, typer.Option("--context", help="Tokens in a context (default: the model's, at most 512).")
]

CLUSTER = "Address of a Dask scheduler, such as tcp://10.0.0.1:8786, whose workers share the work."


def subject_of(
    model: str, text: list[str] | None = None, seed: int = 0, sequences: int | None = None, context: int | None = None
) -> "Subject":
    """The opened model with the text's documents joined; errors name the model or the file."""
    from pathsum.study.subject import Subject
    from pathsum.training.corpus import read_corpus
    from pathsum.weights.checkpoint import open_model

    opened = open_model(model)
    if not text:
        return Subject(opened, seed=seed, sequences=sequences, context=context)
    joined = "\n\n".join(read_corpus(text).documents)
    names = ", ".join(Path(name).name for name in text)
    return Subject(opened, joined, names, seed=seed, sequences=sequences, context=context)
