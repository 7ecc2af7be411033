"""Limits of davylamp's HTTP servers: host names, sizes, times and security headers."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..errors import Unavailable
from .http_names import AllowedHosts

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

HEADER_BYTES = 16 << 10
_FORM_BYTES = 1 << 20
_CHUNK_SECONDS = 20.0  # time limit for the next chunk of a body
_BODY_SECONDS, _BODY_RATE = 60.0, 8 << 10  # time limit of a body, plus one second per so many bytes received
_HEADER_SECONDS = 10.0  # time limit for the headers of a request
_STALLED_SECONDS = 30.0  # in which a client must read part of the response
_UPLOADS = 2  # simultaneous uploads per user
ROOM = 300  # connections above which those of silent clients are closed
_CONNECTIONS = ROOM + 100  # if all of these wait for a response, further ones are refused
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "cache-control": "no-store",
    "content-security-policy": POLICY,
}


class Protected:
    """ASGI application that wraps another one, and protects it from harmful requests.

    Requests are refused if their host name is not accepted, or if their body is too large or arrives too slowly.
    Responses get security headers.

    Args:
        application: the wrapped ASGI application.
        names: host names that are accepted in requests. Other names could come from an attack by DNS rebinding.
        largest: largest size of an upload, in bytes.
        uploader: function that is called with a request. It returns the name of the user who uploads a file with this
            request, or "" if the ordinary size limit applies. If None, every request may be as large as an upload.
    """

    def __init__(
        self,
        application: Application,
        names: AllowedHosts,
        largest: int,
        uploader: Callable[[Scope], str] | None = None,
    ):
        self.application, self.names, self.largest, self.uploader = application, names, largest, uploader
        self._uploading: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.application(scope, receive, send)
            return
        headers = {name.lower(): value for name, value in scope["headers"]}
        host = headers.get(b"host", b"").decode("latin-1")
        if status := self.names.status(host):
            await _refuse(
                send,
                int(status[:3]),
                "the host name in the request is not accepted; start the server with --allow-host NAME to accept "
                "further names",
            )
            return
        asked = len(scope.get("raw_path") or b"") + len(scope["query_string"])
        if asked + sum(len(name) + len(value) for name, value in scope["headers"]) > HEADER_BYTES:
            await _refuse(send, 431, f"expected at most {HEADER_BYTES} bytes of headers")
            return
        # The application reads the whole form before it authenticates the user.
        try:
            uploader = (
                ""
                if self.uploader is None or scope["method"] != "POST"
                else await asyncio.to_thread(self.uploader, scope)
            )
        except Unavailable as error:
            await _refuse(send, 503, str(error))
            return
        limit = self.largest if uploader or self.uploader is None else _FORM_BYTES
        stated = headers.get(b"content-length", b"0")
        if not stated.isdigit() or int(stated[:19]) > limit:
            more = "" if uploader or self.uploader is None else " unless a signed-in user uploads a file"
            await _refuse(send, 413, f"expected at most {limit} bytes{more}")
            return
        if uploader and self._uploading[uploader] >= _UPLOADS:
            await _refuse(send, 429, f"expected at most {_UPLOADS} uploads per user at the same time")
            return
        self._uploading[uploader] += 1
        try:
            await self._answer(scope, _Body(receive, limit), send)
        finally:
            self._uploading[uploader] -= 1

    async def _answer(self, scope: Scope, body: "_Body", send: Send) -> None:
        answer = _SecurityHeaders(send, body)
        try:
            await self.application(scope, body, answer)
        except _Refused as refused:
            if not answer.has_begun:
                await _refuse(send, refused.status, str(refused))


class _Refused(Exception):
    def __init__(self, status: int, why: str):
        super().__init__(why)
        self.status = status


class _Body:
    def __init__(self, receive: Receive, limit: int):
        self.receive, self.limit, self.count, self.is_whole, self.refused = receive, limit, 0, False, 0
        self._start = time.monotonic()

    async def __call__(self) -> Message:
        if self.is_whole:
            return await self.receive()
        left = self._start + _BODY_SECONDS + self.count / _BODY_RATE - time.monotonic()
        try:
            message = await asyncio.wait_for(self.receive(), max(0.0, min(left, _CHUNK_SECONDS)))
        except asyncio.TimeoutError:
            self.refused = 408
            raise _Refused(408, f"the next chunk of the request did not arrive within {_CHUNK_SECONDS:.0f} s") from None
        if message["type"] == "http.request":
            self.count += len(message.get("body", b""))
            self.is_whole = not message.get("more_body", False)
            if self.count > self.limit:
                self.refused = 413
                raise _Refused(413, f"expected a request of at most {self.limit} bytes")
        return message


class _SecurityHeaders:
    """Adds the security headers to a response. A header that the page has set is not replaced."""

    def __init__(self, send: Send, body: "_Body"):
        self.send, self.body, self.has_begun = send, body, False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_begun = True
            status = self.body.refused or message["status"]  # a form parser would report a refusal as a malformed form
            hang_up = [(b"connection", b"close")] if self.body.refused else []
            message = {**message, "status": status, "headers": _with_headers([*message.get("headers", []), *hang_up])}
        await self.send(message)


class TimeoutProtocol(H11Protocol):
    """Uvicorn's HTTP protocol with time limits for clients that send no complete headers or do not read the response.

    If there are more than `ROOM` connections, one of those that wait for their client is closed: the one whose client
    has been silent longest. Idle clients thus cannot block others.
    """

    def connection_made(self, transport: Any) -> None:
        """Start the time limits of a new connection."""
        super().connection_made(transport)
        self._heard = time.monotonic()
        if len(self.connections) > ROOM:
            self._make_room()
        self._waiting: asyncio.TimerHandle | None = None
        self._left, self._taken = 1 << 62, False  # bytes that were not taken yet when it was looked last
        self._wait()
        self._looking = self.loop.call_later(_STALLED_SECONDS, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the time limits of the connection."""
        self._stop_waiting()
        self._looking.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Process received data. The time limit for the headers stays active until the headers are complete."""
        self._heard = time.monotonic()
        super().data_received(data)
        if self._is_between:
            self._wait()
        else:
            self._stop_waiting()

    def resume_writing(self) -> None:
        """Stop the time limit for reading, because the client has read a part of the response."""
        self._taken, self._heard = True, time.monotonic()
        super().resume_writing()

    @property
    def _is_between(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    @property
    def _waits_for_client(self) -> bool:
        """Whether the connection waits for its client to send a request or a body, or to read a response."""
        return self._is_between or self.cycle.more_body or self.transport.get_write_buffer_size() > 0

    def _make_room(self) -> None:
        others = (each for each in self.connections if each is not self and isinstance(each, TimeoutProtocol))
        left = [each for each in others if not each.transport.is_closing()]  # several may arrive together
        silent = [each for each in left if each._waits_for_client]
        if len(left) >= ROOM and silent:
            min(silent, key=lambda each: each._heard).transport.abort()

    def _wait(self) -> None:
        if self._waiting is None:
            self._waiting = self.loop.call_later(_HEADER_SECONDS, self._give_up)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _give_up(self) -> None:
        if self._is_between:
            self.transport.abort()

    def _look(self) -> None:
        left = self.transport.get_write_buffer_size()
        if left and left >= self._left and not self._taken:
            self.transport.abort()
            return
        self._left, self._taken = left or 1 << 62, False
        self._looking = self.loop.call_later(_STALLED_SECONDS, self._look)


def configure(application: Any, *, proxy: bool = False) -> uvicorn.Config:
    """Return the Uvicorn configuration for an application.

    Args:
        application: the application, wrapped in `Protected`.
        proxy: whether a proxy on this machine sets X-Forwarded-For and X-Forwarded-Proto. If not, these headers are
            ignored, because any client can send them.
    """
    return uvicorn.Config(
        application,
        http=TimeoutProtocol,
        log_level="warning",
        limit_concurrency=_CONNECTIONS,
        timeout_keep_alive=10,
        timeout_graceful_shutdown=5,
        h11_max_incomplete_event_size=HEADER_BYTES,
        server_header=False,
        proxy_headers=proxy,
        forwarded_allow_ips=["127.0.0.1", "::1"],  # regardless of $FORWARDED_ALLOW_IPS
    )


async def _refuse(send: Send, status: int, why: str) -> None:
    body = why.encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    headers += [(b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": _with_headers(headers)})
    await send({"type": "http.response.body", "body": body})


def _with_headers(given: Any) -> list[tuple[bytes, bytes]]:
    there = {name.lower() for name, _ in given}
    more = [(name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in there]
    return [*given, *more]
