"""The page in a browser, without a network: views answer to pointer and keys, and show hostile tokens as text."""

import pytest

from browser import chromium, opened  # noqa: F401
from pathsum.report.page import report_page
from pathsum.report.tokens import visible


@pytest.fixture(scope="module")
def url(tmp_path_factory, hostile, results) -> str:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(report_page(hostile, results), encoding="utf-8")
    return path.as_uri()


def shown(page, view: str):
    """A view, drawn."""
    page.locator(f"#{view}").scroll_into_view_if_needed()
    page.wait_for_selector(f"#view-{view} > *:not(noscript)")
    return page.locator(f"#view-{view}")


def test_attention_is_shown_from_and_to_a_token(chromium, url):  # noqa: F811
    with opened(chromium, url) as page:
        view = shown(page, "attention")
        assert view.get_by_role("radio", checked=True).first.get_attribute("title").startswith("L1H1, induction")
        # The hostile text is sixteen tokens, three times: from 20 the head looks at 5, which came after 4.
        view.locator("[data-at='20']").click()
        shade = "(at) => getComputedStyle(document.querySelector(`#view-attention [data-at='${at}']`))"
        looks = page.evaluate(f"[4, 5, 6].map((at) => Number(({shade})(at).getPropertyValue('--looks')))")
        assert looks[1] > 0.9 and looks[0] < 0.1 and looks[2] < 0.1
        view.locator("[data-at='5']").click()
        seen = page.evaluate(f"[19, 20, 21].map((at) => Number(({shade})(at).getPropertyValue('--seen')))")
        assert seen[1] > 0.9 and seen[0] < 0.1 and seen[2] < 0.1


def test_attention_is_reached_by_keys(chromium, url):  # noqa: F811
    with opened(chromium, url) as page:
        view = shown(page, "attention")
        view.locator("[data-at='20']").click()
        page.keyboard.press("ArrowLeft")
        assert view.locator("[aria-selected='true']").get_attribute("data-at") == "19"
        page.keyboard.press("Home")
        assert view.locator("[aria-selected='true']").get_attribute("data-at") == "0"
        head = view.locator(".head[aria-checked='true']")
        head.focus()
        page.keyboard.press("ArrowLeft")
        assert head.get_attribute("title").startswith("L1H0") and "L1H0 at" in view.locator(".said").inner_text()
        for mode in ("value-weighted", "effect on the next token's logit"):
            view.get_by_label(mode).check()
        assert "effect on" in view.locator(".said").inner_text()


def test_hostile_tokens_are_text_in_every_view(chromium, url, hostile_tokens):  # noqa: F811
    with opened(chromium, url) as page:
        view = shown(page, "attention")
        texts = view.locator("[data-at]").evaluate_all("(spans) => spans.map((span) => span.textContent)")
        assert texts[:16] == [visible(token, 60) for token in hostile_tokens]
        assert page.locator("main b:has(script), .view script, .view img").count() == 0


@pytest.mark.parametrize("width", [400, 1600])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_the_window(chromium, url, width, scheme):  # noqa: F811
    size = {"width": width, "height": 800}
    with opened(chromium, url, viewport=size, color_scheme=scheme) as page:
        shown(page, "attention")
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_rows_are_sorted_and_filtered(chromium, url):  # noqa: F811
    with opened(chromium, url) as page:
        page.locator("#table-eigenvalues summary").click()
        table, count = page.locator("#rows-eigenvalues"), page.locator("#rows-eigenvalues tbody tr:visible")
        page.get_by_label("Filter rows of", exact=False).and_(page.locator("[data-table='rows-eigenvalues']")).fill(
            "l1h1 ov"
        )
        rows = count.all_inner_texts()
        assert rows and all("L0H1" in row and "OV" in row for row in rows)
        table.get_by_role("button", name="real").click()
        values = [float(text.replace("−", "-")) for text in count.locator("td:nth-child(3)").all_inner_texts()]
        assert values == sorted(values, reverse=True)


def test_all_tables_are_open_on_paper(chromium, url):  # noqa: F811
    with opened(chromium, url) as page:
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.locator("details:not([open])").count() == 0
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert page.locator("details[open]").count() == 0
