"""The answers themselves, as JSON-ready dictionaries: a reading's table and manifest, or the paths of a prompt."""

from typing import Any

from pathsum.errors import NotApplicable, StudyError, TextError
from pathsum.explorer.ask import PATHS, Ask
from pathsum.explorer.prompts import prompt_tokens
from pathsum.paths.logits import Expansion, expand
from pathsum.report.views.paths import path_view
from pathsum.study.catalogue import BY_NAME
from pathsum.study.paths import PATHS as READING
from pathsum.study.prompt import prompt_run
from pathsum.study.result import Result, manifest, read_one, table
from pathsum.study.subject import Subject
from pathsum.training.machine import give_back_freed_memory
from pathsum.weights.model import Model
from pathsum.weights.tokens import token_id


def title(ask: Ask) -> str:
    """What is being done, for whoever waits."""
    return "The strongest paths to a prediction" if ask.reading == PATHS else BY_NAME[ask.reading].title


def answer(ask: Ask, model: Model, kept: dict[str, Any]) -> dict[str, Any]:
    """The answer; `kept` is what answers of one worker share (a subject). Raises what readings raise.

    A reading that makes no sense for the model is an answer too: an empty table, with the reason in its manifest.
    """
    if ask.reading == PATHS:
        recorded = prompt_run(model, prompt_tokens(model, str(ask.options["prompt"])))
        return paths_answer(ask, expand(recorded))
    if ask.reading not in BY_NAME:
        raise StudyError(f"no reading {ask.reading!r}; there are {', '.join(BY_NAME)}")
    reading, subject = BY_NAME[ask.reading], _subject(ask, model, kept)
    if "text" in reading.needs or "random tokens" in reading.needs:
        subject.forget("folded", "tables")
    try:
        found = read_one(reading.name, subject, **ask.options)
    except NotApplicable as error:
        found = _nothing(ask, manifest(subject, reading, dict(ask.options)), error)
    except TextError as error:
        if ask.text is not None or ask.context is not None:
            raise
        # Nobody chose this text, and the manifest would cut it again: what is known without it.
        known = {"model": model.name, "weights_sha256": subject.digest, "spec": model.spec.to_dict()}
        found = _nothing(ask, known | {"reading": reading.name, "options": dict(ask.options)}, error)
    give_back_freed_memory()
    return found.to_dict()


def _nothing(ask: Ask, known: dict[str, Any], why: Exception) -> Result:
    reading = BY_NAME[ask.reading]
    return Result(reading, table(reading, []), known | {"not_applicable": str(why)})


def paths_ask(prompt: str, at: int, target: str, against: str, limit: int = 20, seconds: float = 10.0) -> Ask:
    """What is asked by the page of paths; "" is the default."""
    options: dict[str, Any] = {"prompt": prompt, "at": at, "limit": limit, "seconds": seconds}
    more = {"target": target, "against": against}
    return Ask(reading=PATHS, options=options | {key: value for key, value in more.items() if value != ""})


def paths_answer(ask: Ask, expansion: Expansion) -> dict[str, Any]:
    """The view of one prediction, its paths as rows, and what it depends on."""
    options: dict[str, Any] = dict(ask.options)
    model = expansion.run.model
    target, against = (
        None if options.get(name) is None else token_id(model, options[name]) for name in ("target", "against")
    )
    view = path_view(expansion, options["at"], target, against, options["limit"], options["seconds"]).to_dict()
    return {"manifest": manifest(Subject(model), READING, options), "rows": view["paths"], "view": view}


def result(ask: Ask, found: dict[str, Any]) -> Result:
    """A reading's answer as the `Result` it was made from; undefined numbers are null."""
    reading = BY_NAME[ask.reading]
    return Result(reading, table(reading, found["rows"]), found["manifest"])


def _subject(ask: Ask, model: Model, kept: dict[str, Any]) -> Subject:
    """Readings of one text in one worker share what is computed once."""
    facts = (ask.text, ask.sequences, ask.context, ask.seed)
    if kept.get("facts") != facts:
        text, sequences, context, seed = facts
        name = None if text is None else "typed"
        kept |= {"facts": facts, "subject": Subject(model, text, name, None, sequences, context=context, seed=seed)}
    return kept["subject"]
