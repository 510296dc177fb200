"""The folder a run writes: the model at its top, a folder per checkpoint, and `unfinished/` while it lasts.

    OUT/config.json model.safetensors tokenizer.json training.json    the trained model
    OUT/step-000064/…                                                 the same, on the way
    OUT/unfinished/run.json tokenizer.json train.tokens validation.tokens state.safetensors

What is in `unfinished` is all that resuming needs; it is removed when the trained model is there.
"""

import hashlib
import importlib.metadata
import json
import platform
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from pathsum.errors import TrainingError
from pathsum.training.corpus import Corpus, read_corpus
from pathsum.training.recipe import Recipe
from pathsum.training.vocabulary import given_vocabulary, open_tokens, split, train_vocabulary, write_tokens


@dataclass(frozen=True)
class Settings:
    """How a run is carried out. The same recipe, text and settings give the same weights, bit for bit."""

    devices: int = 1
    accelerator: str = "auto"
    precision: str = "bf16-mixed"
    """Of the arithmetic; parameters are float32. Or `32-true`."""
    threads: int = 1
    """Of each process."""
    weights_dtype: str = "float32"
    """In which models are written; `bfloat16` halves the files."""
    accumulate: int = 1
    """Parts that each process takes its share of a batch in: more of them need less memory."""


@dataclass(frozen=True)
class Run:
    """A run that is ready to start or to go on: its text is tokenized and lies in `unfinished`."""

    recipe: Recipe
    settings: Settings
    out: Path
    text: dict[str, Any]
    """`sources`, `sha256`, and the numbers of `characters`, `documents`, `tokens` and `validation_tokens`."""

    @property
    def unfinished(self) -> Path:
        return self.out / "unfinished"

    @property
    def state(self) -> Path:
        return self.unfinished / "state.safetensors"

    def tokens(self, part: str) -> Any:
        """The memory map of part `train` or `validation`."""
        return open_tokens(self.unfinished / f"{part}.tokens", self.recipe.vocab, self.recipe.context)

    def tokenizer(self) -> Tokenizer:
        return Tokenizer.from_file(str(self.unfinished / "tokenizer.json"))

    def facts(self) -> dict[str, Any]:
        """What `training.json` says of the run before its curve."""
        return {"recipe": self.recipe.to_dict(), "text": self.text, "settings": asdict(self.settings)} | {
            "versions": versions()
        }


def start(
    recipe: Recipe, settings: Settings, out: Path, sources: Sequence[str | Path], vocabulary: Path | None = None
) -> Run:
    """Makes the folder of a new run and tokenizes its text, with a vocabulary trained on it or the given one.

    Raises `TrainingError` where `out` already holds something, `TextError` for an unusable text.
    """
    if not _is_free(out):
        raise TrainingError(f"{out} is there already and not empty; pass --resume to go on, or another --out")
    given = None if vocabulary is None else given_vocabulary(vocabulary, recipe.vocab)
    corpus = read_corpus(sources)
    unfinished = out / "unfinished"
    try:
        unfinished.mkdir(parents=True, exist_ok=True)
        text = _write_text(recipe, corpus, sources, unfinished, given)
    except BaseException:
        shutil.rmtree(out, ignore_errors=True)
        raise
    run = Run(recipe, settings, out, text)
    _write_json(unfinished / "run.json", run.facts())
    return run


def resume(
    recipe: Recipe, settings: Settings, out: Path, sources: Sequence[str | Path], vocabulary: Path | None = None
) -> Run:
    """The run that was begun in `out`, to go on.

    Raises `TrainingError` where there is none, or it was begun with another recipe, text or setting.
    """
    begun = read_json(out / "unfinished" / "run.json") or read_json(out / "training.json")
    if begun is None:
        raise TrainingError(f"{out} holds no run to resume; leave out --resume to start one")
    parts: dict[str, Recipe | Settings] = {"recipe": recipe, "settings": settings}
    for part, wanted in parts.items():
        for field in fields(wanted):
            # A field that is newer than the run had its default.
            was, value = begun[part].get(field.name, field.default), getattr(wanted, field.name)
            if was != value:
                raise TrainingError(
                    f"{out} was begun with {field.name} {was}, not {value}; "
                    "resume with the same, or train into another folder"
                )
    digest = read_corpus(sources).digest
    if begun["text"]["sha256"] != digest:
        raise TrainingError(
            f"{out} was begun with another text (sha256 {begun['text']['sha256'][:12]}…, now {digest[:12]}…); "
            "resume with the same --text"
        )
    given = None if vocabulary is None else _digest(given_vocabulary(vocabulary, recipe.vocab))
    if begun["text"].get("vocabulary_sha256") != given:
        raise TrainingError(f"{out} was begun with another vocabulary; resume with the same --vocabulary, or none")
    return Run(recipe, settings, out, begun["text"])


def _is_free(out: Path) -> bool:
    """Not there, or empty, or left by a run that was killed before it had tokenized its text."""
    if not out.exists():
        return True
    return (
        out.is_dir()
        and {path.name for path in out.iterdir()} <= {"unfinished"}
        and not (out / "unfinished" / "run.json").exists()
    )


def finished(out: Path) -> dict[str, Any] | None:
    """`training.json` of a run that is complete, else None."""
    return None if (out / "unfinished").exists() else read_json(out / "training.json")


def read_json(path: Path) -> dict[str, Any] | None:
    return json.loads(path.read_text()) if path.is_file() else None


def versions() -> dict[str, str]:
    """Of what decides the numbers."""
    found = {"python": platform.python_version()}
    for package in ("pathsum", "torch", "tokenizers"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def _write_text(
    recipe: Recipe, corpus: Corpus, sources: Sequence[str | Path], folder: Path, given: Tokenizer | None
) -> dict[str, Any]:
    train, validation = split(corpus.shuffled(recipe.seed), recipe.held_out)
    tokenizer = train_vocabulary(train, recipe.vocab) if given is None else given
    tokenizer.save(str(folder / "tokenizer.json"))
    counts = {}
    for part, documents in (("train", train), ("validation", validation)):
        counts[part] = write_tokens(tokenizer, documents, folder / f"{part}.tokens")
        open_tokens(folder / f"{part}.tokens", recipe.vocab, recipe.context)
    return {
        "sources": [Path(source).name for source in sources],
        "sha256": corpus.digest,
        "characters": sum(len(document) for document in corpus.documents),
        "documents": len(corpus.documents),
        "tokens": counts["train"],
        "validation_tokens": counts["validation"],
        **({} if given is None else {"vocabulary_sha256": _digest(given)}),
    }


def _digest(tokenizer: Tokenizer) -> str:
    return hashlib.sha256(tokenizer.to_str().encode()).hexdigest()


def _write_json(path: Path, plain: dict[str, Any]) -> None:
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps(plain, indent=1) + "\n")
    beside.replace(path)
