"""One connection to a server that stays open: a request, and its answer within a time and a size."""

import http.client
import ssl
import time
from collections.abc import Mapping
from typing import NamedTuple

from .address import Address

LARGEST = 1 << 28  # bytes of an answer
_CHUNK = 1 << 16


class Reply(NamedTuple):
    """What a server answered; the names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def kind(self) -> str:
        """Of the content: "application/json"."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


class NotSent(Exception):
    """The server could not be reached: it has seen nothing."""


class Connection:
    """A connection that is opened when it is needed, and again after it was closed.

    Args:
        address: of the server; TLS is checked against the system's certificates.
        timeout: seconds until an answer has to be there in full.
        headers: sent with every request.
    """

    def __init__(self, address: Address, timeout: float, headers: Mapping[str, str]):
        self.address, self.timeout, self._headers = address, timeout, dict(headers)
        self._connection: http.client.HTTPConnection | None = None

    def ask(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Reply:
        """One exchange.

        Raises:
            NotSent: if the server cannot be reached; its error is the cause.
            OSError, http.client.HTTPException: if the connection breaks, or takes too long.
            OverflowError: if the answer is too large.
        """
        deadline = time.monotonic() + self.timeout
        try:
            connection = self._open()
        except (OSError, UnicodeError) as error:
            self.close()
            raise NotSent(str(error)) from error
        try:
            try:
                connection.request(method, path, body, {**self._headers, **headers})
            except (BrokenPipeError, ConnectionResetError) as broken:
                reply = _early_answer(connection, broken)
                closes = True  # half of the request is on its way
            else:
                reply = connection.getresponse()
                closes = reply.will_close
            content = _read(reply, deadline)
        except BaseException:
            self.close()  # what is left of the answer would be taken for that to the next request
            raise
        if closes:
            self.close()
        return Reply(reply.status, {name.lower(): value for name, value in reply.getheaders()}, content)

    def close(self) -> None:
        """Close it; the next request opens it again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self) -> http.client.HTTPConnection:
        if self._connection is None:
            where = (self.address.host, self.address.port)
            if self.address.scheme == "https":
                context = ssl.create_default_context()
                self._connection = http.client.HTTPSConnection(*where, timeout=self.timeout, context=context)
            else:
                self._connection = http.client.HTTPConnection(*where, timeout=self.timeout)
        if self._connection.sock is None:
            self._connection.connect()
        return self._connection


def _early_answer(connection: http.client.HTTPConnection, broken: OSError) -> http.client.HTTPResponse:
    """What a server said before it had read the whole request and hung up: that it is too large, or needs a token."""
    try:
        return connection.getresponse()
    except (OSError, http.client.HTTPException):
        raise broken from None


def _read(reply: http.client.HTTPResponse, deadline: float) -> bytes:
    """The body, however slowly it drips, until the deadline."""
    parts, size = [], 0
    while part := reply.read1(_CHUNK):
        parts.append(part)
        size += len(part)
        if size > LARGEST:
            raise OverflowError(f"more than {LARGEST >> 20} MiB")
        if time.monotonic() > deadline:
            raise TimeoutError("the answer took too long")
    if reply.length:  # read1 does not complain, as read does, of an answer that is cut short
        raise http.client.IncompleteRead(b"", reply.length)
    reply.close()  # the connection stays
    return b"".join(parts)
