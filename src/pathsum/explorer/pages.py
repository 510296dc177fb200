"""The pages: what is looked at stands in the address; what is not there yet is made by a job that the page starts.

A GET makes nothing but short answers. A page whose answers are not on disk holds a part that asks for them by POST,
shows how far they are, and asks for the page again when they are there.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Request
from starlette.responses import HTMLResponse

from pathsum.explorer.answers import result
from pathsum.explorer.api import REFUSALS, TheJobs, TheModels, job_facts
from pathsum.explorer.ask import PATHS
from pathsum.explorer.content import asks, content, paths_content, prompt_of
from pathsum.explorer.forms import parameters
from pathsum.explorer.html import render
from pathsum.explorer.jobs import Jobs
from pathsum.explorer.opened import Opened
from pathsum.explorer.view import Side, TheView, View, sides
from pathsum.study.catalogue import BY_NAME, READINGS
from pathsum.weights.weights import head_index

router = APIRouter(tags=["pages"], responses=REFUSALS, default_response_class=HTMLResponse)
Boosted = Annotated[str | None, Header(alias="hx-request")]


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
    return _rendered("readings", view, models, sides(view, models), readings=READINGS, given={})


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
        answers = jobs.answers(side.opened, wanted)
        if answers is None:
            side.pending = wanted
        elif page == PATHS:
            side.content = paths_content(answers[PATHS])
        else:
            side.content = content(
                page, side.opened, {ask.reading: result(ask, answers[ask.reading]) for ask in wanted}
            )
        if page == PATHS:
            side.content |= {"tokens": side.opened.strings(prompt_of(view, side.opened))}
    own = page == "readings"
    reading = BY_NAME[view.reading] if own else None
    more = {
        "readings": READINGS,
        "given": given,
        "reading": reading,
        "parameters": parameters(reading) if reading else [],
    }
    return _rendered(page or "overview", view, models, found, **(more if own else {}))


def _given(request: Request) -> dict[str, str]:
    """A reading's own parameters: all of the address that is no state of a page."""
    reserved = ("model", "versus", "reading")
    return {key: value for key, value in request.query_params.items() if key not in reserved}


def _rendered(template: str, view: View, models: dict[str, Opened], found: list[Side], **more: Any) -> str:
    page = "" if template == "overview" else template
    return render(
        f"{template}.html", page=page, view=view, state=view.state(), models=list(models), sides=found,
        prompt=prompt_of(view, found[0].opened), **more,
    )  # fmt: skip


def _job(jobs: Jobs, job: Any) -> str:
    return render("job.html", job=job_facts(jobs, job))
