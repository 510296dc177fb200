"""The command line: a thin face of the catalogue. Errors are one clear line and exit 1; wrong usage exits 2."""

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `pathsum` with the given arguments (the process's own by default)."""
    arguments = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    from pathsum.errors import PathsumError

    try:
        _run(arguments)
    except PathsumError as error:
        _fail(str(error))
    except BrokenPipeError:
        # The reader of our output went away (`pathsum … | head`); there is nobody left to tell.
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        _fail(f"cannot read or write: {error}")
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "allocate memory" not in str(error):
            raise
        _fail("not enough memory; pass a smaller --context or --sequences")


def _run(arguments: list[str]) -> None:
    from pathsum.cli.app import build_app

    try:
        build_app(arguments[0])(args=arguments, prog_name="pathsum")
    finally:
        # Here, where a full disk or a closed pipe can still be said so, and not when the process ends.
        sys.stdout.flush()


def _fail(message: str) -> None:
    print(f"pathsum: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(1)
