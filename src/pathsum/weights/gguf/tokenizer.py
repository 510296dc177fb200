"""A tokenizer out of `tokenizer.ggml.*`: byte-level BPE with its merges, or SentencePiece BPE from its scores."""

from dataclasses import dataclass
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

from pathsum.errors import CheckpointError
from pathsum.weights.gguf.pretokenizers import Splitting, splitting

NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4
SPACE = "▁"
LONGEST = 1024
"""Characters of a token; the ways to split one grow with its length."""


@dataclass(frozen=True)
class Vocabulary:
    """The tokenizer, or why there is none; the beginning-of-sequence token and whether texts start with it."""

    tokenizer: Tokenizer | None
    no_tokenizer: str | None
    bos: int | None
    prepend_bos: bool


class _Unknown(Exception):
    """A tokenizer that cannot be made here; the model can still be read with token ids."""


def read_vocabulary(metadata: dict[str, Any], d_vocab: int) -> Vocabulary:
    """Raises `CheckpointError` for a `bos` that is no token of the model."""
    keys = {key.removeprefix("tokenizer.ggml."): value for key, value in metadata.items() if "tokenizer.ggml." in key}
    kind, split = keys.get("model"), splitting(str(keys.get("pre", "default")))
    bos = keys.get("bos_token_id")
    if bos is not None and (not isinstance(bos, int) or not 0 <= bos < d_vocab):
        raise CheckpointError(f"tokenizer.ggml.bos_token_id is {bos!r}, the model has {d_vocab} tokens")
    usual = kind == "llama" or (kind == "gpt2" and split is not None and split.bos)
    prepend = bool(keys.get("add_bos_token", usual)) and bos is not None
    try:
        return Vocabulary(_tokenizer(keys, kind, split, d_vocab), None, bos, prepend)
    except _Unknown as reason:
        return Vocabulary(None, str(reason), bos, prepend)
    except Exception as error:  # tokenizers raises bare Exception, and TypeError for lone surrogates
        return Vocabulary(None, f"the file's tokenizer cannot be built: {error}", bos, prepend)


def _tokenizer(keys: dict[str, Any], kind: Any, split: Splitting | None, d_vocab: int) -> Tokenizer:
    tokens = keys.get("tokens")
    if kind not in ("gpt2", "llama") or not isinstance(tokens, list):
        raise _Unknown(f"tokenizers of kind {kind!r} are not known here")
    if len(set(tokens)) != len(tokens) or len(tokens) > d_vocab:
        raise _Unknown(f"its {len(tokens)} tokens repeat, or are more than the model's {d_vocab}")
    if (longest := max(map(len, tokens), default=0)) > LONGEST:
        raise _Unknown(f"it has a token of {longest} characters")
    types = keys.get("token_type") or [NORMAL] * len(tokens)
    if kind == "llama":
        tokenizer = _sentencepiece(keys, tokens, types)
    elif split is None:
        raise _Unknown(f"tokenizer.ggml.pre {keys.get('pre')!r} is not known here")
    else:
        tokenizer = _byte_level(keys, tokens, split)
    whole = [(token, what) for token, what in zip(tokens, types, strict=True) if what in (CONTROL, USER_DEFINED)]
    # A control token and one the user defined are found in the text before anything else is done to it.
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token, what in whole if what == CONTROL])
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token, what in whole if what == USER_DEFINED])
    return tokenizer


def _byte_level(keys: dict[str, Any], tokens: list[str], split: Splitting) -> Tokenizer:
    # A merge is two tokens with a space between, and a token may begin with one.
    merges = [(merge[: (at := merge.index(" ", 1))], merge[at + 1 :]) for merge in keys.get("merges") or ()]
    vocab = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab, merges, ignore_merges=split.whole_words))
    if split.composed:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = split.pre_tokenizer()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece(keys: dict[str, Any], tokens: list[str], types: list[int]) -> Tokenizer:
    vocab = {token: index for index, token in enumerate(tokens)}
    unknown = tokens[keys.get("unknown_token_id", types.index(UNKNOWN) if UNKNOWN in types else 0)]
    merges = _merges(vocab, keys["scores"], types)
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True))
    before = [normalizers.Prepend(SPACE)] if keys.get("add_space_prefix", True) else []
    tokenizer.normalizer = normalizers.Sequence([*before, normalizers.Replace(" ", SPACE)])
    tokenizer.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


def _merges(vocab: dict[str, int], scores: list[float], types: list[int]) -> list[tuple[str, str]]:
    """Every way to make a token of two, the token of the highest score first: SentencePiece merges in that order."""
    found = [
        (-scores[index], vocab[token[:at]], vocab[token[at:]], token[:at], token[at:])
        for token, index in vocab.items()
        if types[index] == NORMAL
        for at in range(1, len(token))
        if token[:at] in vocab and token[at:] in vocab
    ]
    return [(left, right) for *_, left, right in sorted(found)]
