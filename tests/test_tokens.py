"""A long text has the same tokens whether it is tokenized in pieces or at once."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

import pathsum
from pathsum.errors import TextError
from pathsum.toys import skip_trigram_model
from pathsum.weights import tokens

WORDS = st.sampled_from(
    ["the", " cat", "\n", "\n\n", "    ", "é", "(self):", "\t", " 12", ".", "\r\n", "'ll", " ", "日本"]
)


@given(st.lists(WORDS, min_size=1, max_size=200).map("".join))
@settings(deadline=None, max_examples=60)
def test_pieces_have_the_tokens_of_the_whole(text):
    model = pathsum.open("two-layer-small")
    whole = model.tokenizer.encode(text, add_special_tokens=False).ids
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens, "PIECE", 20)
        patch.setattr(tokens, "AROUND", 12)
        assert tokens.token_ids(model, text).tolist() == whole
        pieces = list(tokens._pieces(model.tokenizer, text))
    assert "".join(pieces) == text


def test_a_text_of_code_is_cut_in_pieces(monkeypatch):
    monkeypatch.setattr(tokens, "PIECE", 100)
    tokenizer = pathsum.open("two-layer-small").tokenizer
    text = "def one(self):\n    return self.two\n\n" * 50
    pieces = list(tokens._pieces(tokenizer, text))
    assert len(pieces) > 8 and max(map(len, pieces)) < 200


def test_a_tokenizer_that_marks_the_start_of_a_text_takes_it_whole(monkeypatch):
    monkeypatch.setattr(tokens, "PIECE", 10)
    tokenizer = Tokenizer(models.WordLevel({"?": 0, "\u2581a": 1, "\u2581b\n": 2}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    model = replace(skip_trigram_model([(1, 2, 3)]), tokenizer=tokenizer)
    text = "a b\n a" * 30
    whole = tokenizer.encode(text, add_special_tokens=False).ids
    assert torch.equal(tokens.token_ids(model, text), torch.tensor(whole))
    assert list(tokens._pieces(tokenizer, text)) == [text]


def test_bos_is_a_truth_value_or_nothing(unchecked):
    model = pathsum.open("two-layer-small")
    for wrong in ("no", "yes", 2, []):
        with pytest.raises(TextError, match="must be True, False or None"):
            pathsum.run(model, "text", bos=wrong)
        with pytest.raises(TextError, match="must be True, False or None"):
            pathsum.in_context(model, text="text " * 200, bos=wrong)
    assert pathsum.run(model, [1, 2], bos=0).tokens.tolist() == [1, 2]
