"""`/api/attention`, `/api/head`: short answers, made while the page waits, one at a time per model."""

from typing import Annotated, Any

from fastapi import APIRouter, Query

from pathsum.explorer.api import REFUSALS, Name, TheModels, model_named
from pathsum.explorer.schema import HeadOnText, Heads
from pathsum.explorer.settings import PROMPT

router = APIRouter(prefix="/api", tags=["api"], responses=REFUSALS)
Prompt = Annotated[str, Query(min_length=1, max_length=PROMPT)]


@router.get("/attention")
def attention(model: Name, prompt: Prompt, opened: TheModels) -> Heads:
    """A prompt's tokens as they are run, and every head with a small picture of its pattern."""
    one = model_named(opened, model)
    with one.alone():
        return Heads.model_validate(one.attention(prompt).index())


@router.get("/attention/head")
def attention_of_head(model: Name, prompt: Prompt, head: Name, opened: TheModels) -> HeadOnText:
    """Where a head looks, how much it moves from there, and what that does to the next token."""
    one = model_named(opened, model)
    with one.alone():
        found: dict[str, Any] = one.attention(prompt).head(head).to_dict()
    return HeadOnText.model_validate(found)
