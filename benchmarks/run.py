"""`make bench [ONLY="composition graded"]`: ours and a peer's way, in turn, each side in a fresh process.

Writes `benchmarks/latest.json`, a list of `{name, ours_s, peer_s, ratio, ours_cpu_s, peer_cpu_s, ours_mb, peer_mb,
load, cores, date, …}`; benchmarks that were not run keep their last entry. Seconds are the median of several runs
after a warm-up; MB is the process's peak beyond what setting up took; `load` is the machine's before we began: only
near 0 are seconds to be believed. `limit` is the share of this machine's own rate of matrix products that was
reached. A new benchmark is a file here with a list `BENCHMARKS`, named in `MODULES`.
"""

import argparse
import datetime
import importlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any

from benchmark import Benchmark, load, measured, python_of

LATEST = Path(__file__).with_name("latest.json")
MODULES = ("composition", "streamed", "eigenvalues", "largest", "graded", "training", "opening", "reading")
COLUMNS = (("ours s", "ours_s", ".3f"), ("peer s", "peer_s", ".3f"), ("ratio", "ratio", ".1f"),
           ("ours MB", "ours_mb", ".0f"), ("peer MB", "peer_mb", ".0f"), ("limit", "gemm_share", ".0%"),
           ("load", "load", ".1f"))  # fmt: skip


def benchmarks() -> list[Benchmark]:
    """All of them; ours and a peer's packages are imported by their sides only."""
    return [one for module in MODULES for one in importlib.import_module(module).BENCHMARKS]


def fresh(one: Benchmark, which: str) -> dict[str, Any]:
    """One side, measured in a process of its own; its numbers under its name."""
    side = getattr(one, which)
    if side is None:
        return {}
    command = [python_of(side), __file__, "--side", which, one.name]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return {f"{which}_failed": (done.stderr.strip().splitlines() or ["killed"])[-1]}
    found = json.loads(done.stdout.splitlines()[-1])
    return {name if name.startswith("gemm") else f"{which}_{name}": value for name, value in found.items()}


def row(one: Benchmark) -> dict[str, Any]:
    """Both sides."""
    busy = load()
    found = {"name": one.name, **fresh(one, "ours"), **fresh(one, "peer")}
    if found.get("ours_s") and found.get("peer_s"):
        found["ratio"] = found["peer_s"] / found["ours_s"]
    if "gemm_s" in found:
        # The peer timed the product that ours does without: of that rate, ours is more than all.
        found["gemm_share"] = found["gemm_s"] / found["ours_s"]
    return {**found, "load": busy, "cores": os.cpu_count(), "date": datetime.date.today().isoformat()}


def line(numbers: dict[str, Any]) -> str:
    cells = [format(numbers[key], how) if key in numbers else "–" for _, key, how in COLUMNS]
    failed = [numbers[key] for key in ("ours_failed", "peer_failed") if key in numbers]
    return f"{numbers['name']:28}" + "".join(f"{cell:>10}" for cell in cells) + "".join(f"  {why}" for why in failed)


def _write(rows: list[dict[str, Any]]) -> None:
    beside = LATEST.with_suffix(".part")
    beside.write_text(json.dumps(list({row["name"]: row for row in rows}.values()), indent=1) + "\n")
    beside.replace(LATEST)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="beginnings of the benchmarks' names; all by default")
    parser.add_argument("--side", choices=("ours", "peer"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    every = {one.name: one for one in benchmarks()}
    if given.side is not None:
        print(json.dumps(measured(getattr(every[given.names[0]], given.side))))
        return
    kept = {old["name"]: old for old in json.loads(LATEST.read_text())} if LATEST.is_file() else {}
    print(f"{'name':28}" + "".join(f"{title:>10}" for title, _, _ in COLUMNS))
    for name, one in every.items():
        if not given.names or any(name.startswith(start) for start in given.names):
            kept[name] = row(one)
            print(line(kept[name]), flush=True)
            # After each, so that a run that is stopped keeps what it has measured.
            _write([kept[name] for name in [*every, *kept] if name in kept])


if __name__ == "__main__":
    main()
