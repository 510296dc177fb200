"""A page in the system's Chromium, as a reader has it: no network, errors are failures. Skips where there is none."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def chromium() -> Iterator:
    """The browser, started once."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip(f"no browser here: none of {', '.join(NAMES)} is installed")
    sync = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


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
    page.set_default_timeout(120_000)
    page.on("pageerror", lambda error: failed.append(str(error)))
    page.on("console", lambda message: failed.append(message.text) if message.type == "error" else None)
    page.goto(url)
    try:
        yield page
        assert not asked and not failed, (asked, failed)
    finally:
        context.close()
