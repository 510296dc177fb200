"""The pages: what is looked at stands in the address; what is not there yet is made by a job that the page starts.

A GET makes nothing but short answers. A page whose answers are not on disk holds a part that asks for them by POST,
shows how far they are, and asks for the page again when they are there.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse

from pathsum.explorer.answers import result
from pathsum.explorer.api import REFUSALS, TheJobs, TheModels, job_facts
from pathsum.explorer.ask import PATHS, Ask
from pathsum.explorer.content import BESIDE, asks, content, prompt_of
from pathsum.explorer.forms import ask_of, parameters
from pathsum.explorer.html import render
from pathsum.explorer.jobs import Jobs
from pathsum.explorer.opened import Opened
from pathsum.explorer.view import Side, TheView, View, sides
from pathsum.study.catalogue import BY_NAME, READINGS
from pathsum.weights.weights import head_index

router = APIRouter(tags=["pages"], responses=REFUSALS, default_response_class=HTMLResponse)


@router.get("/")
def overview(view: TheView, models: TheModels, jobs: TheJobs, request: Request) -> str:
    """The model in words and numbers, and the induction circuit found, step by step."""
    return _page("", view, models, jobs, request)


@router.get("/heads")
def heads(view: TheView, models: TheModels, jobs: TheJobs, request: Request) -> str:
    """What heads there are."""
    return _page("heads", view, models, jobs, request)


@router.get("/composition")
def composition(view: TheView, models: TheModels, jobs: TheJobs, request: Request) -> str:
    """Which heads read which."""
    return _page("composition", view, models, jobs, request)


@router.get("/head")
def head(view: TheView, models: TheModels, jobs: TheJobs, request: Request) -> str:
    """One head: what it is, whom it reads and writes to, its QK and OV tables around a token."""
    for side in sides(view, models):
        head_index(view.head, side.opened.model.spec)
        side.opened.check_distance(view.distance)
    return _page("head", view, models, jobs, request)


@router.get("/attention")
def attention(view: TheView, models: TheModels, request: Request) -> str:
    """Where heads look in a prompt."""
    found = sides(view, models)
    for side in found:
        side.content = {
            "prompt": prompt_of(view, side.opened),
            "tokens": side.opened.tokens(prompt_of(view, side.opened)),
        }
    return _rendered("attention", view, models, found)


@router.get("/paths")
def paths(view: TheView, models: TheModels, jobs: TheJobs, request: Request) -> str:
    """The strongest paths to a prediction."""
    return _page(PATHS, view, models, jobs, request)


@router.get("/readings")
def readings(view: TheView, models: TheModels, jobs: TheJobs, request: Request) -> str:
    """Any reading of the catalogue, with its parameters."""
    if view.reading:
        return _page("readings", view, models, jobs, request)
    return _rendered("readings", view, models, sides(view, models), readings=READINGS)


@router.post("/start/{page}")
def start(page: str, view: TheView, models: TheModels, jobs: TheJobs, request: Request) -> str:
    """Begin what a page needs of its first model: the part of the page that shows how far it is."""
    side = sides(view, models)[0]
    page = "" if page == "overview" else page
    return _job(jobs, jobs.start(side.opened, asks(page, view, side.opened, _given(request))))


@router.get("/jobs/{job}")
def progress(job: str, jobs: TheJobs) -> str:
    """How far a job is, as a part of a page."""
    return _job(jobs, jobs.get(job))


@router.post("/jobs/{job}/cancel")
def cancel(job: str, jobs: TheJobs) -> str:
    """Cancel a job; what is left of it, as a part of a page."""
    found = jobs.get(job)
    jobs.cancel(found)
    return _job(jobs, found)


def _page(page: str, view: View, models: dict[str, Opened], jobs: Jobs, request: Request) -> str:
    """A page of readings: of each model what is on disk, or what is to be made."""
    given, found = _given(request), sides(view, models)
    for side in found:
        wanted = asks(page, view, side.opened, given)
        short = page == PATHS and side.opened.is_short(prompt_of(view, side.opened))
        made = {} if short else _made(page, side.opened, wanted, jobs)
        side.content = {} if made is None else {**made}
        side.pending = wanted if made is None else None
        if page == PATHS:
            prompt = prompt_of(view, side.opened)
            side.content |= {"prompt": prompt, "tokens": side.opened.strings(prompt)}
    if page != "readings":
        return _rendered(page or "overview", view, models, found)
    reading = BY_NAME[view.reading]
    more = {"readings": READINGS, "reading": reading, "parameters": parameters(reading)}
    return _rendered(page, view, models, found, given, **more)


def _made(page: str, opened: Opened, wanted: list[Ask], jobs: Jobs) -> dict[str, Any] | None:
    """What the page shows of a model; None where an answer is not on disk."""
    beside = [ask_of(name, {}) for name in BESIDE.get(page, ())]
    there = {ask.reading: ask for ask in beside if jobs.answers(opened, [ask]) is not None}
    every = {**there, **{ask.reading: ask for ask in wanted}}

    def make() -> dict[str, Any] | None:
        answers = jobs.answers(opened, [*every.values()])
        if answers is None or page in ("head", PATHS):
            return None if answers is None else {"made": True}
        return content(page, opened, {name: result(ask, answers[name]) for name, ask in every.items()})

    with opened.alone():
        return opened.pages.get((page, *(ask.digest(opened.model, opened.digest) for ask in every.values())), make)


def _given(request: Request) -> dict[str, str]:
    """A reading's own parameters: all of the address that is no state of a page."""
    reserved = ("model", "versus", "reading")
    return {key: value for key, value in request.query_params.items() if key not in reserved}


def _rendered(
    template: str,
    view: View,
    models: dict[str, Opened],
    found: list[Side],
    given: Mapping[str, str] = MappingProxyType({}),
    **more: Any,
) -> str:
    page = "" if template == "overview" else template
    return render(
        f"{template}.html", page=page, view=view, state={**view.state(), **given}, given=given, models=list(models),
        sides=found, prompt=prompt_of(view, found[0].opened), **more,
    )  # fmt: skip


def _job(jobs: Jobs, job: Any) -> str:
    return render("job.html", job=job_facts(jobs, job))
