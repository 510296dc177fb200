"""Texts to train on: files, folders and the standard library's source become one list of documents.

1. A source is a file, a folder, or the word `python`; `SOURCE@28MB` takes the first 28 MB of it.
2. Bytes become text (UTF-8 only), records of `.jsonl` and `.parquet` become documents of their own.
3. Long prose is cut at paragraphs into pieces of about 40 kB; a file of code stays whole.
4. `Corpus.shuffled(seed)` mixes the documents, so that prose and code alternate through a run.
"""

import hashlib
import random
import re
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pathsum.errors import TextError
from pathsum.training.formats import SUFFIXES, Piece, pieces_of

PYTHON = "python"
PIECE = 40_000
"""Characters of prose in a document, about."""
UNITS = {"kB": 10**3, "MB": 10**6, "GB": 10**9}
NOT_LIBRARY = {"site-packages", "dist-packages", "test", "tests", "idlelib", "__pycache__"}


@dataclass(frozen=True)
class Corpus:
    """Documents in the order of their sources, and the sha256 of them all."""

    documents: tuple[str, ...]
    digest: str

    def shuffled(self, seed: int) -> list[str]:
        """The documents in an order that depends on `seed` alone."""
        order = list(self.documents)
        random.Random(seed).shuffle(order)
        return order


def read_corpus(sources: Sequence[str | Path]) -> Corpus:
    """The documents of all sources, in order.

    Raises `TextError` for a source that is missing, empty, of an unknown format, or not UTF-8 (with file and byte).
    """
    documents: list[str] = []
    for source in sources:
        documents += _documents(str(source))
    if not documents:
        raise TextError("no text to train on; pass --text with files, folders, or the word python")
    digest = hashlib.sha256()
    for document in documents:
        digest.update(document.encode())
        digest.update(b"\0")
    return Corpus(tuple(documents), digest.hexdigest())


def split_cap(source: str) -> tuple[str, int | None]:
    """`"books@28MB"` → `("books", 28_000_000)`; without a cap, or where a file is called so, `(source, None)`."""
    match = re.fullmatch(r"(.+)@(\d+(?:\.\d+)?)(kB|MB|GB)", source)
    if match is None or Path(source).exists():
        return source, None
    return match[1], int(float(match[2]) * UNITS[match[3]])


def _documents(source: str) -> list[str]:
    name, cap = split_cap(source)
    found = [document for piece in _capped(name, cap) for document in _cut(piece)]
    if not found:
        raise TextError(f"{name} has no text in it")
    return found


def _capped(name: str, cap: int | None) -> Iterator[Piece]:
    """The pieces of all files, up to `cap` bytes of UTF-8."""
    left = cap
    for path in _files(name):
        for piece in pieces_of(path, left):
            if left is not None:
                size = len(piece.text.encode())
                if size > left:
                    piece = Piece(piece.text.encode()[:left].decode(errors="ignore"), piece.code)
                left -= min(size, left)
            yield piece
            if left == 0:
                return


def _files(name: str) -> list[Path]:
    if name == PYTHON:
        return _library()
    path = Path(name)
    if name and path.exists() and not path.is_dir():
        return [path]
    if not name or not path.is_dir():
        raise TextError(f"{name or repr(name)} does not exist; a text is a file, a folder, or the word python")
    files = [file for file in sorted(path.rglob("*")) if file.is_file() and _readable(file.relative_to(path))]
    if not files:
        raise TextError(f"{name} holds no file that ends in {', '.join(SUFFIXES)} (or one of these and .gz or .xz)")
    return files


def _readable(path: Path) -> bool:
    suffixes = [suffix for suffix in path.suffixes if suffix not in (".gz", ".xz")]
    return bool(suffixes) and suffixes[-1] in SUFFIXES and not any(part.startswith(".") for part in path.parts)


def _library() -> list[Path]:
    """The running Python's standard library, without its tests and without installed packages."""
    root = Path(sysconfig.get_paths()["stdlib"])
    files = [file for file in root.rglob("*.py") if not NOT_LIBRARY & set(file.relative_to(root).parts)]
    if not files:
        raise TextError(f"this Python has no source of its library in {root}; pass --text with files of your own")
    return sorted(files, key=lambda file: file.relative_to(root).as_posix())


def _cut(piece: Piece) -> list[str]:
    """Code whole, prose in pieces of whole paragraphs."""
    if piece.code or len(piece.text) <= PIECE:
        return [piece.text] if piece.text.strip() else []
    cut: list[str] = []
    start = 0
    while start < len(piece.text):
        end = len(piece.text) if start + PIECE >= len(piece.text) else _paragraph_end(piece.text, start)
        cut.append(piece.text[start:end])
        start = end
    return [text for text in cut if text.strip()]


def _paragraph_end(text: str, start: int) -> int:
    """Just after the last blank line before `start + PIECE`, else the last line, else there."""
    stop = start + PIECE
    for border in ("\n\n", "\n"):
        found = text.rfind(border, start + PIECE // 2, stop)
        if found >= 0:
            return found + len(border)
    return stop
