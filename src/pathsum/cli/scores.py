"""`pathsum scores MODEL HEAD PROMPT`: one head's attention scores as a sum over pairs of paths."""

from typing import Annotated

import typer

from pathsum.cli.expand import BOS, IDS, JSON, PROMPT, TEXT, prompt_of
from pathsum.cli.figure import FIGURE, check_figure, draw
from pathsum.cli.subject import MODEL

HEAD = Annotated[str, typer.Argument(help="The head, as L1H6.")]
DESTINATION = Annotated[
    int | None, typer.Option("--destination", help="The token that looks: from 0, or from the end. Default: the last.")
]
SOURCE = Annotated[
    int | None, typer.Option("--source", help="The token looked at. Default: the one that the head attends to most.")
]
PAIRS = Annotated[
    str | None,
    typer.Option(
        "--pairs",
        help="Instead of one pair, the mean over a set: induction (the source comes after an earlier copy of the "
        "destination's token), previous (the token before), or a list such as 5:2,6:3 (destination:source).",
    ),
]
ORDER = Annotated[int, typer.Option("--max-order", min=0, help="List paths of up to this many heads a side.")]
TOP = Annotated[int, typer.Option("--top", min=1, help="Terms (and pairs of sources) shown, strongest first.")]


def scores(
    model: MODEL,
    head: HEAD,
    prompt: PROMPT = None,
    text: TEXT = None,
    ids: IDS = None,
    destination: DESTINATION = None,
    source: SOURCE = None,
    pairs: PAIRS = None,
    max_order: ORDER = 1,
    top: TOP = 10,
    figure: FIGURE = None,
    bos: BOS = None,
    as_json: JSON = False,
) -> None:
    """Run a prompt and take a head's score apart: which paths of its query and of its key made it look there.

    Exact: given the patterns and norm scales of earlier layers, all pairs of paths sum to the score; the error of the
    sum is the last line. "centred" is what they add beyond their mean over all tokens that could be looked at: the
    softmax sees nothing else. Without a prompt, the text is distinct random tokens repeated three times.
    """
    given = [prompt, text, ids]
    chosen = prompt_of("scores MODEL HEAD", *given) if any(one is not None for one in given) else None
    wanted = None if pairs is None else _pairs(pairs)

    from pathsum.report.scores import print_scores
    from pathsum.study.scores import prompt_scores
    from pathsum.weights.checkpoint import open_model

    check_figure(figure, "scores")
    result = prompt_scores(
        open_model(model), chosen, head, bos=bos, destination=destination, source=source, pairs=wanted,
        max_order=max_order, top=top,
    )  # fmt: skip
    if as_json:
        print(result.to_json())
    else:
        print_scores(result)
    draw(result, figure)


def _pairs(text: str) -> str | list[list[int]]:
    """A name, or positions: `5:2,6:3`."""
    if ":" not in text:
        return text
    try:
        return [[int(position) for position in pair.split(":")] for pair in text.split(",")]
    except ValueError as error:
        raise typer.BadParameter(
            f"--pairs {text!r}: give induction, previous, or pairs such as 5:2,6:3 (destination:source)"
        ) from error
