"""An answer that says no: what is wrong and what to do, as `{error, detail}` or as a page."""

from http import HTTPStatus

from pathsum.errors import ExpansionTooLarge, PathsumError


class Refused(Exception):
    """A request that is not answered, with its 4xx status."""

    def __init__(self, status: int, error: str, detail: str):
        super().__init__(detail)
        self.status, self.error, self.detail = status, error, detail

    def __str__(self) -> str:
        return f"{self.error}: {self.detail}"


def refusal_of(error: PathsumError) -> Refused:
    """What pathsum raised on purpose is the caller's to mend: 413 where the answer is too large, else 422."""
    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE if isinstance(error, ExpansionTooLarge) else 422
    return Refused(int(status), type(error).__name__, " ".join(str(error).split()))
