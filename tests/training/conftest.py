import random
from pathlib import Path

import pytest

WORDS = (
    "the",
    "a",
    "head",
    "layer",
    "token",
    "path",
    "reads",
    "writes",
    "moves",
    "copies",
    "matches",
    "earlier",
    "value",
)


def prose(seed: int, words: int) -> str:
    source = random.Random(seed)
    return "".join(source.choice(WORDS) + (".\n\n" if i % 40 == 39 else " ") for i in range(words))


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of small made-up texts, enough for a vocabulary of 300 and contexts of 32."""
    folder = tmp_path_factory.mktemp("texts")
    for index in range(12):
        (folder / f"text{index:02d}.txt").write_text(prose(index, 1500))
    return folder
