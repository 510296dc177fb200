"""The page of a sweep: what is read off weights alone above, what the model does on tokens below, over training."""

from pathlib import Path
from typing import Any

from pathsum.report.document import Part, document
from pathsum.report.figures.over_training import over_training
from pathsum.report.gallery import Drawing
from pathsum.report.numbers import count
from pathsum.report.tokens import printable
from pathsum.study.catalogue import BY_NAME
from pathsum.study.sweep import series_table, sweep_manifest

PAGE = "sweep.html"


def write_sweep_page(out: Path | str) -> Path:
    """Writes `sweep.html` into the folder of a sweep, beside it first. Raises `StudyError` where there is none."""
    beside = Path(out) / f".{PAGE}.part"
    beside.write_text(sweep_page(out), encoding="utf-8")
    return beside.replace(Path(out) / PAGE)


def sweep_page(out: Path | str) -> str:
    """All that a sweep has read, against tokens seen in training, as HTML."""
    manifest = sweep_manifest(out)
    drawn = {name: _drawings(out, name) for name in manifest["readings"]}
    alone = {name: each for name, each in drawn.items() if BY_NAME[name].needs == ("weights",)}
    parts = [
        Part("circuits", "Circuits alone", "Circuits", (
            "Read off the weights of each checkpoint; no text was run.",), drawings=_flat(alone)),
        Part("behaviour", "What the model does", "Behaviour", (
            f"On the text ({printable(manifest['text'])}) and on repeated random tokens.",),
            drawings=_flat({name: each for name, each in drawn.items() if name not in alone})),
    ]  # fmt: skip
    shown = [part for part in parts if part.drawings]
    return document("sweep", Path(manifest["series"]).name, _lead(manifest), shown, _short(manifest))


def _drawings(out: Path | str, name: str) -> list[Drawing]:
    if not any((Path(out) / name).glob("*.parquet")):
        return []
    drawn = over_training(name, series_table(out, name))
    titles = [f"{BY_NAME[name].title}: {what}" for what, _ in drawn]
    few = "Of many lines, the largest at the end are named."
    return [
        Drawing(f"{name}-{at}", "", title, few, figure)
        for at, (title, (_, figure)) in enumerate(zip(titles, drawn, strict=True))
    ]


def _flat(drawn: dict[str, list[Drawing]]) -> tuple[Drawing, ...]:
    return tuple(drawing for each in drawn.values() for drawing in each)


def _lead(manifest: dict[str, Any]) -> tuple[str, ...]:
    every = manifest["checkpoints"]
    read = [one for one in every if "weights_sha256" in one]
    words = [f"{count(len(read))} of {count(len(every))} checkpoints read: {', '.join(manifest['readings'])}."]
    words += [f"Of equal weights: {', '.join(names)}." for names in manifest["duplicates"]]
    left_out = sorted({name for names in manifest["not_applicable"].values() for name in names})
    return (*words, *([f"Not applicable to some: {', '.join(left_out)}."] if left_out else []))


def _short(manifest: dict[str, Any]) -> dict[str, Any]:
    """Without the manifest of every reading, which repeats the model's facts."""
    return {name: value for name, value in manifest.items() if name != "manifests"}
