"""What the views on a page ask for: short answers, made while it waits, one at a time per model."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import torch
from fastapi import APIRouter, Query

from pathsum.explorer.answers import paths_answer, paths_ask, result
from pathsum.explorer.api import REFUSALS, Name, TheJobs, TheModels, model_named
from pathsum.explorer.content import HEADS, asks_for
from pathsum.explorer.jobs import Jobs
from pathsum.explorer.opened import Opened
from pathsum.explorer.refused import Refused
from pathsum.explorer.schema import HeadFacts, HeadList, HeadName, HeadOnText, Heads, PathFacts, TokenFacts, TokenFound
from pathsum.explorer.settings import PROMPT, TEXT
from pathsum.paths.logits import Expansion
from pathsum.report.views.embedded import head_notes
from pathsum.report.views.head import head_page
from pathsum.report.views.token_tables import find_tokens, token_tables
from pathsum.study.result import Result
from pathsum.weights.positions import Rotary
from pathsum.weights.weights import head_index

router = APIRouter(prefix="/api", tags=["api"], responses=REFUSALS)
Place = Annotated[int, Query(ge=-TEXT, lt=TEXT)]
Distance = Annotated[int | None, Query(ge=0, lt=TEXT)]
Prompt = Annotated[str, Query(min_length=1, max_length=PROMPT)]
STRONGEST = 12
"""Tokens of each list of a head's tables."""


@router.get("/attention")
def attention(model: Name, prompt: Prompt, opened: TheModels, jobs: TheJobs) -> Heads:
    """A prompt's tokens as they are run, and every head with a small picture of its pattern."""
    one = model_named(opened, model)
    made = _results(one, jobs, HEADS)
    with one.alone():
        view = replace(one.attention(prompt), notes=head_notes(made) if made else {})
        return Heads.model_validate(view.index())


@router.get("/attention/head")
def attention_of_head(model: Name, prompt: Prompt, head: Name, opened: TheModels) -> HeadOnText:
    """Where a head looks, how much it moves from there, and what that does to the next token."""
    one = model_named(opened, model)
    with one.alone():
        found: dict[str, Any] = one.attention(prompt).head(head).to_dict()
    return HeadOnText.model_validate(found)


@router.get("/paths")
def paths(
    model: Name, prompt: Prompt, opened: TheModels, jobs: TheJobs, at: Place = -1, target: Name = "", against: Name = ""
) -> PathFacts:
    """A prediction as the sum of its paths; 409 where they take long to find: then start it by POST."""
    one, ask = model_named(opened, model), paths_ask(prompt, at, target, against)
    digest = ask.digest(one.model, one.digest)
    found = jobs.cache.get(digest)
    if found is None and not one.is_short(prompt):
        raise Refused(409, "NotReady", "these paths take long to find; start it by POST /api/paths")
    if found is None:
        with one.alone():
            found = paths_answer(ask, Expansion(one.attention(prompt).frozen))
        jobs.cache.put(digest, found)
    return PathFacts.model_validate(found["view"] | {"tokens": one.strings(prompt)})


@router.get("/heads")
def heads(model: Name, opened: TheModels, jobs: TheJobs) -> HeadList:
    """Every head, with what it is in a few words where its readings have been made."""
    one = model_named(opened, model)
    made = _results(one, jobs, HEADS)
    notes = head_notes(made) if made else {}
    spec = one.model.spec
    rotary = [isinstance(layer.positions, Rotary) for layer in spec.layers]
    every = [HeadName(name=name, note=notes.get(name, ""), rotary=rotary[head_index(name, spec)[0]])
             for name in one.subject.head_names]  # fmt: skip
    return HeadList(heads=every, n_ctx=spec.n_ctx)


@router.get("/head")
def head(model: Name, head: Name, opened: TheModels, jobs: TheJobs) -> HeadFacts:
    """What the readings say of a head; 409 where they have not been made."""
    one = model_named(opened, model)
    head_index(head, one.model.spec)
    made = _results(one, jobs, (*HEADS, "composition", "matching"))
    if made is None:
        raise Refused(409, "NotReady", f"the readings of {one.name} that this needs are not made; open its page first")
    return HeadFacts.model_validate(head_page(made, head).to_dict())


@router.get("/head/token")
def head_token(
    model: Name, head: Name, token: Annotated[int, Query(ge=0, lt=2**31)], opened: TheModels, delta: Distance = None
) -> TokenFacts:
    """A head's OV column, QK column and QK row at a token, the strongest of each; QK of a rotary head at `delta`."""
    one = model_named(opened, model)
    one.check_distance(delta)
    if token >= one.model.spec.d_vocab:
        raise Refused(422, "TextError", f"token ids of {one.name} are from 0 to {one.model.spec.d_vocab - 1}")
    with one.alone() as subject:
        found = token_tables(subject.tables, head, torch.tensor([token]), STRONGEST, delta)
    return TokenFacts.model_validate(found.to_dict(one.model))


@router.get("/tokens")
def tokens(model: Name, text: Name, opened: TheModels) -> list[TokenFound]:
    """Tokens of the vocabulary with this text in them."""
    one = model_named(opened, model)
    with one.alone():
        found = find_tokens(one.vocabulary, text)
    return [TokenFound(id=place, text=shown) for place, shown in found]


def _results(one: Opened, jobs: Jobs, names: Sequence[str]) -> dict[str, Result] | None:
    """These readings, as a report makes them; None where one is not on disk."""
    wanted = asks_for(names, one)

    def make() -> dict[str, Result] | None:
        answers = jobs.answers(one, wanted)
        return None if answers is None else {ask.reading: result(ask, answers[ask.reading]) for ask in wanted}

    with one.alone():
        return one.pages.get(("results", *(ask.digest(one.model, one.digest) for ask in wanted)), make)
