"""Serving: the address is taken before anything else, so that a port in use is one clear line."""

import contextlib
import socket
from collections.abc import Callable, Sequence

import uvicorn

from pathsum.errors import StudyError
from pathsum.explorer.app import application
from pathsum.explorer.settings import ADDRESS, WILDCARDS, Settings
from pathsum.weights.model import Model


def listening(host: str, port: int) -> socket.socket:
    """A socket at this address; of port 0, at any that is free. Raises `StudyError` where it is in use, or is none."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, UnicodeError) as error:
        raise StudyError(f"cannot listen at {host}, port {port} ({error}); pass another --port or --host") from error


def serve(models: Sequence[Model], settings: Settings, at: socket.socket, ready: Callable[[], None]) -> None:
    """Serve until interrupted; `ready` is called when the application is made. Workers end with it."""
    app = application(models, settings)
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, proxy_headers=False, http="h11", ws="none",
        h11_max_incomplete_event_size=ADDRESS + 16_384, timeout_graceful_shutdown=2,
    )  # fmt: skip
    ready()
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[at])


def url(settings: Settings) -> str:
    """What to open."""
    host = _reachable() if settings.host in WILDCARDS else settings.host
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{settings.port}/" + (f"?token={settings.token}" if settings.token else "")


def _reachable() -> str:
    """This machine's address towards others; connecting a datagram socket sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return probe.getsockname()[0]
        except OSError:
            return "127.0.0.1"
