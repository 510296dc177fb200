"""Makes the prose that the built-in models were trained on.

    git clone https://github.com/mlschmitt/classic-books-markdown
    git -C classic-books-markdown checkout 9448827
    python scripts/classics.py classic-books-markdown classics.txt.xz

1. Titles dated 1928 or earlier are selected (`## Year:` in a file's head), so that all is in the public domain.
2. Headings, rules and marks of emphasis are removed; a paragraph becomes one line.
3. Books are put in an order that depends on nothing but their names, so that the first few MB are a fair sample.
4. Paragraphs are separated by one blank line, books by two; the text is packed as `.xz`.
"""

import argparse
import hashlib
import html
import lzma
import re
from pathlib import Path

LATEST = 1928
HEAD = re.compile(r"^#+\s*(Title|Author|Year)\s*:\s*(.*)$", re.MULTILINE)
NOT_TEXT = re.compile(r"\s*(#|[-*_]{3,}\s*$|!\[)")
EMPHASIS = re.compile(r"(?<!\w)(\*{1,3}|_{1,3})(?=\S)(.+?)(?<=\S)\1(?!\w)")


def year_of(book: str) -> int | None:
    """The year in a book's head, the latest of several, negative before Christ; None where there is none."""
    head = dict(HEAD.findall(book[:2000]))
    years = [int(year) for year in re.findall(r"\d{1,4}", head.get("Year", ""))]
    if not years:
        return None
    return -max(years) if re.search(r"\bB\.?C", head["Year"]) else max(years)


def plain_text(book: str) -> str:
    """The text of a book: a paragraph a line, a blank line between."""
    lines = ["" if NOT_TEXT.match(line) else line.lstrip("> ") for line in book.replace("\r\n", "\n").split("\n")]
    paragraphs = [" ".join(block.split()) for block in re.split(r"\n\s*\n", "\n".join(lines))]
    return html.unescape("\n\n".join(_without_emphasis(paragraph) for paragraph in paragraphs if paragraph))


def _without_emphasis(paragraph: str) -> str:
    """Also of emphasis within emphasis."""
    while (plain := EMPHASIS.sub(r"\2", paragraph)) != paragraph:
        paragraph = plain
    return plain


def select(clone: Path) -> list[str]:
    """The texts of all books that are old enough."""
    texts = {}
    for path in clone.glob("*/*.md"):
        book = path.read_text(encoding="utf-8")
        year = year_of(book)
        if year is not None and year <= LATEST:
            texts[path.relative_to(clone).as_posix()] = plain_text(book)
    return [texts[name] for name in sorted(texts, key=lambda name: hashlib.sha256(name.encode()).digest())]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clone", type=Path, help="the cloned repository")
    parser.add_argument("out", type=Path, help="the file to write, classics.txt.xz")
    chosen = parser.parse_args()
    books = select(chosen.clone)
    if not books:
        parser.error(f"{chosen.clone} holds no books of {LATEST} or earlier; is it the cloned repository?")
    text = "\n\n\n".join(books)
    chosen.out.write_bytes(lzma.compress(text.encode()))
    print(f"{chosen.out}: {len(books)} books, {len(text.encode()) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
