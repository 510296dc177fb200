"""Texts are split and merged as the file says: held against slow tokenizers that share no code with ours."""

import json
import unicodedata
from itertools import pairwise

import pytest
import regex
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

import pathsum
from gguf_files import BY_NAME, D_VOCAB
from pathsum.errors import CheckpointError, TextError
from pathsum.weights.gguf.pretokenizers import SPLITTINGS, splitting
from pathsum.weights.gguf.tokenizer import read_vocabulary
from pathsum.weights.tokens import token_ids

TEXTS = [
    "Hello world, hello  two   spaces and a tab\t.", "don't I'LL we've THEY'RE o'clock",
    "\n\n\nthree lines\r\n  \r\n x",
    "3.14 and 1234567 and 12 345, v2, x1y22z333 4444", "snake_case CamelCase HTTPServer isOK __init__(self): pass",
    "北京 東京 日本語 テスト。、한국어 조선", "emoji 😀👩‍👩‍👧 ok… ½ ² Ⅳ ٣٤", "ünïcödé naïve Ελληνικά кириллица",
    "e\u0301 A\u030a composed é Å", "a == b; c != d && !e || $f ^g ~h `i` <j> +k", " ", "   ", "\t\n ",
    "trailing   ", "",
    "https://example.org/a?b=c&d=100%#e", "العربية עברית हिन्दी", "\u200b zero\u00a0width", "(x|y).[z]!?/path/to",
]  # fmt: skip
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
ENDINGS = r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
BIG, SMALL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
SLASHED = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SPLITS: dict[str, tuple[str, ...]] = {
    "gpt-2": (GPT2,),
    "smollm": (r"\p{N}", GPT2),
    "refact": (r"\p{N}", GPT2),
    "llama-bpe": (rf"(?:{ENDINGS})|{WORDS}|\p{{N}}{{1,3}}|{REST}",),
    "dbrx": (rf"(?:{ENDINGS})|{WORDS}|\p{{N}}{{1,3}}|{REST}",),
    "qwen2": (rf"(?:{ENDINGS})|{WORDS}|\p{{N}}|{REST}",),
    "stablelm2": (rf"(?:{ENDINGS})|{WORDS}|\p{{N}}|{REST}",),
    "tekken": (rf"[^\r\n\p{{L}}\p{{N}}]?{BIG}*{SMALL}+|[^\r\n\p{{L}}\p{{N}}]?{BIG}+{SMALL}*|\p{{N}}|{SLASHED}",),
    "gpt-4o": (
        rf"[^\r\n\p{{L}}\p{{N}}]?{BIG}*{SMALL}+(?:{ENDINGS})?|[^\r\n\p{{L}}\p{{N}}]?{BIG}+{SMALL}*(?:{ENDINGS})?"
        rf"|\p{{N}}{{1,3}}|{SLASHED}",
    ),
    "bloom": (r" ?[^(\s|.,!?…。，、।۔،)]+",),
}
"""What splits a text, one pattern after the other; what no pattern matches is a piece too."""


def pieces(text: str, patterns: tuple[str, ...]) -> list[str]:
    found = [text] if text else []
    for pattern in patterns:
        found = [piece for whole in found for piece in parted(whole, pattern)]
    return found


def parted(text: str, pattern: str) -> list[str]:
    found, at = [], 0
    for match in regex.finditer(pattern, text, flags=regex.V0):
        found += [text[at : match.start()], match.group()]
        at = match.end()
    return [one for one in (*found, text[at:]) if one]


