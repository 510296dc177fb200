import importlib.util
import lzma
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "classics.py"
HEAD = "# Title: {title}\n\n## Author: A\n\n## Year: {year}\n\n-------\n\n"


@pytest.fixture(scope="module")
def classics() -> ModuleType:
    spec = importlib.util.spec_from_file_location("classics", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("year", "found"), [("1889", 1889), ("1927-1931", 1931), ("circa 380 B.C.E.", -380), ("unknown", None), ("", None)]
)
def test_a_book_is_dated_by_its_head(classics: ModuleType, year: str, found: int | None) -> None:
    assert classics.year_of(HEAD.format(title="T", year=year) + "Year: 1700") == found


def test_headings_and_emphasis_go_and_a_paragraph_is_one_line(classics: ModuleType) -> None:
    book = "## I\n\n_And though *amidst* the\ncalm_ of thought\n\n***\n\n> quoted &amp; kept, snake_case too\n"
    assert classics.plain_text(book) == "And though amidst the calm of thought\n\nquoted & kept, snake_case too"


def test_old_books_are_packed_two_blank_lines_apart(
    classics: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "clone" / "Author"
    folder.mkdir(parents=True)
    for title, year in (("old", "1889"), ("older", "1810"), ("new", "1951")):
        (folder / f"{title}.md").write_text(HEAD.format(title=title, year=year) + f"The {title} one.")
    monkeypatch.setattr(sys, "argv", ["classics.py", str(tmp_path / "clone"), str(tmp_path / "classics.txt.xz")])
    classics.main()
    books = lzma.decompress((tmp_path / "classics.txt.xz").read_bytes()).decode().split("\n\n\n")
    assert sorted(books) == ["The old one.", "The older one."]


def test_a_folder_without_old_books_is_refused(
    classics: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["classics.py", str(tmp_path), str(tmp_path / "out.xz")])
    with pytest.raises(SystemExit):
        classics.main()
    assert "is it the cloned repository?" in capsys.readouterr().err
