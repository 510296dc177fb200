"""`/static`: the files pages are made of, by name, read once when the server starts; no other name is looked up."""

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Annotated

from fastapi import APIRouter, Header
from starlette.responses import Response

from pathsum.explorer.refused import Refused
from pathsum.report.page import vega_bundle

FOLDERS = ("pathsum.report", "pathsum.explorer")
KINDS = {"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8"}
VEGA = "vega.js"
router = APIRouter(tags=["pages"])


@dataclass(frozen=True)
class File:
    """One file and its digest."""

    content: bytes
    kind: str
    tag: str


@router.get("/static/{name}", response_class=Response, responses={304: {}, 404: {}})
def static(name: str, if_none_match: Annotated[str | None, Header()] = None) -> Response:
    """A style, a script or a module of the views; asked for anew each time, sent where it has changed."""
    found = _files().get(name) or (_file(VEGA, vega_bundle().encode()) if name == VEGA else None)
    if found is None:
        raise Refused(404, "NotFound", f"there is no file {name[:80]!r}")
    headers = {"etag": found.tag, "cache-control": "no-cache"}
    if if_none_match == found.tag:
        return Response(status_code=304, headers=headers)
    return Response(found.content, media_type=found.kind, headers=headers)


@cache
def _files() -> dict[str, File]:
    every = [entry for folder in FOLDERS for entry in (files(folder) / "web").iterdir()]
    shown = [entry for entry in every if entry.name.rpartition(".")[2] in KINDS]
    return {entry.name: _file(entry.name, entry.read_bytes()) for entry in shown}


@cache
def _file(name: str, content: bytes) -> File:
    return File(content, KINDS[name.rpartition(".")[2]], f'"{hashlib.sha256(content).hexdigest()[:32]}"')
