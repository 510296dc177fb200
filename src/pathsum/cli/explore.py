"""`pathsum explore MODEL…`: the report's pages, live, in a browser."""

from pathlib import Path
from typing import Annotated

import typer

from pathsum.explorer.settings import KEPT

MODELS = Annotated[list[str], typer.Argument(help="Models as pathsum read takes them; several can be compared.")]
PORT = Annotated[int, typer.Option("--port", min=0, max=65_535, help="0: any that is free.")]
HOST = Annotated[
    str, typer.Option("--host", help="Another address than this machine's own: then a token is needed to look.")
]
CACHE = Annotated[
    Path | None, typer.Option("--cache", help="Folder for answers (default: pathsum/explorer in your cache folder).")
]
CACHE_SIZE = Annotated[
    float, typer.Option("--cache-size", min=0.1, help="Gigabytes of answers that are kept; the oldest go first.")
]


def explore(
    models: MODELS,
    port: PORT = 8321,
    host: HOST = "127.0.0.1",
    cache: CACHE = None,
    cache_size: CACHE_SIZE = KEPT / 1e9,
) -> None:
    """Explore models in a browser: type a prompt, choose a target, change parameters, compare.

    Prints the address to open, and serves until Ctrl-C. Nothing but these models can be opened from the browser.
    """
    from pathsum.training.machine import let_waiting_threads_sleep

    let_waiting_threads_sleep()
    import secrets
    from dataclasses import replace

    from pathsum.explorer.serve import listening, serve, url
    from pathsum.explorer.settings import Settings
    from pathsum.weights.checkpoint import open_model

    with listening(host, port) as at:
        settings = Settings(host=host, port=at.getsockname()[1], kept=int(cache_size * 1e9))
        if not settings.is_local:
            settings = replace(settings, token=secrets.token_urlsafe(24))
        if cache is not None:
            settings = replace(settings, cache=cache)
        serve([open_model(model) for model in models], settings, at, lambda: print(f"Open {url(settings)}", flush=True))
