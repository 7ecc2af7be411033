"""What stands in front of every page: names of this machine, sizes, time, and headers for the browser."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from ...report.page.serving import Names

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

HEADER_BYTES = 16 << 10
_FORM_BYTES = 1 << 20
_CHUNK_SECONDS = 20.0  # that a client may take for the next piece of a body
_HEADER_SECONDS = 10.0  # that a client may take for its first request
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
    """An application behind limits: foreign names, too large and too slow bodies are refused, headers are added.

    Args:
        application: what answers.
        names: under which it may be asked for (DNS rebinding).
        largest: bytes of an upload.
        takes_files: whether a path takes uploads.
    """

    def __init__(self, application: Application, names: Names, largest: int, takes_files: Callable[[str], bool]):
        self.application, self.names, self.largest, self.takes_files = application, names, largest, takes_files

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one connection's request."""
        if scope["type"] != "http":
            await self.application(scope, receive, send)
            return
        headers = {name.lower(): value for name, value in scope["headers"]}
        host = headers.get(b"host", b"").decode("latin-1")
        if status := self.names.status(host):
            await _refuse(
                send, int(status[:3]), "expected a request to this machine by its own name (--allow-host NAME)"
            )
            return
        if sum(len(name) + len(value) for name, value in scope["headers"]) > HEADER_BYTES:
            await _refuse(send, 431, f"expected at most {HEADER_BYTES} bytes of headers")
            return
        limit = self.largest if self.takes_files(scope["path"]) else _FORM_BYTES
        stated = headers.get(b"content-length", b"0")
        if not stated.isdigit() or int(stated[:19]) > limit:
            await _refuse(send, 413, f"expected at most {limit} bytes")
            return
        body = _Body(receive, limit)
        answer = _GuardedAnswer(send, body)
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
    """A request's body, up to its limit and in time."""

    def __init__(self, receive: Receive, limit: int):
        self.receive, self.limit, self.count, self.is_whole, self.refused = receive, limit, 0, False, 0

    async def __call__(self) -> Message:
        if self.is_whole:
            return await self.receive()
        try:
            message = await asyncio.wait_for(self.receive(), _CHUNK_SECONDS)
        except asyncio.TimeoutError:
            self.refused = 408
            raise _Refused(408, f"expected the next piece of the request within {_CHUNK_SECONDS:.0f} s") from None
        if message["type"] == "http.request":
            self.count += len(message.get("body", b""))
            self.is_whole = not message.get("more_body", False)
            if self.count > self.limit:
                self.refused = 413
                raise _Refused(413, f"expected at most {self.limit} bytes")
        return message


class _GuardedAnswer:
    """What is sent, with the headers; a page that has its own policy keeps it."""

    def __init__(self, send: Send, body: "_Body"):
        self.send, self.body, self.has_begun = send, body, False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_begun = True
            status = self.body.refused or message["status"]  # what reads a form takes a refusal for a wrong form
            hang_up = [(b"connection", b"close")] if self.body.refused else []
            message = {**message, "status": status, "headers": _with_headers([*message.get("headers", []), *hang_up])}
        await self.send(message)


class Patient(H11Protocol):
    """Uvicorn's protocol that does not wait for ever for a request's headers, as it does by itself."""

    def connection_made(self, transport: Any) -> None:
        """Begin to wait."""
        super().connection_made(transport)
        self._waiting = self.loop.call_later(_HEADER_SECONDS, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop to wait."""
        self._waiting.cancel()
        super().connection_lost(exc)

    def _give_up(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.close()


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
