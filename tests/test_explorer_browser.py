"""The explorer in a browser, as a person uses it: prompts, targets, two models, a cancelled job, hostile tokens."""

import socket
import threading
import time
from collections.abc import Iterator

import httpx2
import pytest
import uvicorn
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

import cases
import pathsum
from accessible import violations
from browser import chromium, opened  # noqa: F401
from pathsum import toys
from pathsum.explorer.app import application
from pathsum.explorer.settings import Settings
from report.conftest import HOSTILE

PAGES = ("", "heads", "head?head=L1H1", "composition", "attention", "paths", "readings?reading=composition")

PATIENCE = 300_000
"""Milliseconds."""


@pytest.fixture(scope="module")
def here(tmp_path_factory) -> Iterator[str]:
    """Of a server with a real model, another beside it, one whose tokens try to break every page, and a rotary one."""
    folder = tmp_path_factory.mktemp("explorer")
    tokenizer = Tokenizer(WordLevel({token: index for index, token in enumerate(HOSTILE)}, unk_token="🦊"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    pathsum.save(folder / "hostile", toys.induction_model(d_vocab=len(HOSTILE), n_ctx=48).weights, tokenizer)
    pathsum.save(folder / "rotary", cases.BY_NAME["three_layers_rotary_rms"].weights)
    models = [pathsum.open(name) for name in ("two-layer-small", "two-layer", folder / "hostile", folder / "rotary")]
    with socket.create_server(("127.0.0.1", 0)) as at:
        port = at.getsockname()[1]
        app = application(models, Settings(port=port, cache=folder / "cache"))
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [at]}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{port}"
        server.should_exit = True
        thread.join(20)


def settled(page) -> None:
    """Until nothing is being made any more, and what is drawn has been drawn."""
    page.locator(".job").first.wait_for(state="detached", timeout=PATIENCE)
    page.wait_for_load_state("networkidle")
    assert page.locator(".job, .notice").count() == 0


@pytest.mark.parametrize("path", PAGES)
def test_every_page_is_made_drawn_and_accessible(chromium, here, path):  # noqa: F811
    with opened(chromium, f"{here}/{path}", allowed=here) as page:
        settled(page)
        assert page.locator("h1").count() == 1
        assert page.locator("figure svg, .view > *, table, .facts").count() > 0
        assert violations(page) == []


@pytest.mark.parametrize("path", PAGES)
def test_no_page_is_wider_than_a_telephone(chromium, here, path):  # noqa: F811
    with opened(chromium, f"{here}/{path}", allowed=here, viewport={"width": 400, "height": 800}) as page:
        settled(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= 400


def test_a_typed_prompt_is_run_and_a_link_shows_the_same(chromium, here):  # noqa: F811
    with opened(chromium, f"{here}/attention", allowed=here) as page:
        page.get_by_label("Prompt").fill("one two one two one")
        page.get_by_role("button", name="Run").click()
        page.wait_for_url("**prompt=one+two+one+two+one*")
        tokens = page.locator("[data-view='attention'] [role='option']")
        tokens.first.wait_for()
        shown = tokens.all_inner_texts()
        page.locator(".head").nth(5).click()
        page.wait_for_url("**head=L1H1*")
        link = page.url
    with opened(chromium, link, allowed=here) as page:
        page.locator("[data-view='attention'] [role='option']").first.wait_for()
        assert page.locator("[data-view='attention'] [role='option']").all_inner_texts() == shown
        assert page.locator(".head[aria-checked='true']").get_attribute("title").startswith("L1H1")


def test_a_target_is_taken_apart_and_going_back_shows_what_was_before(chromium, here):  # noqa: F811
    with opened(chromium, f"{here}/paths?prompt=one+two+one", allowed=here) as page:
        settled(page)
        before = page.locator(".prediction").inner_text()
        page.get_by_label("Target").fill(" the")
        page.get_by_role("button", name="Run").click()
        page.wait_for_url("**target=*the*")
        settled(page)
        assert "·the" in page.locator(".prediction").inner_text()
        page.go_back()
        page.locator(".prediction").filter(has_text=before).wait_for()


def test_two_models_are_compared(chromium, here):  # noqa: F811
    with opened(chromium, f"{here}/attention", allowed=here) as page:
        page.get_by_label("beside").select_option("two-layer")
        page.wait_for_url("**versus=two-layer*")
        views = page.locator("[data-view='attention']")
        for view, heads in ((0, 8), (1, 24)):
            views.nth(view).locator(".head").nth(heads - 1).wait_for()
        assert [view.locator(".head").count() for view in views.all()] == [8, 24]


def test_a_job_is_cancelled(chromium, here):  # noqa: F811
    with opened(chromium, f"{here}/readings?model=two-layer&reading=bugs&count=7", allowed=here) as page:
        page.get_by_role("button", name="Cancel").click()
        page.get_by_text("Cancelled.").wait_for()
        page.get_by_role("link", name="Start again").wait_for()
    jobs = httpx2.get(f"{here}/api/jobs").json()
    assert [job["state"] for job in jobs if job["model"] == "two-layer"][-1] == "cancelled"


def test_a_page_of_another_origin_can_start_nothing(chromium, here):  # noqa: F811
    elsewhere = here.replace("127.0.0.1", "localhost")
    asked = chromium.new_context().new_page()
    asked.goto(f"{elsewhere}/static/page.css")
    answer = asked.evaluate(
        "(url) => fetch(url, {method: 'POST', mode: 'no-cors'}).then((a) => a.type, (error) => String(error))",
        f"{here}/start/heads?model=two-layer-small",
    )
    refused = httpx2.post(f"{here}/start/heads?model=two-layer-small", headers={"origin": elsewhere})
    assert refused.status_code == 403 and refused.json()["error"] == "ForeignOrigin"
    assert answer in ("opaque", "TypeError: Failed to fetch")


@pytest.mark.parametrize("path", ["", "heads", "head?head=L1H1", "attention", "paths", "readings?reading=entries"])
def test_hostile_tokens_are_text_on_every_page(chromium, here, path):  # noqa: F811
    more = f"{'&' if '?' in path else '?'}model=hostile"
    prompt = "&prompt=</script><!--]]>" if path in ("attention", "paths") else ""
    with opened(chromium, f"{here}/{path}{more}{prompt}", allowed=here) as page:
        page.on("dialog", lambda dialog: pytest.fail(dialog.message))
        settled(page)
        time.sleep(0.3)
        assert page.locator("img[src='x']").count() == 0
        assert page.locator("main script:not([type='application/json'])").count() == 0


def test_a_rotary_heads_tables_are_at_a_distance_that_is_chosen(chromium, here):  # noqa: F811
    with opened(chromium, f"{here}/head?model=rotary&head=L1H0&token=3", allowed=here) as page:
        settled(page)
        field = page.get_by_label("Distance")
        page.get_by_text("before the softmax, at Δ 1").first.wait_for()
        assert field.input_value() == "1"
        field.fill("99")
        field.press("Enter")
        assert page.get_by_text("at Δ 99").count() == 0 and "distance=1" in page.url
        field.fill("2")
        field.press("Enter")
        page.wait_for_url("**distance=2*")
        page.get_by_text("before the softmax, at Δ 2").first.wait_for()
        link = page.url
    with opened(chromium, link, allowed=here) as page:
        settled(page)
        page.get_by_text("before the softmax, at Δ 2").first.wait_for()
        assert page.get_by_label("Distance").input_value() == "2"
    with opened(chromium, f"{here}/head?model=two-layer-small&head=L1H0&token=the", allowed=here) as page:
        settled(page)
        page.get_by_text("QK, before the softmax").first.wait_for()
        assert not page.get_by_label("Distance").is_visible()
