"""How a file becomes text: `.txt .md .py .jsonl .parquet`, each also packed as `.gz` or `.xz`."""

import codecs
import gzip
import json
import lzma
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pathsum.errors import TextError

SUFFIXES = (".txt", ".md", ".py", ".jsonl", ".parquet")
PACKED: dict[str, Callable] = {".gz": gzip.open, ".xz": lzma.open}


@dataclass(frozen=True)
class Piece:
    """One text, and whether it is code (which is kept whole)."""

    text: str
    code: bool


def pieces_of(path: Path, limit: int | None = None) -> Iterator[Piece]:
    """The texts of one file, of which at least the first `limit` bytes are read.

    A file is one text, except that `.jsonl` gives one a line (its `text` field) and `.parquet` one a row (its `text`
    column). Raises `TextError` naming the file, and the byte or line at fault.
    """
    name = path.name.removesuffix(".gz").removesuffix(".xz")
    kind = Path(name).suffix
    if kind == ".parquet":
        yield from _parquet(path)
    elif kind == ".jsonl":
        yield from _json_lines(path, _text(path, None))
    elif kind in SUFFIXES or path.suffix in PACKED:
        yield Piece(_text(path, limit), kind == ".py")
    else:
        raise TextError(f"{path}: cannot read {kind or 'a file without a suffix'}; texts end in {', '.join(SUFFIXES)}")


def _text(path: Path, limit: int | None) -> str:
    raw, whole = _bytes(path, limit)
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        return decoder.decode(raw, final=whole).replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise TextError(
            f"{path}: byte {error.start} (0x{raw[error.start]:02x}) is not UTF-8; save the text as UTF-8"
        ) from error


def _bytes(path: Path, limit: int | None) -> tuple[bytes, bool]:
    """The file's first `limit` bytes, unpacked, and whether that was all."""
    try:
        with PACKED.get(path.suffix, open)(path, "rb") as file:
            raw = file.read() if limit is None else file.read(limit)
            return raw, limit is None or not file.read(1)
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise TextError(f"{path}: cannot read it ({error})") from error


def _json_lines(path: Path, text: str) -> Iterator[Piece]:
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)["text"]
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise TextError(f'{path}: line {number} is no JSON object with a "text" field') from error
        if not isinstance(found, str):
            raise TextError(f'{path}: line {number} is no JSON object with a "text" field that is text')
        yield Piece(found, code=False)


def _parquet(path: Path) -> Iterator[Piece]:
    import polars

    if path.suffix in PACKED:
        raise TextError(f"{path}: unpack it first; Parquet is compressed inside")
    try:
        column = polars.read_parquet(path, columns=["text"])["text"].cast(polars.String)
    except polars.exceptions.ColumnNotFoundError as error:
        raise TextError(f'{path}: has no column "text"') from error
    except (polars.exceptions.PolarsError, OSError) as error:
        raise TextError(f"{path}: cannot read it as Parquet ({error})") from error
    for text in column.drop_nulls():
        yield Piece(text, code=False)
