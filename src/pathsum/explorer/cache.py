"""Answers on disk: one compressed JSON file each, named by its digest; damage is noticed and means “not there”."""

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

STALE = 24 * 3600
"""Seconds after which what a killed server left half-written is swept."""
WRITING = ".writing-"


class Cache:
    """A folder of answers. Several servers may share it."""

    def __init__(self, folder: Path):
        """Raises `StudyError` where the folder cannot be written."""
        self.folder = folder
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

    def get(self, digest: str) -> dict[str, Any] | None:
        """The answer, or None where there is none that is whole (gzip checks every byte)."""
        try:
            found = json.loads(gzip.decompress(self._place(digest).read_bytes()))
        except (OSError, EOFError, ValueError, zlib.error):
            return None
        return found if isinstance(found, dict) else None

    def has(self, digest: str) -> bool:
        return self._place(digest).is_file()

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

    def _place(self, digest: str) -> Path:
        return self.folder / f"{digest}.json.gz"
