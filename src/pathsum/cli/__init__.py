"""The command line: a thin face of the catalogue. Errors are one clear line and exit 1; wrong usage exits 2."""

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `pathsum` with the given arguments (the process's own by default)."""
    arguments = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    from pathsum.cli.app import build_app
    from pathsum.errors import PathsumError

    try:
        build_app(arguments[0])(args=arguments, prog_name="pathsum")
    except PathsumError as error:
        message = " ".join(str(error).split())
        print(f"pathsum: {message}", file=sys.stderr)
        sys.exit(1)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "allocate memory" not in str(error):
            raise
        print("pathsum: not enough memory; pass a smaller --context or --sequences", file=sys.stderr)
        sys.exit(1)
    except BrokenPipeError:
        # The reader of our output went away (`pathsum … | head`); there is nobody left to tell.
        sys.stderr.close()
        sys.exit(1)
