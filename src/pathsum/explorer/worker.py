"""A process that makes answers: what is asked comes in as one line of JSON, what it found goes out as others.

    {"progress": [done, total, stage]}    {"answer": digest, "value": {…}}    {"failed": {"error": …, "detail": …}}

It ends when its input does, so that none outlives the server whatever became of it.
"""

import json
import os
import sys
import threading
import traceback
from typing import Any, TextIO

from pathsum.errors import PathsumError


def main() -> None:
    """Read what is asked, answer, end."""
    from pathsum.training.machine import let_waiting_threads_sleep

    let_waiting_threads_sleep()
    # What libraries print belongs to the server's terminal, never between our lines.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    wanted = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_input, daemon=True).start()
    try:
        _answer(wanted, out)
    except PathsumError as error:
        _say(out, {"failed": {"error": type(error).__name__, "detail": " ".join(str(error).split())}})
    except MemoryError:
        _say(out, {"failed": {"error": "MemoryError", "detail": "not enough memory; ask for a smaller context"}})
    except Exception as error:
        traceback.print_exc()
        _say(out, {"failed": {"error": type(error).__name__, "detail": f"{error}; the server's terminal has more"}})


def _end_with_input() -> None:
    # Of the descriptor itself: a thread that waits inside sys.stdin would hold its lock when the process ends.
    while os.read(0, 1024):
        pass
    os._exit(1)


def _answer(wanted: dict[str, Any], out: TextIO) -> None:
    _say(out, {"progress": [0, len(wanted["asks"]), "Opening the model"]})
    from pathsum.explorer.answers import answer, title
    from pathsum.explorer.ask import Ask
    from pathsum.weights.checkpoint import open_model

    model = open_model(wanted["place"])
    kept: dict[str, Any] = {}
    for done, (digest, plain) in enumerate(wanted["asks"].items()):
        ask = Ask.model_validate(plain)
        _say(out, {"progress": [done, len(wanted["asks"]), title(ask)]})
        _say(out, {"answer": digest, "value": answer(ask, model, kept)})


def _say(out: TextIO, message: dict[str, Any]) -> None:
    out.write(json.dumps(message, ensure_ascii=True, allow_nan=False) + "\n")
    out.flush()


if __name__ == "__main__":
    main()
