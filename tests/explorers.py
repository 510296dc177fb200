"""An explorer in this process, asked as a browser at its own address asks."""

import time
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

import pathsum
from pathsum.explorer.app import application
from pathsum.explorer.settings import Settings

HERE = "http://127.0.0.1:8321"
FAST = "two-layer-small"


def explorer(cache: Path, *names: str, **settings: Any) -> TestClient:
    """Of the named models (default: the fastest), with a cache of its own."""
    models = [pathsum.open(name) for name in names or (FAST,)]
    app = application(models, Settings(cache=cache, **settings))
    return TestClient(
        app, base_url=HERE, headers={"origin": HERE}, follow_redirects=False, raise_server_exceptions=False
    )


def finished(client: TestClient, job: dict[str, Any], seconds: float = 120) -> dict[str, Any]:
    """The job when it is over."""
    last = time.monotonic() + seconds
    while job["state"] in ("queued", "running"):
        assert time.monotonic() < last, job
        time.sleep(0.05)
        job = client.get(f"/api/jobs/{job['id']}").json()
    return job
