"""Who may ask: every request passes here first.

1. Its Host must be a name of this server (`Settings.knows`), so that no foreign name that points here is served.
2. A request made by another site's page is refused: by its Origin, or, where browsers send none, by Sec-Fetch-Site.
   What changes something (POST, DELETE) must say an Origin, this server's own.
3. Where there is a token, the request must know it: in the address at first, then in a cookie, or as a bearer.
4. Bodies and addresses have a largest size.

Every answer says that nothing may be loaded from elsewhere and that nobody may frame it.
"""

import hmac
from collections.abc import Callable
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pathsum.explorer.refused import Refused
from pathsum.explorer.settings import ADDRESS, BODY, Settings

SAFE = ("GET", "HEAD", "OPTIONS")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
"""Styles may stand in elements: Vega writes them there. Scripts may not."""
HEADERS = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


class Guard:
    """The application behind its checks; `refuse` makes an answer of a refusal."""

    def __init__(self, app: ASGIApp, settings: Settings, refuse: Callable[[Headers, Refused], ASGIApp]):
        self.app, self.settings, self.refuse = app, settings, refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        headers, answer = Headers(scope=scope), self.app
        try:
            _check_origin(scope["method"], headers, self.settings)
            answer = self._entered(scope, headers) or answer
            receive = _again(await _body(scope, headers, receive), receive)
        except Refused as refused:
            answer = self.refuse(headers, refused)
        await answer(scope, receive, _with_headers(send))

    def _entered(self, scope: Scope, headers: Headers) -> ASGIApp | None:
        """Raises unless the token is known; from the address it goes into a cookie, and the address is asked anew."""
        token, cookie = self.settings.token, f"pathsum-{self.settings.port}"
        if token is None:
            return None
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = dict(query).get("token")
        if given is not None and _equal(given, token):
            if scope["method"] not in SAFE:
                return None
            rest = urlencode([(key, value) for key, value in query if key != "token"])
            answer = RedirectResponse("/" + scope["path"].lstrip("/") + (f"?{rest}" if rest else ""), 303)
            answer.set_cookie(cookie, token, httponly=True, samesite="lax", path="/")
            return answer
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        kept = cookie_parser(headers.get("cookie", "")).get(cookie, "")
        if not (_equal(kept, token) or _equal(bearer, token)):
            raise Refused(401, "Unauthorized", "this server needs its token: open the address that it printed")
        return None


def _equal(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())


def _check_origin(method: str, headers: Headers, settings: Settings) -> None:
    host = headers.get("host", "")
    if not settings.knows(host):
        raise Refused(403, "ForeignHost", f"this server is not called {host[:80]!r}; open the address that it printed")
    origin = headers.get("origin")
    if origin is not None and _place(origin) != host.strip().lower():
        raise Refused(403, "ForeignOrigin", f"requests from pages of {origin[:80]!r} are not answered")
    if origin is None and method not in SAFE:
        raise Refused(403, "ForeignOrigin", f"{method} needs an Origin header with this server's address")
    if headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate":
        raise Refused(403, "ForeignOrigin", "requests from other sites' pages are not answered")


def _place(origin: str) -> str | None:
    """Host and port of an origin of the web; None: of nothing that may ask."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return None
    return parts.netloc.lower() if parts.scheme in ("http", "https") else None


async def _body(scope: Scope, headers: Headers, receive: Receive) -> bytes:
    if len(scope["query_string"]) > ADDRESS:
        raise Refused(414, "TooLong", f"the address has over {ADDRESS:,} bytes; shorten the prompt")
    body, more = b"", scope["method"] not in SAFE
    length = headers.get("content-length", "0")
    if not length.isdecimal() or int(length[:12]) > BODY:
        raise Refused(413, "TooLarge", f"the body has over {BODY:,} bytes")
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
        if len(body) > BODY:
            raise Refused(413, "TooLarge", f"the body has over {BODY:,} bytes")
    return body


def _again(body: bytes, receive: Receive) -> Receive:
    """The body that was read, then whatever the server says next."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def read() -> Message:
        return waiting.pop() if waiting else await receive()

    return read


def _with_headers(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            headers.setdefault("cache-control", "no-store")
        await send(message)

    return sent
