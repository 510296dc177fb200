"""A page in the system's Chromium, as a reader has it: no network, errors are failures. Skips where there is none."""

import atexit
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")


@cache
def _started(program: str):
    """The browser, once a process, whichever modules use the fixture."""
    sync = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    playwright = sync.sync_playwright().start()
    atexit.register(playwright.stop)
    return playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])


@pytest.fixture(scope="session")
def chromium():
    """The browser, started once."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip(f"no browser here: none of {', '.join(NAMES)} is installed")
    return _started(found)


@contextmanager
def opened(browser, url: str, allowed: str | None = None, **options) -> Iterator:
    """A page at `url`. Afterwards nothing but `allowed` (default: the page itself) was asked for, and nothing failed.

    `options` are of the browser's context: viewport, color_scheme, …
    """
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
    asked, failed = [], []

    def route(route) -> None:
        if route.request.url.startswith(url if allowed is None else allowed):
            route.continue_()
        else:
            asked.append(route.request.url)
            route.abort()

    context.route("**/*", route)
    page = context.new_page()
    page.set_default_timeout(300_000)
    page.on("pageerror", lambda error: failed.append(str(error)))
    page.on("console", lambda message: failed.append(message.text) if message.type == "error" else None)
    page.goto(url)
    try:
        yield page
        assert not asked and not failed, (asked, failed)
    finally:
        context.close()
