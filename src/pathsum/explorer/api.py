"""`/api`: everything the pages show, as JSON; typed, with its OpenAPI document at `/openapi.json`."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request

from pathsum.explorer.answers import paths_ask
from pathsum.explorer.forms import ask_of, parameters
from pathsum.explorer.jobs import Job, Jobs
from pathsum.explorer.opened import Opened
from pathsum.explorer.refused import Refused
from pathsum.explorer.schema import (
    NAME,
    Answer,
    ColumnFacts,
    JobFacts,
    ModelFacts,
    NewJob,
    NewPaths,
    ParameterFacts,
    ReadingFacts,
    Refusal,
)  # fmt: skip
from pathsum.study.catalogue import READINGS
from pathsum.study.reading import Reading

REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": Refusal} for status in (400, 401, 403, 404, 405, 409, 413, 414, 422, 429)
}
router = APIRouter(prefix="/api", tags=["api"], responses=REFUSALS)


def jobs_of(request: Request) -> Jobs:
    return request.app.state.jobs


def models_of(request: Request) -> dict[str, Opened]:
    return request.app.state.models


TheJobs = Annotated[Jobs, Depends(jobs_of)]
TheModels = Annotated[dict[str, Opened], Depends(models_of)]
Name = Annotated[str, Query(max_length=NAME)]


def model_named(models: dict[str, Opened], name: str) -> Opened:
    """The opened model of this name. Raises `Refused` (404): nothing is opened by name later."""
    if name not in models:
        raise Refused(404, "NoSuchModel", f"no model {name[:80]!r} is open; there are {', '.join(models)}")
    return models[name]


@router.get("/models")
def models(opened: TheModels) -> list[ModelFacts]:
    """The models that are open."""
    return [facts_of(one) for one in opened.values()]


@router.get("/readings")
def readings() -> list[ReadingFacts]:
    """The catalogue: what can be asked of a model, with its parameters."""
    return [_reading(reading) for reading in READINGS]


@router.post("/jobs", status_code=202)
def start_reading(wanted: NewJob, opened: TheModels, jobs: TheJobs) -> JobFacts:
    """Make a reading, in a process of its own, after the model's jobs that wait already."""
    given = {name: _spelled(value) for name, value in wanted.parameters.items()}
    return job_facts(jobs, jobs.start(model_named(opened, wanted.model), [ask_of(wanted.reading, given)]))


@router.post("/paths", status_code=202)
def start_paths(wanted: NewPaths, opened: TheModels, jobs: TheJobs) -> JobFacts:
    """Find the strongest paths to a prediction."""
    ask = paths_ask(wanted.prompt, wanted.at, wanted.target or "", wanted.against or "", wanted.limit, wanted.seconds)
    return job_facts(jobs, jobs.start(model_named(opened, wanted.model), [ask]))


@router.get("/jobs")
def every_job(jobs: TheJobs) -> list[JobFacts]:
    """Jobs in the order they were asked for."""
    return [job_facts(jobs, job) for job in jobs.every()]


@router.get("/jobs/{job}")
def one_job(job: str, jobs: TheJobs) -> JobFacts:
    """How far a job is."""
    return job_facts(jobs, jobs.get(job))


@router.delete("/jobs/{job}")
def cancel_job(job: str, jobs: TheJobs) -> JobFacts:
    """Kill a job's process, or take it out of the queue."""
    found = jobs.get(job)
    jobs.cancel(found)
    return job_facts(jobs, found)


@router.get("/jobs/{job}/answer")
def answer_of_job(job: str, jobs: TheJobs) -> Answer:
    """What a job found; 409 while there is nothing yet."""
    found = jobs.get(job)
    answers = jobs.answers(found.opened, list(found.asks.values()))
    if answers is None:
        raise Refused(
            409, "NotReady", f"job {found.id} is {found.state}; {found.detail or 'ask again when it is done'}"
        )
    return Answer.model_validate(next(iter(answers.values())))


def facts_of(opened: Opened) -> ModelFacts:
    spec = opened.model.spec
    sizes = {name: getattr(spec, name) for name in ("d_model", "d_head", "d_vocab", "n_ctx")}
    return ModelFacts(
        name=opened.name, layers=spec.n_layers, heads=spec.n_heads if spec.n_layers else 0, **sizes,
        parameters=opened.parameters, has_tokenizer=opened.model.tokenizer is not None,
    )  # fmt: skip


def job_facts(jobs: Jobs, job: Job) -> JobFacts:
    return JobFacts(
        id=job.id, model=job.opened.name, readings=[ask.reading for ask in job.asks.values()], state=job.state,
        done=job.done, total=len(job.asks), stage=job.stage, before=jobs.before(job), elapsed=round(job.elapsed, 3),
        error=job.error, detail=job.detail,
    )  # fmt: skip


def _reading(reading: Reading) -> ReadingFacts:
    columns = [ColumnFacts(name=c.name, unit=c.unit, meaning=c.meaning) for c in reading.columns]
    own = [
        ParameterFacts(name=p.name, kind=p.kind, default=p.default, help=p.help, choices=list(p.choices))
        for p in parameters(reading)
    ]
    return ReadingFacts(
        name=reading.name, title=reading.title, section=reading.section, needs=list(reading.needs), columns=columns,
        parameters=own,
    )  # fmt: skip


def _spelled(value: str | int | float | bool) -> str:
    """As a form would have it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