def byte_letters() -> dict[int, str]:
    """GPT-2's printable letter for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {byte: chr(256 + index) for index, byte in enumerate(others)}


def merged(letters: list[str], ranks: dict[tuple[str, str], float]) -> list[str]:
    """The best pair, the first of equals, again and again."""
    while pairs := [(ranks[pair], at) for at, pair in enumerate(pairwise(letters)) if pair in ranks]:
        _, at = min(pairs)
        letters = [*letters[:at], letters[at] + letters[at + 1], *letters[at + 2 :]]
    return letters


@pytest.fixture(scope="module")
def learned() -> tuple[list[str], list[str]]:
    """Tokens and merges of a byte-level BPE learned from the texts, merges over pieces of every splitting."""
    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    learner.train_from_iterator(
        TEXTS, trainers.BpeTrainer(vocab_size=900, initial_alphabet=alphabet, show_progress=False)
    )
    vocab = learner.get_vocab()
    tokens = sorted(vocab, key=vocab.get)
    merges = json.loads(learner.to_str())["model"]["merges"]
    # A whole word that no merges lead to.
    return [*tokens, "Ġcomposed"], [" ".join(pair) for pair in merges]


def byte_level(learned, pre: str | None, **more):
    tokens, merges = learned
    metadata = {"model": "gpt2", "tokens": [*tokens, "<|im_start|>", "<user>"], "merges": merges, **more}
    metadata |= {"token_type": [1] * len(tokens) + [3, 4]} | ({} if pre is None else {"pre": pre})
    return read_vocabulary({f"tokenizer.ggml.{key}": value for key, value in metadata.items()}, 5000)


def slow_byte_level(text: str, learned, pre: str) -> list[str]:
    tokens, merges = learned
    letters, ranks = byte_letters(), {tuple(merge.split(" ")): rank for rank, merge in enumerate(merges)}
    found = []
    for piece in pieces(unicodedata.normalize("NFC", text) if pre == "qwen2" else text, SPLITS[pre]):
        spelled = [letters[byte] for byte in piece.encode()]
        whole = "".join(spelled) in tokens and pre in ("llama-bpe", "tekken")
        found += ["".join(spelled)] if whole else merged(spelled, ranks)
    return found


@pytest.mark.parametrize("pre", SPLITS)
def test_byte_level_texts_become_the_tokens_a_slow_tokenizer_finds(pre, learned):
    tokenizer = byte_level(learned, pre).tokenizer
    assert tokenizer is not None
    for text in TEXTS:
        assert tokenizer.encode(text).tokens == slow_byte_level(text, learned, pre), text
        if pre not in ("qwen2", "bloom"):
            assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_the_texts_tell_the_splittings_apart(learned):
    """Or the test above could not fail."""
    found = {pre: tuple(tuple(slow_byte_level(text, learned, pre)) for text in TEXTS) for pre in SPLITS}
    same = [{"smollm", "refact"}]
    for one in SPLITS:
        for other in SPLITS:
            assert one == other or {one, other} in same or found[one] != found[other], (one, other)


def test_falcon_splits_punctuation_first_and_digits_by_three(learned):
    cut = splitting("falcon").pre_tokenizer().pre_tokenize_str("a, b!! 1234567")
    assert [piece for piece, _ in cut] == ["a", ",", "Ġb", "!!", "Ġ", "123", "456", "7"]


def test_names_of_splittings_are_not_claimed_twice():
    names = [name for group, _ in SPLITTINGS for name in group.split()]
    assert len(names) == len(set(names))
    assert {*SPLITS, "falcon", "default"} <= set(names)


def test_control_tokens_and_user_defined_ones_are_one_token(learned):
    tokenizer = byte_level(learned, "smollm").tokenizer
    size = len(learned[0])
    ids = tokenizer.encode("a<|im_start|>b <user> c").ids
    assert ids.count(size) == ids.count(size + 1) == 1
    assert tokenizer.decode(ids, skip_special_tokens=False) == "a<|im_start|>b <user> c"
    assert tokenizer.decode(ids) == "ab <user> c"


@pytest.mark.parametrize(
    ("pre", "said", "bos", "prepend"),
    [("smollm", None, 1, False), ("llama-bpe", None, 1, True), ("llama-bpe", False, 1, False), ("gpt-2", True, 1, True),
     ("gpt-2", True, None, False), (None, None, 1, False)],
)  # fmt: skip
def test_texts_start_with_bos_where_the_file_or_the_kind_says_so(pre, said, bos, prepend, learned):
    more = {key: value for key, value in (("add_bos_token", said), ("bos_token_id", bos)) if value is not None}
    vocabulary = byte_level(learned, pre, **more)
    assert (vocabulary.bos, vocabulary.prepend_bos) == (bos, prepend)


# ---- SentencePiece ----

PIECES = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
WORDS_BY_SCORE = [
    "▁t", "he", "▁a", "in", "▁the", "er", "re", "on", "▁w", "at", "an", "lo", "el", "hel", "▁hel", "▁he", "▁hello",
    "wor", "ld", "▁wor", "▁world", "lll", "ll", "or", "▁▁", "▁▁▁▁", "日本", "12", "ab", "bc", "abc",
]  # fmt: skip
LETTERS = list("▁abcdefghijklmnopqrstuvwxyz日本12")
SPM_TEXTS = [
    "hello world", " hello", "the cat  in    the hat", "lllll llll", "abcabc abcbc", "日本語 12 123",
    "unknown: é 😀\n\t",
    "", " ", "wor ld", "<s>hello</s> world", "heloworld", "▁x",
]  # fmt: skip


def sentencepiece(**more):
    # Ids say nothing about scores: the best word comes last.
    tokens = [*PIECES, *LETTERS, *reversed(WORDS_BY_SCORE)]
    order = {word: -float(index) for index, word in enumerate((*WORDS_BY_SCORE, *LETTERS))}
    scores = [order.get(token, 0.0) for token in tokens]
    types = [2, 3, 3] + [6] * 256 + [1] * (len(WORDS_BY_SCORE) + len(LETTERS))
    metadata = {"model": "llama", "tokens": tokens, "scores": scores, "token_type": types, "bos_token_id": 1, **more}
    return read_vocabulary({f"tokenizer.ggml.{key}": value for key, value in metadata.items()}, 5000)


def slow_sentencepiece(text: str, prefix: bool) -> list[str]:
    """The neighbours whose union has the highest score are joined, leftmost first; letters unknown become bytes."""
    scores = {word: -index for index, word in enumerate((*WORDS_BY_SCORE, *LETTERS))}
    found = []
    for part in regex.split(r"(<s>|</s>)", text):
        if part in ("<s>", "</s>"):
            found.append(part)
            continue
        letters = list(("▁" if prefix and part else "") + part.replace(" ", "▁"))
        while True:
            unions = [(-scores[a + b], at) for at, (a, b) in enumerate(pairwise(letters)) if a + b in scores]
            if not unions:
                break
            _, at = min(unions)
            letters = [*letters[:at], letters[at] + letters[at + 1], *letters[at + 2 :]]
        for one in letters:
            found += [one] if one in scores else [f"<0x{byte:02X}>" for byte in one.encode()]
    return found


@pytest.mark.parametrize("prefix", [True, False])
def test_sentencepiece_texts_become_the_tokens_a_slow_tokenizer_finds(prefix):
    vocabulary = sentencepiece(add_space_prefix=prefix)
    for text in SPM_TEXTS:
        encoded = vocabulary.tokenizer.encode(text)
        assert encoded.tokens == slow_sentencepiece(text, prefix), text
        lead = " " if prefix and text and not text.startswith("<s>") else ""
        if "<s>" not in text and "▁" not in text:
            assert vocabulary.tokenizer.decode(encoded.ids) == lead + text


def test_sentencepiece_puts_a_space_and_bos_first_unless_told_otherwise():
    assert sentencepiece().tokenizer.encode("the").tokens == ["▁the"]
    assert sentencepiece(add_space_prefix=False).tokenizer.encode("the").tokens == ["t", "he"]
    assert sentencepiece().prepend_bos
    assert not sentencepiece(add_bos_token=False).prepend_bos


# ---- none ----


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"model": "t5"}, "kind 't5' are not known"),
        ({"model": None}, "kind None are not known"),
        ({"pre": "something-new"}, "pre 'something-new' is not known"),
        ({"tokens": ["a", "a"]}, "its 2 tokens repeat"),
        ({"tokens": ["a", "\udcff"], "token_type": [1, 1]}, "cannot be built"),
        ({"tokens": ["a", "b" * 5000], "token_type": [1, 1]}, "a token of 5000 characters"),
        ({"merges": ["nospace"]}, "cannot be built"),
        ({"token_type": [1]}, "cannot be built"),
    ],
)
def test_a_tokenizer_that_cannot_be_made_has_a_reason(more, reason, learned):
    tokens, merges = learned
    metadata = {"model": "gpt2", "pre": "gpt-2", "tokens": tokens, "merges": merges, "token_type": [1] * len(tokens)}
    found = read_vocabulary({f"tokenizer.ggml.{key}": value for key, value in {**metadata, **more}.items()}, 5000)
    assert found.tokenizer is None
    assert reason in found.no_tokenizer


def test_without_tokenizer_ids_work_and_text_is_a_clear_error(tmp_path):
    model = pathsum.open(BY_NAME["llama"].write(tmp_path / "m.gguf", {"tokenizer.ggml.model": "none"}))
    assert token_ids(model, [1, 2]).tolist() == [1, 2]
    said = r"m has no tokenizer \(tokenizers of kind 'none' are not known here\): pass token ids instead of text"
    with pytest.raises(TextError, match=said):
        token_ids(model, "text")


@pytest.mark.parametrize("bos", [D_VOCAB, -1, "1", 1.5])
def test_a_bos_that_is_no_token_is_refused(bos):
    with pytest.raises(CheckpointError, match="bos_token_id"):
        read_vocabulary({"tokenizer.ggml.bos_token_id": bos}, D_VOCAB)
