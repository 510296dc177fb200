"""A page's state, all of it in its address; and the sides of a page, one a model."""

from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Query
from pydantic import BaseModel, Field

from pathsum.explorer.ask import Ask
from pathsum.explorer.html import address
from pathsum.explorer.opened import Opened
from pathsum.explorer.refused import Refused
from pathsum.explorer.schema import NAME
from pathsum.explorer.settings import PROMPT, TEXT


class View(BaseModel):
    """What is looked at. `versus` is a second model, shown beside the first."""

    model: str = Field(default="", max_length=NAME)
    versus: str = Field(default="", max_length=NAME)
    head: str = Field(default="", max_length=NAME)
    token: str = Field(default="", max_length=NAME)
    distance: int | None = Field(default=None, ge=0, lt=TEXT)
    """Δ of QK tables of rotary heads; `delta` is taken, by the readings."""
    prompt: str = Field(default="", max_length=PROMPT)
    at: int = Field(default=-1, ge=-TEXT, lt=TEXT)
    target: str = Field(default="", max_length=NAME)
    against: str = Field(default="", max_length=NAME)
    reading: str = Field(default="", max_length=NAME)

    def state(self) -> dict[str, Any]:
        """What an address needs: all that is not as it is by default; models and reading are always there."""
        always = {"model": self.model, "versus": self.versus, "reading": self.reading}
        return always | self.model_dump(exclude_defaults=True)


TheView = Annotated[View, Query()]


@dataclass
class Side:
    """One model on a page: what is shown of it, or what is still to be made."""

    opened: Opened
    number: int
    content: dict[str, Any] = field(default_factory=dict)
    pending: list[Ask] | None = None

    @property
    def name(self) -> str:
        return self.opened.name

    def links(self) -> dict[str, str]:
        """By head, the address of its page."""
        both = {"model": self.name}
        return {head: address("head", both, head=head) for head in self.opened.subject.head_names}


def sides(view: View, models: dict[str, Opened]) -> list[Side]:
    """One, or two where a second model is named. Raises `Refused` (404) for a name that is not open."""
    first = next(iter(models))
    names = [view.model or first] + ([view.versus] if view.versus else [])
    for name in names:
        if name not in models:
            raise Refused(404, "NoSuchModel", f"no model {name[:80]!r} is open; there are {', '.join(models)}")
    return [Side(models[name], number) for number, name in enumerate(names)]
