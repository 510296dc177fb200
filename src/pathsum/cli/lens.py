"""`pathsum lens MODEL PROMPT`: what partial sums of terms already say."""

from pathsum.cli.expand import BOS, IDS, JSON, PROMPT, TEXT, one_question, prompt_of
from pathsum.cli.figure import FIGURE, check_figure, draw
from pathsum.cli.paths import AT, LOG_P, TARGET, VERSUS
from pathsum.cli.subject import MODEL


def lens(
    model: MODEL,
    prompt: PROMPT = None,
    text: TEXT = None,
    ids: IDS = None,
    target: TARGET = None,
    versus: VERSUS = None,
    log_probability: LOG_P = False,
    at: AT = -1,
    figure: FIGURE = None,
    bos: BOS = None,
    as_json: JSON = False,
) -> None:
    """Follow a prediction layer by layer and order by order: the logit lens as the direct path of partial sums.

    "frozen" has the run's own final scale, so that steps add up to its logits; "recomputed" that of the partial sum
    itself, what the model would say if it stopped there.
    """
    chosen = prompt_of("lens MODEL", prompt, text, ids)
    one_question(versus, log_probability)
    check_figure(figure, "lens")

    from pathsum.report.lens import print_lens
    from pathsum.study.lens import prompt_lens
    from pathsum.weights.checkpoint import open_model

    result = prompt_lens(
        open_model(model), chosen, target=target, versus=versus, log_probability=log_probability, at=at, bos=bos
    )
    if as_json:
        print(result.to_json())
    else:
        print_lens(result)
    draw(result, figure)
