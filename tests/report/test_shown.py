"""Results show themselves in a notebook: without a network, and with tokens as text whatever they are."""

import base64
import inspect
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import pytest

import pathsum
from browser import chromium, opened  # noqa: F401
from pathsum.report.figures import save_figure
from pathsum.report.shown import Shown, shown
from pathsum.report.standalone import figure_page
from pathsum.report.tokens import visible
from pathsum.study.readings import public
from pathsum.study.result import Result, read_one


class Elements(HTMLParser):
    """The elements of a page, and its text."""

    def __init__(self, page: str):
        super().__init__()
        self.found: list[tuple[str, dict]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data

    def of(self, tag: str) -> list[dict]:
        return [attributes for name, attributes in self.found if name == tag]


@pytest.fixture(scope="module")
def bigrams(hostile) -> Shown:
    """A result whose cells and figure are full of hostile tokens."""
    return Shown.of(read_one("bigram_pairs", hostile))


def test_every_exported_reading_gives_a_result_that_shows_itself():
    model = pathsum.open("two-layer-small")
    for result in (pathsum.composition(model), pathsum.prompt_lens(model, "the cat"), pathsum.describe(model)):
        assert isinstance(result, Shown) and isinstance(result, Result)
    assert pathsum.describe(model).figure is None
    assert pathsum.prompt_lens(model, "the cat").figure.description.startswith("Log-probability")


def test_what_is_exported_has_the_signature_and_the_words_of_what_computes_it():
    for name in ("composition", "attention", "trigrams"):
        below, above = public(name), getattr(pathsum, name)
        assert inspect.signature(above) == inspect.signature(below) and above.__doc__ == below.__doc__
        assert above.__name__ == name and above is getattr(pathsum, name)


def test_the_face_changes_neither_table_nor_manifest(hostile):
    plain = read_one("composition", hostile)
    face = shown(lambda: plain)()
    assert face.frame is plain.frame and face.to_dict() == plain.to_dict()


def test_a_result_is_its_title_its_figure_its_caption_and_its_first_rows(results):
    page = Elements(Shown.of(results["composition"])._repr_html_())
    assert "Composition of heads, <b>toy</b> & co" in page.text
    assert "width is the effect" in page.text and f"10 of {len(results['composition'].frame)} rows" in page.text
    (image,) = page.of("img")
    assert image["alt"].startswith("Heads in columns by layer")
    drawn = base64.b64decode(image["src"].removeprefix("data:image/svg+xml;base64,"))
    assert ElementTree.fromstring(drawn).tag.endswith("svg")
    assert len(page.of("tr")) == 11
    assert page.of("th")[-1]["title"] == "score − baseline; negative: the heads avoid each other"


def test_cells_have_room_stay_on_their_line_and_numbers_stand_under_their_heads(results):
    """Some notebooks style no tables: without room of its own one number would run into the next."""
    page = Elements(Shown.of(results["composition"])._repr_html_())
    heads, cells = page.of("th"), page.of("td")
    styles = [cell["style"] for cell in cells]
    assert all(style.startswith("padding: 0.2em 0.7em; white-space: nowrap;") for style in styles)
    assert styles[: len(heads)] == [head["style"] for head in heads] and "text-align: right" in styles[-1]
    assert "text-align: left" in styles[0]


def test_tokens_of_a_prompts_paths_keep_their_spaces():
    found = pathsum.prompt_paths(pathsum.open("two-layer-small"), "the cat sat on the cat")
    tokens = found.frame["token"].to_list()[:10]
    assert any(token.startswith(" ") for token in tokens)
    assert re.findall("<bdi>(.*?)</bdi>", found._repr_html_()) == [visible(token) for token in tokens]


def test_a_result_without_a_figure_is_its_table(results):
    page = Elements(Shown.of(results["describe"])._repr_html_())
    assert not page.of("img") and not page.of("figcaption") and page.of("td")


def test_a_result_without_rows_says_why(hostile):
    from pathsum.report.results import run_readings

    page = Elements(Shown.of(run_readings(hostile, only=["pointer"])["pointer"])._repr_html_())
    assert "pointer arithmetic is of learned positions" in page.text and not page.of("img")


def test_hostile_tokens_are_text_in_the_table_and_in_the_image(bigrams, hostile_tokens):
    page = Elements(bigrams._repr_html_())
    assert {tag for tag, _ in page.found} <= {
        "div", "p", "strong", "figure", "img", "figcaption", "table", "thead", "tbody", "tr", "th", "td", "bdi"
    }  # fmt: skip
    assert all(not name.startswith("on") for _, attributes in page.found for name in attributes)
    assert "</script>" in page.text and "<!--" in page.text and "<U+202E>" in page.text
    assert "\u202e" not in page.text and max(map(len, page.text.split("\n"))) < 2000
    assert set(hostile_tokens) & {token for row in bigrams.rows() for token in (row["first"], row["second"])}
    assert "<script" not in bigrams.figure.svg


def test_nothing_in_a_result_is_loaded_from_anywhere(results):
    for name in ("composition", "eigenvalues", "importance"):
        page = Elements(Shown.of(results[name])._repr_html_())
        linked = [attributes[key] for _, attributes in page.found for key in ("src", "href") if key in attributes]
        assert all(link.startswith("data:") for link in linked) and not page.of("script")


def test_a_figure_of_very_many_marks_is_an_image_of_points(results, monkeypatch):
    monkeypatch.setattr("pathsum.report.shown.LARGEST", 100)
    drawn = Shown.of(results["composition"]).figure.image()
    assert base64.b64decode(drawn.removeprefix("data:image/png;base64,")).startswith(b"\x89PNG")


def test_text_is_a_title_and_the_table(results):
    lines = repr(Shown.of(results["repeats"])).split("\n")
    assert lines[0] == "Loss on repeated random tokens, <b>toy</b> & co" and "weights_sha256" not in repr(lines)


# ---- the figure by itself ----


def test_a_figure_is_a_page_in_a_sandbox(bigrams):
    (frame,) = Elements(bigrams.figure._repr_html_()).of("iframe")
    assert frame["sandbox"] == "allow-scripts" and "Content-Security-Policy" in frame["srcdoc"]
    assert frame["title"] == bigrams.figure.description
    assert frame["srcdoc"] == figure_page(bigrams.figure.specification)


def test_a_page_of_a_figure_is_ended_by_no_token(bigrams):
    page = figure_page(bigrams.figure.specification)
    assert page.count("</script>") == 2 and page.rstrip().endswith("</html>")
    data = page[page.rindex("<script>") : page.rindex("</script>")]
    assert "<" not in data.removeprefix("<script>") and "\\u003c" in data


def test_a_figure_is_saved_by_its_name(results, tmp_path):
    figure = Shown.of(results["repeats"]).figure
    for name in ("a.svg", "a.png", "a.pdf", "a.html"):
        figure.save(tmp_path / name)
        assert (tmp_path / name).stat().st_size > 1000
    with pytest.raises(pathsum.PathsumError, match=r"none of \.svg"):
        figure.save(str(tmp_path / "a.doc"))


def test_a_saved_page_draws_itself_without_a_network(bigrams, results, tmp_path, chromium):  # noqa: F811
    for name, figure in (("bigrams", bigrams.figure), ("composition", Shown.of(results["composition"]).figure)):
        place = tmp_path / f"{name}.html"
        save_figure(figure.chart, place)
        with opened(chromium, place.as_uri()) as page:
            page.wait_for_selector("#figure svg path")
            assert page.locator("#figure svg").count() == 1
            if name == "composition":
                assert page.locator("input[type=range]").count() == 1


def test_a_notebook_page_with_hostile_tokens_shows_them_and_loads_nothing(bigrams, tmp_path, chromium):  # noqa: F811
    place = tmp_path / "notebook.html"
    place.write_text(
        f"<!doctype html><meta charset=utf-8>{bigrams._repr_html_()}{bigrams.figure._repr_html_()}", encoding="utf-8"
    )
    with opened(chromium, place.as_uri()) as page:
        page.on("dialog", lambda dialog: pytest.fail(dialog.message))
        page.locator("iframe").scroll_into_view_if_needed()
        page.frames[1].wait_for_selector("#figure svg path")
        assert page.locator("img").evaluate("image => image.naturalWidth") > 300
        assert page.locator("td bdi").first.is_visible()


def test_the_size_of_a_frame_leaves_room_for_the_controls(results):
    with_controls, without = (Shown.of(results[name]).figure for name in ("composition", "repeats"))
    frames = [Elements(figure._repr_html_()).of("iframe")[0] for figure in (with_controls, without)]
    heights = [int(re.search(r"; height: (\d+)px", frame["style"])[1]) for frame in frames]
    assert heights[0] >= with_controls.size[1] + 3 * 28 and heights[1] >= without.size[1]
