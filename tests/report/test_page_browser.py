"""The page in a browser, without a network: views answer to pointer and keys, and show hostile tokens as text."""

import pytest
import torch

from browser import chromium, opened  # noqa: F401
from pathsum.paths.logits import Expansion
from pathsum.report.page import report_page
from pathsum.report.tokens import visible
from pathsum.report.views.embedded import sample_run
from pathsum.report.views.path_table import path_table
from pathsum.report.views.token_tables import token_tables


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


def test_a_head_is_chosen_and_its_partners_lead_to_others(chromium, url):  # noqa: F811
    with opened(chromium, url) as page:
        view = shown(page, "head")
        assert view.locator("h3").first.inner_text().startswith("L1H1 induction, copying")
        assert view.get_by_role("img", name="OV eigenvalues of L1H1").count() == 1
        view.get_by_role("button", name="L0H0").first.click()
        assert view.locator("h3").first.inner_text().startswith("L0H0")
        assert view.locator(".head[aria-checked='true']").get_attribute("title").startswith("L0H0")


def test_tables_follow_a_typed_token(chromium, url, hostile):  # noqa: F811
    with opened(chromium, url) as page:
        view = shown(page, "head")
        view.get_by_label("Token", exact=True).fill("script>")
        view.get_by_role("button", name="<script>alert(1)</script>").click()
        tables = view.locator(".token-part .parts")
        expect = token_tables(hostile.tables, "L1H1", torch.tensor([0])).to_dict(hostile.model)
        page.wait_for_function("document.querySelector('.token-part .parts').textContent.includes('alert(1)')")
        rows = tables.locator(".part").first.locator("tbody tr").all_inner_texts()
        assert [row.split("\t")[0] for row in rows] == [name for name, _ in expect["outs"][:5]]
        assert float(rows[0].split("\t")[1]) == pytest.approx(expect["outs"][0][1], rel=0.01)
        view.get_by_label("Token", exact=True).fill("zebra")
        assert "No such token" in view.inner_text()


def test_a_prediction_is_taken_apart_where_one_clicks(chromium, url, hostile):  # noqa: F811
    with opened(chromium, url) as page:
        view = shown(page, "paths")
        view.locator("[data-at='20']").click()
        expected = path_table(Expansion(sample_run(hostile))).view(20)
        page.wait_for_function("document.querySelector('#view-paths .prediction').textContent.includes('position 20')")
        said = view.locator(".prediction").inner_text()
        assert f"{expected.value:+.2f} nats" in said and f"{hostile_paths(expected):,} paths" in said
        assert "Certified" in view.inner_text()
        assert view.locator("tbody tr").first.inner_text().startswith(expected.paths[0]["name"])
        assert view.locator(".drawing .path").count() == min(12, len(expected.paths))
        page.keyboard.press("ArrowRight")
        page.wait_for_function("document.querySelector('#view-paths .prediction').textContent.includes('position 21')")


def hostile_paths(view) -> int:
    return int(sum(row["paths"] for row in view.orders))


def test_hostile_tokens_are_text_in_every_view(chromium, url, hostile_tokens):  # noqa: F811
    with opened(chromium, url) as page:
        for name in ("attention", "head", "paths"):
            view = shown(page, name)
            if name != "head":
                texts = view.locator("[data-at]").evaluate_all("(spans) => spans.map((span) => span.textContent)")
                assert texts[:16] == [visible(token, 60) for token in hostile_tokens]
            for at in range(16) if name != "head" else ():
                view.locator(f"[data-at='{at}']").click()
            assert view.locator("script, img, i, body > b").count() == 0
            assert (
                view.evaluate("(root) => /[\\u202a-\\u202e\\u200b-\\u200f\\u0000-\\u0008]/.test(root.textContent)")
                is False
            )


@pytest.mark.parametrize("width", [400, 1600])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_the_window(chromium, url, width, scheme):  # noqa: F811
    size = {"width": width, "height": 800}
    with opened(chromium, url, viewport=size, color_scheme=scheme) as page:
        for view in ("attention", "head", "paths"):
            shown(page, view)
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_rows_are_sorted_and_filtered(chromium, url):  # noqa: F811
    with opened(chromium, url) as page:
        page.locator("#table-eigenvalues summary").click()
        table, count = page.locator("#rows-eigenvalues"), page.locator("#rows-eigenvalues tbody tr:visible")
        page.locator("[data-table='rows-eigenvalues']").fill("l0h1 ov")
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


def test_models_of_any_depth_have_their_views(chromium, plain, tmp_path):  # noqa: F811
    subject, found = plain
    path = tmp_path / "report.html"
    path.write_text(report_page(subject, found), encoding="utf-8")
    with opened(chromium, path.as_uri()) as page:
        assert shown(page, "paths").locator(".prediction").count() == 1
        for view in ("attention", "head") if subject.head_names else ():
            assert shown(page, view).locator(".head").count() == len(subject.head_names)
        assert page.get_by_text("could not be drawn").count() == 0
