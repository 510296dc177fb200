"""Answers on disk: one compressed JSON file each, named by its digest; damage is noticed and means “not there”.

All of them together stay within a size: what was asked for longest ago goes first. A file's time is when it was last
asked for, so several servers that share a folder agree.
"""

import contextlib
import gzip
import json
import os
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any

from pathsum.errors import StudyError
from pathsum.explorer.settings import KEPT

STALE = 24 * 3600
"""Seconds after which what a killed server left half-written is swept."""
WRITING = ".writing-"
ENDING = ".json.gz"


class Cache:
    """A folder of answers. Several servers may share it."""

    def __init__(self, folder: Path, most: int = KEPT):
        """`most`: bytes of all answers. Raises `StudyError` where the folder cannot be written."""
        self.folder, self.most = folder, most
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise StudyError(f"{folder}: cannot keep answers here ({error}); pass another folder (--cache)") from error
        for left in folder.glob(f"{WRITING}*"):
            with contextlib.suppress(OSError):
                if time.time() - left.stat().st_mtime > STALE:
                    left.unlink()
        self._make_room()

    def get(self, digest: str) -> dict[str, Any] | None:
        """The answer, or None where there is none that is whole (gzip checks every byte)."""
        place = self._place(digest)
        try:
            found = json.loads(gzip.decompress(place.read_bytes()))
        except (OSError, EOFError, ValueError, zlib.error):
            return None
        with contextlib.suppress(OSError):
            os.utime(place)
        return found if isinstance(found, dict) else None

    def put(self, digest: str, answer: dict[str, Any]) -> None:
        """Written beside its place and renamed: there is a whole answer or none."""
        packed = gzip.compress(json.dumps(answer, ensure_ascii=False, allow_nan=False).encode(), 5)
        descriptor, name = tempfile.mkstemp(prefix=WRITING, dir=self.folder)
        beside = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(packed)
            beside.replace(self._place(digest))
        finally:
            beside.unlink(missing_ok=True)
        self._make_room()

    def _make_room(self) -> None:
        """Remove what was asked for longest ago, until the rest fits; the latest answer stays, however large."""
        found = []
        for place in self.folder.glob(f"*{ENDING}"):
            with contextlib.suppress(OSError):
                facts = place.stat()
                found.append((facts.st_mtime_ns, facts.st_size, place))
        room = self.most
        for number, (_, size, place) in enumerate(sorted(found, reverse=True)):
            room -= size
            if room < 0 and number:
                with contextlib.suppress(OSError):
                    place.unlink()

    def _place(self, digest: str) -> Path:
        return self.folder / f"{digest}{ENDING}"
