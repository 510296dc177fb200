"""The page for those who cannot see it, or use no mouse; and how long one waits for it."""

import pytest

from accessible import violations
from browser import chromium, opened  # noqa: F401
from pathsum.report.page import report_page


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(chromium, tmp_path, hostile, results, scheme):  # noqa: F811
    path = tmp_path / "report.html"
    path.write_text(report_page(hostile, results), encoding="utf-8")
    with opened(chromium, path.as_uri(), color_scheme=scheme) as page:
        page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
        for view in page.locator(".view").all():
            view.scroll_into_view_if_needed()
            view.locator("> *:not(noscript)").first.wait_for()
        assert violations(page) == []
