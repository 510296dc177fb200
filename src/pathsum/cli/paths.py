"""`pathsum paths MODEL PROMPT`: the strongest of all paths to a prediction."""

from typing import Annotated

import typer

from pathsum.cli.expand import BOS, IDS, JSON, PROMPT, TEXT, one_question, prompt_of
from pathsum.cli.figure import FIGURE, check_figure, draw
from pathsum.cli.subject import MODEL

TARGET = Annotated[
    str | None,
    typer.Option("--target", help='The token whose logit it is, such as " Paris". Default: the model\'s first choice.'),
]
VERSUS = Annotated[str | None, typer.Option("--versus", help="Less the logit of this token.")]
LOG_P = Annotated[bool, typer.Option("--log-probability", help="The token's log-probability, linearised.")]
AT = Annotated[int, typer.Option("--at", help="Predict after this token: from 0, or from the end: -1.")]
LIMIT = Annotated[int, typer.Option("--limit", min=1, help="Paths listed, strongest first.")]
SECONDS = Annotated[float, typer.Option("--seconds", min=0, help="How long the search may be widened.")]
LIVE = Annotated[bool, typer.Option("--live", help="Also take each path out of the stream and run all after it again.")]


def paths(
    model: MODEL,
    prompt: PROMPT = None,
    text: TEXT = None,
    ids: IDS = None,
    target: TARGET = None,
    versus: VERSUS = None,
    log_probability: LOG_P = False,
    at: AT = -1,
    limit: LIMIT = 20,
    seconds: SECONDS = 30.0,
    live: LIVE = False,
    figure: FIGURE = None,
    bos: BOS = None,
    as_json: JSON = False,
) -> None:
    """List the strongest of all paths to a prediction: source, heads, what they add, and from which token.

    Everything is frozen as the run was: patterns, norm scales, MLP outputs. "certified" means that no path of any
    length that is not listed adds more than the last one that is; otherwise the largest that one could add is printed.
    """
    chosen = prompt_of("paths MODEL", prompt, text, ids)
    one_question(versus, log_probability)

    from pathsum.report.paths import print_paths
    from pathsum.study.paths import prompt_paths
    from pathsum.weights.checkpoint import open_model

    check_figure(figure, "paths")
    result = prompt_paths(
        open_model(model),
        chosen,
        target=target,
        versus=versus,
        log_probability=log_probability,
        at=at,
        limit=limit,
        seconds=seconds,
        live=live,
        bos=bos,
    )
    if as_json:
        print(result.to_json())
    else:
        print_paths(result)
    draw(result, figure)
