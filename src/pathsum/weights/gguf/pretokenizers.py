"""How byte-level BPE splits a text before merging, by the name a GGUF gives it (`tokenizer.ggml.pre`)."""

from dataclasses import dataclass

from tokenizers import Regex
from tokenizers.pre_tokenizers import ByteLevel, Digits, PreTokenizer, Punctuation, Sequence, Split

WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
SLASHED = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"


@dataclass(frozen=True)
class Splitting:
    """`whole_words`: a piece that is a token stays one, whatever the merges. `bos`: whether texts start with one."""

    steps: tuple[PreTokenizer, ...]
    whole_words: bool = False
    bos: bool = False
    composed: bool = False
    """Text is brought to Unicode's composed form (NFC) first."""

    def pre_tokenizer(self) -> PreTokenizer:
        return Sequence(list(self.steps))


def splitting(name: str) -> Splitting | None:
    """The splitting of this name, None where it is not known here. "default" is what GPT-2 does."""
    return next((how for names, how in SPLITTINGS if name in names.split()), None)


def _by(pattern: str, **facts: bool) -> Splitting:
    step = Split(Regex(pattern), behavior="isolated")
    return Splitting((step, ByteLevel(add_prefix_space=False, use_regex=False)), **facts)


def _gpt2(*before: PreTokenizer, after: tuple[PreTokenizer, ...] = ()) -> Splitting:
    return Splitting((*before, ByteLevel(add_prefix_space=False, use_regex=True), *after))


def _cased(end: str = "") -> str:
    """Words split where lower case is followed by upper case."""
    before = r"[^\r\n\p{L}\p{N}]?"
    return rf"{before}{UPPER}*{LOWER}+{end}|{before}{UPPER}+{LOWER}*{end}"


LLAMA3 = rf"{ENDINGS}|{WORDS}|\p{{N}}{{1,3}}|{REST}"
SPLITTINGS: tuple[tuple[str, Splitting], ...] = (
    ("default gpt-2 phi-2 olmo mpt jais mellum a.x-4.0 gigachat", _gpt2()),
    ("smollm starcoder refact command-r codeshell exaone minerva-7b", _gpt2(Digits(individual_digits=True))),
    ("llama3 llama-v3 llama-bpe falcon3 pixtral lfm2", _by(LLAMA3, whole_words=True, bos=True)),
    ("dbrx smaug-bpe", _by(LLAMA3)),
    ("qwen2 deepseek-r1-qwen megrez hunyuan", _by(rf"{ENDINGS}|{WORDS}|\p{{N}}|{REST}", composed=True)),
    ("stablelm2", _by(rf"{ENDINGS}|{WORDS}|\p{{N}}|{REST}")),
    ("tekken", _by(rf"{_cased()}|\p{{N}}|{SLASHED}", whole_words=True, bos=True)),
    ("gpt-4o", _by(rf"{_cased(f'{ENDINGS}?')}|\p{{N}}{{1,3}}|{SLASHED}")),
    ("bloom", _by(r" ?[^(\s|[.,!?…。，、।۔،])]+")),
    (
        "falcon",
        _gpt2(
            Punctuation(behavior="contiguous"),
            after=(Digits(individual_digits=False), Split(Regex("[0-9][0-9][0-9]"), behavior="isolated")),
        ),
    ),
)
