"""What axe-core finds wrong with a page as it stands, for those who cannot see it or use no mouse."""

from importlib.resources import files


def violations(page) -> list[str]:
    """Serious and critical ones, each with the first element it concerns."""
    page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8") + "; undefined")
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [
        f"{one['id']}: {one['help']}: {one['nodes'][0]['html'][:200]}"
        for one in found
        if one["impact"] in ("serious", "critical")
    ]
