"""Runs the suite with other Pythons, and with the lowest and the newest versions of libraries that are allowed.

    python scripts/matrix.py                              # all Pythons of PAIRS that are installed
    python scripts/matrix.py 3.11:lowest 3.13:newest

Each pair has an environment of its own under build/matrix, some gigabytes; its log lies beside it.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from lowest import lowest

ROOT = Path(__file__).parents[1]
PLACE = ROOT / "build" / "matrix"
PAIRS = tuple(f"{python}:{which}" for python in ("3.11", "3.12", "3.13") for which in ("lowest", "newest"))
SHOWN = ("torch", "tokenizers", "polars", "altair", "typer", "fastapi")


def main() -> None:
    pairs = sys.argv[1:] or PAIRS
    if wrong := sorted(set(pairs) - set(PAIRS)):
        sys.exit(f"{wrong[0]!r} is no pair; there are {', '.join(PAIRS)}")
    failed = False
    for pair in pairs:
        python = _installed(pair.split(":")[0])
        said, status = ("not installed", 0) if python is None else _run(python, pair)
        failed |= status != 0
        print(f"{pair:12}  {said}", flush=True)
    sys.exit(failed)


def _installed(version: str) -> str | None:
    """The program of this Python; a shim that finds none is none."""
    program = shutil.which(f"python{version}")
    works = program is not None and subprocess.run([program, "-V"], capture_output=True).returncode == 0
    return program if works else None


def _run(python: str, pair: str) -> tuple[str, int]:
    """What is said of a pair, and the status of its suite."""
    name = pair.replace(":", "-")
    folder, log = PLACE / name, PLACE / f"{name}.log"
    program = folder / "bin" / "python"
    PLACE.mkdir(parents=True, exist_ok=True)
    constraints = PLACE / f"{name}.txt"
    constraints.write_text("\n".join(lowest() if pair.endswith("lowest") else ()), encoding="utf-8")
    install = ["-m", "pip", "install", "--upgrade", "--upgrade-strategy", "eager", "-c", constraints, "-e", ".[dev]"]
    suite = ["-m", "pytest", "-n", "2", "-p", "no:cacheprovider", "-m", "not slow and not package"]
    with log.open("w", encoding="utf-8") as out:
        for command in ([python, "-m", "venv", folder], [program, *install], [program, *suite]):
            status = subprocess.run(command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT).returncode
            if status:
                break
    last = log.read_text(encoding="utf-8").strip().splitlines()[-1].strip("= ")
    return f"{last}  ({_versions(program)}; {log.relative_to(ROOT)})", status


def _versions(program: Path) -> str:
    """The versions that decide most, as installed."""
    code = f"from importlib.metadata import version; print(*(f'{{n}} {{version(n)}}' for n in {SHOWN}), sep=', ')"
    return subprocess.run([program, "-c", code], capture_output=True, text=True).stdout.strip() or "not installed"


if __name__ == "__main__":
    main()
