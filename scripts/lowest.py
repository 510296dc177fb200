"""Prints the lowest version that pyproject.toml allows of each library that users get, as constraints for pip.

python scripts/lowest.py > lowest.txt
pip install -c lowest.txt -e '.[dev]'
"""

import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
FOR_USERS = ("hub", "train", "cluster")
"""Of the extras; what develops pathsum, and Jupyter, which runs it, may be of any version."""


def lowest() -> list[str]:
    """`torch==2.9` and the like."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    required = [
        *project["dependencies"],
        *(one for name in FOR_USERS for one in project["optional-dependencies"][name]),
    ]
    return [re.sub(r">=", "==", one, count=1) for one in required]


if __name__ == "__main__":
    print("\n".join(lowest()))
