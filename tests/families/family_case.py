"""`Case`: one tiny model of a family, and other ways in which people's `config.json` say the same."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False)
class Case:
    """A model type of the reference, the config fields of the tiny model, and equal configs in other spellings."""

    name: str
    model_type: str
    fields: dict[str, Any]
    spellings: tuple[dict[str, Any], ...] = ()
    """Each a whole `config.json`, as people have them; must give the same numbers with the same weights."""

    def __repr__(self) -> str:
        return self.name
