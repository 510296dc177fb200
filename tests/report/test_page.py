"""The page needs no network, shows hostile tokens as text, and tells the story for any model."""

import json
import re
from html.parser import HTMLParser

import polars as pl
import pytest

from pathsum.report.page import as_script, report_page, vega_bundle
from pathsum.report.tables import reading_table
from pathsum.report.tokens import printable, visible
from pathsum.study.result import Result


class Seen(HTMLParser):
    """Tags with their attributes, text by the tag it is in, and what scripts hold."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.scripts: dict[str, str] = {}
        self._script: str | None = None
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self._script = dict(attrs).get("id") or f"script {len(self.scripts)}"
            self.scripts[self._script] = ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            self._script = None

    def handle_data(self, data: str) -> None:
        if self._script is None:
            self.text += data
        else:
            self.scripts[self._script] += data


@pytest.fixture(scope="module")
def page(hostile, hostile_tokens, results) -> str:
    """The page, with every hostile token in the table of entries."""
    columns = {"row": hostile_tokens, "source": hostile_tokens[::-1]}
    entries = Result(results["entries"].reading, pl.DataFrame(columns), results["entries"].manifest)
    return report_page(hostile, {**results, "entries": entries})


@pytest.fixture(scope="module")
def seen(page) -> Seen:
    return Seen(page)


def test_nothing_is_loaded(page, seen):
    assert not [
        tag for tag, attributes in seen.tags if "src" in attributes or tag in ("link", "img", "iframe", "object")
    ]
    targets = [attributes["href"] for _, attributes in seen.tags if "href" in attributes]
    assert targets and all(target.startswith("#") for target in targets)
    own = page.replace(vega_bundle(), "")
    assert "@import" not in own and "url(" not in own
    assert "http" not in re.sub(r"http-equiv|https?://www\.w3\.org|https://vega\.github\.io/schema", "", own)
    policy = next(attributes["content"] for tag, attributes in seen.tags if "http-equiv" in attributes)
    assert policy.startswith("default-src 'none'")


def test_there_are_exactly_our_scripts(seen):
    names = list(seen.scripts)
    assert [name for name in names if not name.startswith(("spec-", "script ", "data-"))] == ["chart-theme"]
    assert sum(name.startswith("script ") for name in names) == 2
    assert len(vega_bundle()) > 500_000 and "</script" not in vega_bundle()


def test_every_figure_finds_its_specification(seen):
    wanted = [attributes["data-spec"] for _, attributes in seen.tags if "data-spec" in attributes]
    assert len(wanted) == 15
    for name in wanted:
        assert json.loads(seen.scripts[name])["$schema"]


def test_hostile_names_and_tokens_are_text(page, seen, hostile_tokens):
    assert "<b>toy</b> & co" in seen.text and "<i>ids</i>" in seen.text
    assert all(visible(token, 120) in seen.text for token in hostile_tokens)
    assert "<U+202E>right" in seen.text and "<U+200B>zero<U+200D>width" in seen.text and "שלום" in seen.text
    assert "\u202e" not in page and "\u200b" not in page and "\x00" not in page and "x" * 1000 not in page
    assert not {tag for tag, _ in seen.tags} & {"b", "i", "img"}
    assert not [attributes for _, attributes in seen.tags if any(name.startswith("on") for name in attributes)]


def test_embedded_json_cannot_end_its_script(hostile_tokens):
    embedded = str(as_script(hostile_tokens))
    assert "<" not in embedded and ">" not in embedded and "&" not in embedded
    assert json.loads(embedded) == hostile_tokens


def test_the_story_is_in_order(seen):
    titles = ["What heads there are", "How they compose", "Induction, step by step", "What the terms are worth",
              "Attention on text"]  # fmt: skip
    places = [seen.text.index(title) for title in [*titles, "Click a column's name", "What all of these numbers"]]
    assert places == sorted(places)
    assert "L0H0 → L1H1" in seen.text and "Strongest avoidance" in seen.text


def test_every_table_is_there_and_a_long_one_says_what_was_cut(results, seen):
    names = {attributes["id"] for tag, attributes in seen.tags if tag == "details"}
    assert names == {f"table-{name}" for name in results}
    long = reading_table(results["eigenvalues"], rows=5)
    assert len(long.rows) == 5 and long.total == len(results["eigenvalues"].frame) > 200
    assert "The first 200 rows" in seen.text


def test_undefined_is_a_dash_and_no_number(results):
    column = results["spectra"].frame.with_columns(copying_score=float("nan"))
    table = reading_table(Result(results["spectra"].reading, column, {}))
    assert table.rows[0][1].text == "–" and table.rows[0][1].sort == ""


def test_models_of_any_depth_without_tokenizer_have_a_page(plain):
    subject, found = plain
    page = Seen(report_page(subject, found))
    assert subject.model.name in page.text
    if not subject.model.spec.n_layers:
        assert "zero-layer transformer" in page.text and "The model has no heads." in page.text
    if subject.model.spec.n_layers == 1:
        assert "of 3 heads copy (paper: 10 of 12)" in page.text and "nothing composes" in page.text


def test_the_page_of_some_readings_alone_is_a_page(hostile, results):
    page = Seen(report_page(hostile, {"composition": results["composition"]}))
    assert [attributes["data-spec"] for _, attributes in page.tags if "data-spec" in attributes] == [
        "spec-diagram", "spec-effects"]  # fmt: skip


def test_spaces_and_line_ends_of_tokens_are_marked():
    assert visible(" the\n\tx") == "·the⏎⇥x"
    assert visible("e\u0301") == "e\u0301" and visible("\u0301") == "<U+0301>"
    assert visible("abcdef", 4) == "abc…" and printable("a  b\nc") == "a b c"
