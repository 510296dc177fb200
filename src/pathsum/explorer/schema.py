"""What the API takes and gives, typed: OpenAPI follows from it."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from pathsum.explorer.ask import Option
from pathsum.explorer.settings import PROMPT, TEXT

NAME = 200
"""Characters of a name."""


class Refusal(BaseModel):
    """Why there is no answer."""

    error: str = Field(description="its kind")
    detail: str = Field(description="what is wrong, and what to do")


class ModelFacts(BaseModel):
    """An opened model."""

    name: str
    layers: int
    heads: int
    d_model: int
    d_head: int
    d_vocab: int
    n_ctx: int
    parameters: int
    has_tokenizer: bool


class ColumnFacts(BaseModel):
    """A column of a reading's table."""

    name: str
    unit: str
    meaning: str


class ParameterFacts(BaseModel):
    """What can be set of a reading."""

    name: str
    kind: Literal["number", "word", "flag", "choice", "text"]
    default: Option
    help: str
    choices: list[str]


class ReadingFacts(BaseModel):
    """A reading of the catalogue."""

    name: str
    title: str
    section: str
    needs: list[str]
    columns: list[ColumnFacts]
    parameters: list[ParameterFacts]


class NewJob(BaseModel):
    """A reading to make."""

    model_config = ConfigDict(extra="forbid")
    model: str = Field(max_length=NAME)
    reading: str = Field(max_length=NAME)
    parameters: dict[str, str | int | float | bool] = Field({}, description="as in the reading's form")


class NewPaths(BaseModel):
    """A prediction whose strongest paths are wanted."""

    model_config = ConfigDict(extra="forbid")
    model: str = Field(max_length=NAME)
    prompt: str = Field(min_length=1, max_length=PROMPT)
    at: int = Field(-1, ge=-TEXT, lt=TEXT, description="predict after this token: from 0, or from the end")
    target: str | None = Field(None, max_length=NAME, description="default: the token that follows")
    against: str | None = Field(None, max_length=NAME, description="less the logit of this token")
    limit: int = Field(20, ge=1, le=500)
    seconds: float = Field(10.0, ge=0, le=120, description="how long the search may be widened")


class JobFacts(BaseModel):
    """How far a job is."""

    id: str
    model: str
    readings: list[str]
    state: Literal["queued", "running", "done", "failed", "cancelled"]
    done: int = Field(description="answers there are")
    total: int
    stage: str
    before: int = Field(description="jobs of this model that go first")
    elapsed: float = Field(description="seconds since it started")
    error: str
    detail: str


class Answer(BaseModel):
    """A table and what its numbers depend on."""

    manifest: dict[str, Any]
    rows: list[dict[str, Any]]


class Heads(BaseModel):
    """Tokens of a prompt as they were run, and the heads that can be asked for."""

    model_config = ConfigDict(extra="allow")
    tokens: list[str]
    bos: bool
    heads: list[dict[str, Any]]


class HeadOnText(BaseModel):
    """Where one head looks in a prompt: see the view `attention`."""

    model_config = ConfigDict(extra="allow")
    name: str
    pattern: str = Field(description="base64 of bytes: the lower triangle row by row, 255 is 1")


class PathFacts(BaseModel):
    """One prediction as the sum of its paths: see the view `paths`. Numbers are nats."""

    model_config = ConfigDict(extra="allow")
    token: str
    target: str
    versus: str | None
    at: int
    value: float
    paths: list[dict[str, Any]]
    certified: bool
    tokens: list[str] = Field(description="of the prompt, as they were run")


class HeadName(BaseModel):
    """A head, and what it is in a few words."""

    name: str
    note: str
    rotary: bool = Field(description="its QK depends on the distance")


class HeadList(BaseModel):
    """The heads of a model."""

    heads: list[HeadName]
    n_ctx: int = Field(description="distances are from 0 to one less")


class HeadFacts(BaseModel):
    """What the readings say of a head: see the view `head`."""

    model_config = ConfigDict(extra="allow")
    name: str
    roles: list[str]
    scores: dict[str, float | None]


class TokenFound(BaseModel):
    """A token of the vocabulary."""

    id: int
    text: str


Strengths = list[tuple[str, float]]


class TokenFacts(BaseModel):
    """A head's tables around a token: the strongest of each, null where a distance would be needed."""

    outs: Strengths
    destinations: Strengths | None
    sources: Strengths | None
