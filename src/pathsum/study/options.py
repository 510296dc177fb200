"""What a reading's own options mean, and how they are read from text: for the command line and the explorer's forms."""

import math

from pathsum.errors import StudyError

DELTA = "Distance destination − source, for rotary models."
LIVE = (
    "Also run the model again without each of them, frozen and with the rest free to react; of fewer contexts where "
    "that would take long, unless sequences are given."
)
SEVERAL_DISTANCES = ("composition",)
"""Readings that take several distances, or average over all."""
OPTIONS: dict[str, dict[str, str]] = {
    "composition": {
        "delta": "Distance destination − source, for rotary models: a number; several, as 0,1,2, each with rows of its "
        "own; or rms, the root mean square over all.",
        "erratum": "Also show the scores of the paper's first diagram, with its cyclic permutation.",
        "sampled": "Also show the paper's own baseline: the mean over random matrices.",
        "writers": "heads; or all: embedding, positions and MLPs too.",
        "readers": "heads; or all: MLPs and the unembedding too.",
        "metric": "tokens: the same numbers also in the basis in which tokens are spread evenly.",
        "dtype": "float32 or float64: of the products; spectra and moments are float64.",
        "memory": "What may be held beyond the weights, such as 4GB.",
    },
    "bigram_pairs": {"count": "How many, the most frequent first."},
    "matching": {"z": "Only pairs whose K-composition has at least this z."},
    "importance": {
        "only": "Of the terms whose heads are all among these, such as L0H3,L1H6.",
        "without": "Of the terms with none of these heads.",
    },
    "importance_layers": {"live": LIVE},
    "importance_heads": {"live": LIVE},
    "importance_paths": {
        "max_order": "Heads in a path, at most.",
        "source": "Of paths from this source alone, such as embed or L0.mlp.",
        "most": "More paths than this are refused.",
    },
    "virtual": {"pairs": "Leave out, one by one, this many pairs, the largest in size."},
    "positional": {"lags": "How many lags."},
    "pointer": {"positions": "How many of the first positions."},
    "spectra": {"exact": "Rank every token, however large the vocabulary, instead of a random sample."},
    "entries": {"count": "Entries a table."},
    "trigrams": {
        "count": "Skip-trigrams a head.",
        "per_source": "At most this many of each source token.",
        "head": "Of this head alone, such as L0H3.",
        "source": "Of this source token alone, with its leading space: ' keep'.",
        "corpus": "Only of tokens that occur in this file or folder, or in the word python: its standard library.",
    },
    "bugs": {
        "count": "Bugs a head.",
        "per_source": "At most this many of each source token.",
        "among": "The strongest products of a head that are looked at.",
        "least": "Both parts occur at least this often.",
        "window": "Tokens in which source and destination, or output, count as together (default: the context).",
        "head": "Of this head alone, such as L0H3.",
    },
}
"""Help of each reading's own options."""
CHOICES: dict[tuple[str, str], tuple[str, ...]] = {
    ("composition", "writers"): ("heads", "all"),
    ("composition", "readers"): ("heads", "all"),
    ("composition", "metric"): ("tokens",),
    ("composition", "dtype"): ("float32", "float64"),
}
"""(reading, option) of options that take one of a few words."""


def distance(reading: str, text: str | None) -> float | list[float] | str | None:
    """A distance Δ from text: a number; where the reading takes them, several with commas, or `rms`.

    Raises `StudyError`.
    """
    if text is None or (text == "rms" and reading in SEVERAL_DISTANCES):
        return text
    try:
        numbers = [float(part) for part in text.split(",")]
        if not all(math.isfinite(number) for number in numbers):
            raise ValueError(text)
    except ValueError as error:
        several = ", several with commas, or rms" if reading in SEVERAL_DISTANCES else ""
        raise StudyError(f"{text!r} is no distance; give a number{several}") from error
    if len(numbers) > 1 and reading not in SEVERAL_DISTANCES:
        raise StudyError(f"{reading} is of one distance; give one number as delta")
    return numbers[0] if len(numbers) == 1 else numbers
