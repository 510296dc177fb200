"""Finding the tokenizer that goes with a checkpoint, and whether its texts start with a beginning-of-sequence token."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from pathsum.errors import CheckpointError
from pathsum.weights.files import read_json
from pathsum.weights.weights import Weights

GPT2 = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))
"""Names of the two files of a byte-level BPE: as checkpoints have them, and as GPT-2's first release did."""
GivenTokenizer = Any
"""None, a path, a `tokenizers.Tokenizer`, or an object with a `backend_tokenizer` (transformers)."""


def tokenizer_from(given: GivenTokenizer) -> Tokenizer | None:
    """The caller's own tokenizer. Raises `CheckpointError` for what is none."""
    given = getattr(given, "backend_tokenizer", given)
    if given is None or isinstance(given, Tokenizer):
        return given
    if isinstance(given, str | Path):
        return _read(Path(given))
    raise CheckpointError(f"tokenizer= takes a tokenizer.json or a Tokenizer, not {type(given).__name__}")


def tokenizer_beside(folder: Path) -> Tokenizer | None:
    """The folder's `tokenizer.json` (or, of a checkpoint of a run, the run folder's), or one from GPT-2's two files."""
    if (folder / "tokenizer.json").is_file():
        return _read(folder / "tokenizer.json")
    if (folder.parent / "training.json").is_file() and (folder.parent / "tokenizer.json").is_file():
        return _read(folder.parent / "tokenizer.json")
    for vocab, merges in ((folder / one, folder / other) for one, other in GPT2):
        if vocab.is_file() and merges.is_file():
            return _of_two_files(vocab, merges)
    return None


def _of_two_files(vocab: Path, merges: Path) -> Tokenizer:
    try:
        tokenizer = Tokenizer(models.BPE.from_file(str(vocab), str(merges)))
    except Exception as error:  # tokenizers raises bare Exception
        raise CheckpointError(f"{vocab} and {merges} are no readable tokenizer: {error}") from error
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def with_bos(weights: Weights, tokenizer: Tokenizer | None, folder: Path | None) -> Weights:
    """The weights with their spec's `bos` and `prepend_bos` as the tokenizer has them."""
    said = {}
    if folder is not None and (folder / "tokenizer_config.json").is_file():
        said = read_json(folder / "tokenizer_config.json")
    spec = weights.spec
    first = _put_first(tokenizer)
    prepend = said.get("add_bos_token")
    if not isinstance(prepend, bool):
        prepend = first is not None
    bos = first if first is not None and first < spec.d_vocab else spec.bos
    return replace(weights, spec=replace(spec, bos=bos, prepend_bos=prepend and bos is not None))


def _put_first(tokenizer: Tokenizer | None) -> int | None:
    """The token that the tokenizer itself puts before every text."""
    if tokenizer is None:
        return None
    plain, whole = (tokenizer.encode("a", add_special_tokens=special).ids for special in (False, True))
    return whole[0] if len(whole) > len(plain) and whole[1 : 1 + len(plain)] == plain else None


def _read(path: Path) -> Tokenizer:
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises bare Exception
        raise CheckpointError(f"{path} is no readable tokenizer: {error}") from error
