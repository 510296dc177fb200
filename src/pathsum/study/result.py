"""A reading's result: a tidy table and everything its numbers depend on."""

import importlib.metadata
import json
import math
import platform
from dataclasses import dataclass
from typing import Any

import polars as pl

from pathsum.circuits.tables import left_out
from pathsum.errors import StudyError
from pathsum.study.catalogue import BY_NAME
from pathsum.study.importance import live_subject
from pathsum.study.on_tokens import INDUCTION_THRESHOLDS, PARTNER_Z
from pathsum.study.reading import Reading, Rows
from pathsum.study.subject import Subject
from pathsum.weights.positions import Rotary
from pathsum.weights.spec import Spec
from pathsum.weights.tokens import starts_with_bos


@dataclass(frozen=True)
class Result:
    """What every reading gives: a tidy table (`frame`, units of its columns in `reading`) and its `manifest`.

    The manifest has everything that the numbers depend on. A reading raises `NotApplicable` where its question makes no
    sense for the model. Not in the paper.

    >>> found = pathsum.spectra(pathsum.open("two-layer-small"))
    >>> print(found.frame.shape, found.manifest["units"]["copying_score"], isinstance(found, pathsum.Result))
    (8, 9) 1 True
    """

    reading: Reading
    frame: pl.DataFrame
    manifest: dict[str, Any]

    def rows(self) -> list[dict[str, Any]]:
        """Rows as JSON-ready dictionaries; undefined numbers are None."""
        return [{key: _plain(value) for key, value in row.items()} for row in self.frame.iter_rows(named=True)]

    @property
    def approximate(self) -> str:
        """What the QK numbers leave out and in which layers, as one line; empty where they leave out nothing."""
        by_layer: dict[str, str] = self.manifest.get("approximate", {})
        if not by_layer:
            return ""
        every, lines = len(self.manifest["spec"]["layers"]), []
        for what in dict.fromkeys(by_layer.values()):
            layers = [layer for layer, parts in by_layer.items() if parts == what]
            lines.append(f"{what} ({'every layer' if len(layers) == every else ', '.join(layers)})")
        return f"QK from weights alone leaves out {'; '.join(lines)}"

    def to_dict(self) -> dict[str, Any]:
        """`{"manifest": …, "rows": [{column: value}, …]}`."""
        return {"manifest": self.manifest, "rows": self.rows()}

    def to_json(self) -> str:
        """`to_dict` as JSON text; undefined numbers are null."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)

    def _repr_html_(self) -> str:
        return self.frame._repr_html_()


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return [_plain(item) for item in value] if isinstance(value, list) else value


def read_one(name: str, subject: Subject, **options: Any) -> Result:
    """One reading of a subject, with its manifest."""
    if name not in BY_NAME:
        raise StudyError(f"no reading {name!r}; there are {', '.join(BY_NAME)}")
    reading = BY_NAME[name]
    rows: Rows | pl.DataFrame = reading.function(subject, **options)
    return Result(reading, table(reading, rows), manifest(subject, reading, options))


def report_options(name: str, spec: Spec) -> dict[str, Any]:
    """What a reading is asked unasked: composition of rotary heads depends on the distance, so the rms over all."""
    rotary = any(isinstance(layer.positions, Rotary) for layer in spec.layers)
    return {"delta": "rms"} if name == "composition" and rotary else {}


def table(reading: Reading, rows: Rows | pl.DataFrame) -> pl.DataFrame:
    """Rows as a table: the catalogue's columns in their order, then what options added."""
    if not len(rows):
        return pl.DataFrame(schema={c.name: pl.Float64 if c.unit else pl.String for c in reading.columns})
    names = [column.name for column in reading.columns]
    frame = rows if isinstance(rows, pl.DataFrame) else pl.DataFrame(rows, infer_schema_length=None)
    frame = frame.select(*names, *(name for name in frame.columns if name not in names))
    # A column without a single value is still one of numbers or of names.
    kinds = {column.name: pl.Float64 if column.unit else pl.String for column in reading.columns}
    return frame.cast({name: kinds.get(name, pl.Float64) for name in frame.columns if frame.schema[name] == pl.Null})


def manifest(subject: Subject, reading: Reading | None = None, options: dict[str, Any] | None = None) -> dict[str, Any]:
    """Everything the numbers depend on."""
    model, options = subject.model, options or {}
    if reading is not None and reading.module == "importance" and options.get("live"):
        subject = live_subject(subject, reading.name == "importance_layers")
    # What is counted from shapes does not wait for the weights to be read.
    digest = None if reading is not None and reading.needs == ("shapes",) else subject.digest
    found: dict[str, Any] = {"model": model.name, "weights_sha256": digest, "spec": model.spec.to_dict()}
    if reading is not None:
        found |= {"reading": reading.name, "paper_section": reading.section, "invariant_under": reading.invariance}
        found |= {"units": {column.name: column.unit for column in reading.columns}, "options": options}
    needs = ("weights", "text", "random tokens") if reading is None else reading.needs
    if reading is not None and reading.name == "induction":
        found |= {"thresholds": INDUCTION_THRESHOLDS, "partner_z": PARTNER_Z}
    if reading is not None and reading.shows_qk and (parts := left_out(model.weights, reading.name == "taps")):
        found["approximate"] = parts
    found["folded"] = "exactly, in float64, for weights; runs are of the raw weights in float32"
    if "text" in needs:
        bos = model.spec.bos if starts_with_bos(model.spec, subject.bos) else None
        found["text"] = {"source": subject.text_source, "sequences": len(subject.windows)}
        found["text"] |= {"context": subject.context_length, "bos": bos}
        if reading is not None and reading.module in ("importance", "virtual"):
            found["text"] |= {"positions_scored": len(subject.scored_rows)}
    if "random tokens" in needs:
        found["random_tokens"] = {"block": subject.block_length, "copies": 3, "batch": subject.batch}
        if reading is not None and reading.name == "induction":
            sequences, copies = subject.removal_size
            found["random_tokens"] |= {"heads_removed_from": {"sequences": sequences, "copies": copies}}
    if reading is not None and "context" in reading.also:
        found["context"] = subject.context_length
    found["seed"] = subject.seed
    found["versions"] = {name: importlib.metadata.version(name) for name in ("pathsum", "torch", "polars")}
    found["python"] = platform.python_version()
    return found
