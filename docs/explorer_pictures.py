"""Writes the pictures of the explorer's page, `docs/images/explorer-*.webp`: `make picture`; needs a Chromium."""

import base64
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from playwright.sync_api import Page, sync_playwright

import pathsum
from pathsum.explorer.app import application
from pathsum.explorer.serve import listening
from pathsum.explorer.settings import Settings

IMAGES = Path(__file__).with_name("images")
PROMPT = "The+cat+sat+on+the+mat.+The+dog+sat+on+the+log.+The+cat"
PICTURES = {
    "head": ("head?head=L1H3&token=+the", ".token-part .part table", 990),
    "composition": ("composition", "figure svg", 870),
    "attention": (f"attention?head=L1H3&token=12&prompt={PROMPT}", ".said li", 1010),
    "paths": (f"paths?prompt={PROMPT}", ".drawing svg", 1180),
}
"""By name: the address, what is there when it is drawn, and how much of it is seen, in pixels from the top."""
WIDTH = 1000
PATIENCE = 300_000
"""Milliseconds."""


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with served("two-layer") as here, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, (path, drawn, height) in PICTURES.items():
            page = browser.new_page(viewport={"width": WIDTH, "height": height}, color_scheme="light")
            page.goto(f"{here}/{path}")
            page.locator(".job").first.wait_for(state="detached", timeout=PATIENCE)
            page.locator(drawn).first.wait_for(timeout=PATIENCE)
            page.wait_for_load_state("networkidle")
            page.mouse.move(0, 0)
            picture(page, IMAGES / f"explorer-{name}.webp")
            page.close()
        browser.close()


@contextmanager
def served(*models: str) -> Iterator[str]:
    """The address of an explorer with nothing made yet."""
    with tempfile.TemporaryDirectory() as cache, listening("127.0.0.1", 0) as at:
        port = at.getsockname()[1]
        app = application([pathsum.open(model) for model in models], Settings(port=port, cache=Path(cache)))
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [at]}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{port}"
        server.should_exit = True
        thread.join(20)


def picture(page: Page, path: Path) -> None:
    """What is seen of the page, as WebP."""
    chromium = page.context.new_cdp_session(page)
    shot = chromium.send("Page.captureScreenshot", {"format": "webp", "quality": 80})
    path.write_bytes(base64.b64decode(shot["data"]))


if __name__ == "__main__":
    main()
