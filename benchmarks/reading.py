"""`pathsum read`: every reading, the page and the tables. No peer makes them."""

import contextlib
import io
import tempfile
from collections.abc import Callable

from benchmark import Benchmark, Side


def read(model: str) -> Callable[[], None]:
    from pathsum.cli import main

    def once() -> None:
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            try:
                main(["read", model, "--out", folder])
            except SystemExit as stopped:
                if stopped.code:
                    raise RuntimeError(f"pathsum read {model} failed") from stopped

    return once


BENCHMARKS = [Benchmark("read-two-layer", Side(lambda: read("two-layer"), runs=3))]
