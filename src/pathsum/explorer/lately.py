"""What was made lately and may be wanted again: the last few, by key."""

from collections.abc import Callable, Hashable
from typing import Any


class Lately:
    """At most `room` things; who was asked for longest ago goes first. Used by one thread at a time."""

    def __init__(self, room: int):
        self._room, self._kept = room, dict[Hashable, Any]()

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What is kept under this key, or what `make` makes; None is not kept."""
        found = self._kept.pop(key, None)
        if found is None:
            found = make()
        if found is not None:
            self._kept[key] = found
        while len(self._kept) > self._room:
            del self._kept[next(iter(self._kept))]
        return found
