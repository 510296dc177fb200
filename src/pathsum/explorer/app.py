"""The application: models, jobs, routes, and the guard before them."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp

from pathsum.errors import PathsumError
from pathsum.explorer import api, live, pages, static
from pathsum.explorer.cache import Cache
from pathsum.explorer.guard import Guard
from pathsum.explorer.html import refusal_page
from pathsum.explorer.jobs import Jobs
from pathsum.explorer.opened import opened
from pathsum.explorer.refused import Refused, refusal_of
from pathsum.explorer.settings import Settings
from pathsum.weights.model import Model

ERRORS = {404: "NotFound", 405: "MethodNotAllowed"}


def application(models: Sequence[Model], settings: Settings | None = None) -> ASGIApp:
    """The explorer of these models, to be served at the settings' address.

    Raises `StudyError` for models that are in memory only, or a cache folder that cannot be written.
    """
    settings = Settings() if settings is None else settings
    jobs = Jobs(Cache(settings.cache, settings.kept))

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        jobs.close()

    app = FastAPI(
        title="pathsum explorer", version="1", lifespan=lifespan, docs_url=None, redoc_url=None,
        description="Readings, attention and paths of the opened models. Errors are {error, detail}.",
    )  # fmt: skip
    app.state.models, app.state.jobs, app.state.settings = opened(models), jobs, settings
    for router in (api.router, live.router, pages.router, static.router):
        app.include_router(router)
    handlers = {Refused: _refused, PathsumError: _known, RequestValidationError: _invalid, HTTPException: _http}
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)
    return Guard(app, settings, answer_refused)


def answer_refused(headers: Headers, refused: Refused) -> Response:
    """As a page for who reads pages, else as JSON."""
    if "text/html" in headers.get("accept", "") or "hx-request" in headers:
        fragment = "hx-request" in headers and "hx-boosted" not in headers
        return HTMLResponse(refusal_page(refused, fragment), refused.status)
    plain = {"error": refused.error, "detail": refused.detail}
    return JSONResponse(plain, refused.status)


async def _refused(request: Request, error: Any) -> Response:
    return answer_refused(request.headers, error)


async def _known(request: Request, error: Any) -> Response:
    return answer_refused(request.headers, refusal_of(error))


async def _invalid(request: Request, error: Any) -> Response:
    told = [f"{'.'.join(str(part) for part in one['loc'])}: {one['msg']}" for one in error.errors()]
    return answer_refused(request.headers, Refused(422, "InvalidRequest", "; ".join(told)[:2000]))


async def _http(request: Request, error: Any) -> Response:
    detail = f"{request.method} {request.url.path[:80]} is not served here"
    name = ERRORS.get(error.status_code)
    refused = Refused(error.status_code, name or "BadRequest", detail if name else str(error.detail))
    return answer_refused(request.headers, refused)
