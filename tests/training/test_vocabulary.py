from pathlib import Path

import numpy
import pytest

from pathsum.errors import TextError, TrainingError
from pathsum.training.corpus import read_corpus
from pathsum.training.vocabulary import END_OF_TEXT, open_tokens, split, token_type, train_vocabulary, write_tokens


def test_any_text_makes_the_round_trip(texts: Path) -> None:
    tokenizer = train_vocabulary(read_corpus([texts]).documents, 300)
    assert tokenizer.get_vocab_size() == 300
    assert tokenizer.token_to_id(END_OF_TEXT) == 0
    for text in ("the head reads the token", "  def f(x):\n\treturn x", "žluťoučký 🐎 \x00\x7f", ""):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_the_same_text_gives_the_same_vocabulary(texts: Path) -> None:
    documents = read_corpus([texts]).documents
    assert train_vocabulary(documents, 300).to_str() == train_vocabulary(documents, 300).to_str()


def test_tokens_in_the_file_are_the_documents_after_an_end_of_text_each(texts: Path, tmp_path: Path) -> None:
    documents = read_corpus([texts]).documents
    tokenizer = train_vocabulary(documents, 300)
    total = write_tokens(tokenizer, documents, tmp_path / "train.tokens", at_once=5)
    tokens = open_tokens(tmp_path / "train.tokens", 300, context=32)
    assert isinstance(tokens, numpy.memmap) and tokens.dtype == numpy.uint16 and len(tokens) == total
    borders = numpy.flatnonzero(tokens == 0)
    assert len(borders) == len(documents)
    assert tokenizer.decode(tokens[borders[3] + 1 : borders[4]].tolist()) == documents[3]
    assert [path.name for path in tmp_path.iterdir()] == ["train.tokens"]


def test_large_vocabularies_take_four_bytes() -> None:
    assert [token_type(size).itemsize for size in (1 << 16, (1 << 16) + 1)] == [2, 4]


def test_a_text_too_short_for_one_context_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train.tokens").write_bytes(bytes(2 * 32))
    with pytest.raises(TextError, match="too short: train has 32 tokens, one context and the token after it need 33"):
        open_tokens(tmp_path / "train.tokens", 300, context=32)
    (tmp_path / "train.tokens").write_bytes(bytes(2 * 33))
    assert len(open_tokens(tmp_path / "train.tokens", 300, context=32)) == 33


def test_a_vocabulary_that_bytes_do_not_fit_or_the_text_does_not_fill_is_refused() -> None:
    with pytest.raises(TrainingError, match="at least 257 tokens, not 200"):
        train_vocabulary(["text"], 200)
    with pytest.raises(TrainingError, match="pass more text or a smaller --vocab"):
        train_vocabulary(["text"], 5000)


def test_held_out_documents_are_apart_and_spread() -> None:
    documents = [str(index) for index in range(100)]
    train, held_out = split(documents, 0.02)
    assert held_out == ["49", "99"] and sorted(train + held_out) == sorted(documents)
    assert split(["ab" * 50], 0.1) == (["ab" * 45], ["ab" * 5])
    assert split(["a", "b"], 0.02) == (["a"], ["b"])
