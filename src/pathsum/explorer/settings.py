"""Where the explorer listens, who may ask, and how much."""

import ipaddress
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

BODY = 256 * 1024
"""Bytes of a request's body."""
ADDRESS = 60_000
"""Bytes of its address, in which a prompt stands."""
PROMPT = 20_000
"""Characters of a prompt."""
TEXT = 200_000
"""Characters of a text that readings are made on."""
KEPT = 2_000_000_000
"""Bytes of answers that are kept."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")
WILDCARDS = ("0.0.0.0", "::")


@dataclass(frozen=True)
class Settings:
    """Of one server."""

    host: str = "127.0.0.1"
    port: int = 8321
    token: str | None = None
    """What every request must know; None: nothing, for an address of this machine alone."""
    cache: Path = field(default_factory=lambda: cache_folder())
    kept: int = KEPT
    """Bytes of answers in it."""

    @property
    def is_local(self) -> bool:
        return self.host in LOOPBACK

    def knows(self, host: str) -> bool:
        """Whether a request's Host is a name of this server.

        A page elsewhere can make a name of its own point here (DNS rebinding), but no address and not `localhost`.
        """
        name = _name(host)
        if name in LOOPBACK or name == self.host:
            return True
        return self.host in WILDCARDS and _is_address(name)


def _name(host: str) -> str:
    """Without its port and brackets, in small letters."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def cache_folder() -> Path:
    """The user's cache folder, as the system has it."""
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home())
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "pathsum" / "explorer"
