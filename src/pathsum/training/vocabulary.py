"""A byte-level BPE vocabulary trained on the text, and the text's tokens in memory-mapped files."""

from collections.abc import Sequence
from pathlib import Path

import numpy
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from pathsum.errors import CheckpointError, TextError, TrainingError
from pathsum.weights.tokenizer import tokenizer_beside, tokenizer_from

END_OF_TEXT = "<|endoftext|>"
"""Token 0: put between documents."""
SMALLEST = 257
"""256 bytes and the end of text."""


def train_vocabulary(documents: Sequence[str], size: int) -> Tokenizer:
    """A byte-level BPE of `size` tokens: any text round-trips, and token 0 ends a document.

    Raises `TrainingError` when `size` is below the 257 that bytes alone need, or the text is too small to fill it.
    """
    if size < SMALLEST:
        raise TrainingError(f"a byte-level vocabulary needs at least {SMALLEST} tokens, not {size}")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents, trainer)
    if tokenizer.get_vocab_size() != size:
        raise TrainingError(
            f"the text gives a vocabulary of {tokenizer.get_vocab_size()} tokens, not {size}; "
            "pass more text or a smaller --vocab"
        )
    return tokenizer


def given_vocabulary(place: Path, size: int) -> Tokenizer:
    """A vocabulary that was trained before: a `tokenizer.json`, or a folder with one or with GPT-2's two files.

    Raises `TrainingError` where there is none, it has not `size` tokens, or none of them ends a document.
    """
    try:
        found = tokenizer_beside(place) if place.is_dir() else tokenizer_from(place)
    except CheckpointError as error:
        raise TrainingError(str(error)) from error
    if found is None:
        raise TrainingError(
            f"{place} holds no vocabulary; give a tokenizer.json, or a folder with one, with vocab.json and merges.txt "
            "or with encoder.json and vocab.bpe"
        )
    if found.get_vocab_size() != size:
        raise TrainingError(
            f"{place} has {found.get_vocab_size():,} tokens, the recipe asks for {size:,}; "
            f"pass --vocab {found.get_vocab_size()}"
        )
    if found.token_to_id(END_OF_TEXT) is None:
        raise TrainingError(f"{place} has no token {END_OF_TEXT}, which ends a document")
    return found


def write_tokens(tokenizer: Tokenizer, documents: Sequence[str], path: Path, at_once: int = 256) -> int:
    """Writes the documents' tokens, each document after an end of text, as one raw file; returns how many.

    The file holds little-endian uint16, or uint32 where the vocabulary needs it; it is written beside and renamed.
    """
    beside = path.with_name(path.name + ".part")
    kind, end, total = token_type(tokenizer.get_vocab_size()), tokenizer.token_to_id(END_OF_TEXT), 0
    with beside.open("wb") as file:
        for first in range(0, len(documents), at_once):
            for encoding in tokenizer.encode_batch_fast(list(documents[first : first + at_once])):
                file.write(numpy.array([end, *encoding.ids], dtype=kind).tobytes())
                total += len(encoding.ids) + 1
    beside.replace(path)
    return total


def open_tokens(path: Path, d_vocab: int, context: int) -> numpy.memmap:
    """The tokens of a file as a read-only memory map.

    Raises `TextError` when they do not fill one context and the token after it.
    """
    size = path.stat().st_size // token_type(d_vocab).itemsize
    if size <= context:
        raise TextError(
            f"the text is too short: {path.stem} has {size} tokens, one context and the token after it need "
            f"{context + 1}; pass more text or a smaller --context"
        )
    return numpy.memmap(path, dtype=token_type(d_vocab), mode="r")


def token_type(d_vocab: int) -> numpy.dtype:
    return numpy.dtype("<u2" if d_vocab <= 1 << 16 else "<u4")


def split(documents: Sequence[str], share: float) -> tuple[list[str], list[str]]:
    """Documents to train on, and every so many-th one held out, about `share` of them.

    A text of a single document is cut near its end.
    """
    if len(documents) == 1:
        border = int(len(documents[0]) * (1 - share))
        return [documents[0][:border]], [documents[0][border:]]
    every = min(max(2, round(1 / share)), len(documents))
    held_out = [document for i, document in enumerate(documents) if i % every == every - 1]
    return [document for i, document in enumerate(documents) if i % every != every - 1], held_out
