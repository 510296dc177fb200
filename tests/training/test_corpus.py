import gzip
import json
import lzma
from pathlib import Path

import polars
import pytest

from pathsum.errors import TextError
from pathsum.training.corpus import PIECE, read_corpus, split_cap


def test_every_format_gives_its_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("plain")
    (tmp_path / "b.md").write_text("# marked")
    (tmp_path / "c.py").write_text("x = 1\n")
    (tmp_path / "d.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in ("first", "second")) + "\n\n")
    polars.DataFrame({"text": ["row one", None, "row two"], "other": [1, 2, 3]}).write_parquet(tmp_path / "e.parquet")
    (tmp_path / "f.txt.gz").write_bytes(gzip.compress(b"zipped"))
    (tmp_path / "g.md.xz").write_bytes(lzma.compress(b"packed"))
    (tmp_path / "h.jsonl.gz").write_bytes(gzip.compress(b'{"text": "both"}'))
    (tmp_path / "i.bin").write_bytes(b"\xff\xff")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "j.txt").write_text("unseen")
    assert read_corpus([tmp_path]).documents == (
        "plain", "# marked", "x = 1\n", "first", "second", "row one", "row two", "zipped", "packed", "both",
    )  # fmt: skip


def test_a_packed_file_without_an_inner_suffix_is_a_text(tmp_path: Path) -> None:
    (tmp_path / "books.xz").write_bytes(lzma.compress("été".encode()))
    assert read_corpus([tmp_path / "books.xz"]).documents == ("été",)


def test_the_word_python_is_the_standard_library_without_its_tests() -> None:
    corpus = read_corpus(["python@300kB"])
    assert "".join(corpus.documents).startswith('"""Record of phased-in incompatible language changes.')
    assert sum(len(document.encode()) for document in corpus.documents) == 300_000
    assert corpus.digest == read_corpus(["python@300kB"]).digest


def test_a_cap_takes_the_first_bytes_and_never_half_a_character(tmp_path: Path) -> None:
    (tmp_path / "a.txt.xz").write_bytes(lzma.compress(("é" * 5000).encode()))
    assert read_corpus([f"{tmp_path / 'a.txt.xz'}@1.001kB"]).documents == ("é" * 500,)
    (tmp_path / "b.jsonl").write_text('{"text": "éé"}\n{"text": "never"}')
    assert read_corpus([f"{tmp_path / 'b.jsonl'}@0.003kB"]).documents == ("é",)


def test_a_cap_is_told_from_a_name() -> None:
    assert split_cap("books@28MB") == ("books", 28_000_000)
    assert split_cap("books@1.5GB") == ("books", 1_500_000_000)
    assert split_cap("me@home") == ("me@home", None)


def test_a_file_really_called_so_wins_over_a_cap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes@1kB").write_text("")
    assert split_cap("notes@1kB") == ("notes@1kB", None)


def test_prose_is_cut_at_paragraphs_and_code_stays_whole(tmp_path: Path) -> None:
    paragraph = "word " * 100 + "\n\n"
    (tmp_path / "a.txt").write_text(paragraph * 300)
    (tmp_path / "b.py").write_text("x = 1\n" * PIECE)
    *pieces, code = read_corpus([tmp_path]).documents
    assert "".join(pieces) == paragraph * 300
    assert all(piece.endswith("\n\n") and PIECE // 2 <= len(piece) <= PIECE for piece in pieces[:-1])
    assert code == "x = 1\n" * PIECE


def test_text_without_paragraphs_is_cut_at_lines_or_anywhere(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x" * 30_000 + "\n" + "y" * 2 * PIECE)
    assert [len(piece) for piece in read_corpus([tmp_path]).documents] == [30_001, PIECE, PIECE]


def test_shuffling_depends_on_the_seed_alone(texts: Path) -> None:
    corpus = read_corpus([texts])
    assert corpus.shuffled(1) == corpus.shuffled(1) != corpus.shuffled(2)
    assert sorted(corpus.shuffled(1)) == sorted(corpus.documents)


def test_the_digest_knows_where_documents_end(tmp_path: Path) -> None:
    digests = set()
    for name, pair in (("one", ("ab", "c")), ("two", ("a", "bc"))):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in pair))
        digests.add(read_corpus([tmp_path / f"{name}.jsonl"]).digest)
    assert len(digests) == 2


def test_undecodable_bytes_are_named_with_file_and_offset(tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_bytes(b"fine \xff not")
    with pytest.raises(TextError, match=r"bad\.txt: byte 5 \(0xff\) is not UTF-8"):
        read_corpus([tmp_path / "bad.txt"])


def test_a_file_that_ends_inside_a_character_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cut.txt").write_bytes("été".encode()[:-1])
    with pytest.raises(TextError, match=r"byte 3 \(0xc3\) is not UTF-8"):
        read_corpus([tmp_path / "cut.txt"])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.pdf", b"%PDF", r"a\.pdf: cannot read \.pdf; texts end in \.txt, \.md"),
        ("noname", b"text", "a file without a suffix"),
        ("a.jsonl", b'{"text": "x"}\n{"body": "y"}', r"a\.jsonl: line 2 is no JSON object with a \"text\" field"),
        ("b.jsonl", b"{", "line 1 is no JSON object"),
        ("c.jsonl", b'{"text": 3}', "line 1 is no JSON object"),
        ("a.parquet", b"no parquet", "cannot read it as Parquet"),
        ("a.parquet.gz", b"", "unpack it first"),
        ("a.txt.xz", b"not xz", r"a\.txt\.xz: cannot read it"),
        ("a.txt.gz", gzip.compress(b"text " * 1000, mtime=0)[:30], r"a\.txt\.gz: cannot read it"),
        ("empty.txt", b"", r"empty\.txt has no text in it"),
        ("blank.txt", b" \n\n ", "has no text in it"),
    ],
)
def test_unusable_files_are_one_clear_line(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TextError, match=message) as caught:
        read_corpus([tmp_path / name])
    assert "\n" not in str(caught.value)


def test_a_parquet_file_without_a_text_column_is_refused(tmp_path: Path) -> None:
    polars.DataFrame({"body": ["x"]}).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(TextError, match='no column "text"'):
        read_corpus([tmp_path])


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TextError, match="does not exist"):
        read_corpus([tmp_path / "nothing.txt"])
    with pytest.raises(TextError, match="holds no file that ends in"):
        read_corpus([tmp_path])
    with pytest.raises(TextError, match="no text to train on"):
        read_corpus([])
