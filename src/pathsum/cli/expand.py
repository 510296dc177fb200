"""`pathsum expand MODEL PROMPT`: one token's logit as a sum over orders, sources and paths."""

from pathlib import Path
from typing import Annotated, Any

import typer

from pathsum.cli.figure import FIGURE, check_figure, draw
from pathsum.cli.subject import MODEL

PROMPT = Annotated[str | None, typer.Argument(help="The text itself, not a file.", show_default=False)]
TEXT = Annotated[str | None, typer.Option("--text", help="The prompt, as an option.")]
IDS = Annotated[str | None, typer.Option("--ids", help="Token ids instead of a prompt, with commas between.")]
ORDER = Annotated[int, typer.Option("--max-order", min=0, help="List paths of up to this many heads.")]
AT = Annotated[int, typer.Option("--at", "--position", help="Predict after this token: from 0, or from the end: -1.")]
TARGET = Annotated[
    str | None,
    typer.Option(
        "--target", "--token", help='The token whose logit it is, such as " Paris". Default: the model\'s first choice.'
    ),
]
BY = Annotated[
    str | None, typer.Option("--by", help="One or two of order, source, position, head, layer, with a comma between.")
]
VERSUS = Annotated[str | None, typer.Option("--versus", help="With --by: less the logit of this token.")]
LOG_P = Annotated[bool, typer.Option("--log-probability", help="The token's log-probability, linearised (with --by).")]
TOP = Annotated[int, typer.Option("--top", min=1, help="Paths (and sources) shown, strongest first.")]
BOS = Annotated[
    bool | None, typer.Option("--bos/--no-bos", help="Put the model's BOS token first (default: as it was trained).")
]
JSON = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


def expand(
    model: MODEL,
    prompt: PROMPT = None,
    text: TEXT = None,
    ids: IDS = None,
    max_order: ORDER = 1,
    target: TARGET = None,
    at: AT = -1,
    top: TOP = 10,
    by: BY = None,
    versus: VERSUS = None,
    log_probability: LOG_P = False,
    figure: FIGURE = None,
    bos: BOS = None,
    as_json: JSON = False,
) -> None:
    """Run a prompt and take one token's logit apart: what every order, source and path of heads adds to it.

    Exact: given the run's attention patterns, norm scales and MLP outputs, all paths sum to the logit; the error of
    the sum is the last line. "centred" is what they add beyond what they add to the whole vocabulary on average: the
    softmax sees nothing else. `--by` shows one table instead, such as --by head,position: what all paths with the same
    last head and the same source token add together.
    """
    chosen = prompt_of("expand MODEL", prompt, text, ids)
    if by is not None:
        one_question(versus, log_probability)
        _crossed(model, chosen, by, target, versus, log_probability, at, bos, top, figure, as_json)
        return
    if versus is not None or log_probability:
        raise typer.BadParameter("--versus and --log-probability go with --by, or with pathsum paths")
    check_figure(figure, "expand")

    from pathsum.report.prompt import print_expansion
    from pathsum.study.prompt import prompt_expansion
    from pathsum.weights.checkpoint import open_model

    result = prompt_expansion(open_model(model), chosen, bos=bos, target=target, at=at, max_order=max_order, top=top)
    if as_json:
        print(result.to_json())
    else:
        print_expansion(result)
    draw(result, figure)


def _crossed(
    model: str,
    prompt: str | list[int],
    by: str,
    target: str | None,
    versus: str | None,
    log_probability: bool,
    at: int,
    bos: bool | None,
    top: int,
    figure: Path | None,
    as_json: bool,
) -> None:
    from pathsum.report.cross import print_cross
    from pathsum.study.cross import prompt_table
    from pathsum.weights.checkpoint import open_model

    axes = [axis.strip() for axis in by.split(",")]
    check_figure(figure, "expand")
    asked: dict[str, Any] = {
        "target": target,
        "versus": versus,
        "log_probability": log_probability,
        "at": at,
        "bos": bos,
    }
    result = prompt_table(open_model(model), prompt, axes, **asked)
    if as_json:
        print(result.to_json())
    else:
        print_cross(result, top)
    draw(result, figure)


def one_question(versus: str | None, log_probability: bool) -> None:
    if versus is not None and log_probability:
        raise typer.BadParameter("--versus and --log-probability exclude each other: of two tokens take the logits")


def prompt_of(command: str, *given: str | None) -> str | list[int]:
    """The one of prompt, --text and --ids that is given."""
    if sum(one is not None for one in given) != 1:
        raise typer.BadParameter(f'give one prompt: pathsum {command} "some text" (or --text, or --ids 3,1,4)')
    prompt, text, ids = given
    if ids is None:
        return text if prompt is None else prompt  # type: ignore[return-value]
    try:
        return [int(part) for part in ids.split(",")]
    except ValueError as error:
        raise typer.BadParameter(f"--ids {ids!r}: give whole numbers with commas between") from error
