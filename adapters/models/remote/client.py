"""The client of one server: a connection that stays open, tried again after faults, never faster than was said."""

import http.client
import json
import random
import ssl
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import Any, NamedTuple

from ....errors import ModelFailed
from ...user_code_guard import one_line
from .address import Address
from .server_usage import ServerUsage
from .transport import Transport, token_header

LARGEST = 1 << 28  # bytes of an answer
_CHUNK = 1 << 16
FIRST_WAIT, LONGEST_WAIT = 0.25, 30.0  # seconds before the second try; before any
LONGEST_ASKED = 300.0  # of a server's Retry-After
_TRY_AGAIN = (408, 425, 429, 500, 502, 503, 504)
_UNSEEN = (408, 425, 429, 503)  # refused before any image was looked at
_ADVICE: Mapping[int, str] = {
    401: "the server wants a token: put it into an environment variable and name it with --token VARIABLE",
    403: "the token, if there is one, is not enough for this model",
    404: "check the name of the model and its version",
    429: "lower --rate",
}


class Reply(NamedTuple):
    """What a server answered; the names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def kind(self) -> str:
        """Of the content: "application/json"."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


class ConnectionFailed(Exception):
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

    def request(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Reply:
        """One exchange.

        Raises:
            ConnectionFailed: if the server cannot be reached; its error is the cause.
            OSError, http.client.HTTPException: if the connection breaks, or takes too long.
            OverflowError: if the answer is too large.
        """
        deadline = time.monotonic() + self.timeout
        try:
            connection = self._open()
        except (OSError, UnicodeError) as error:
            self.close()
            raise ConnectionFailed(str(error)) from error
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


class RateLimiter:
    """No more than so many images or requests a second."""

    def __init__(self, rate: float | None, unit: str, sleep: Callable[[float], Any] = time.sleep):
        self.rate, self.unit, self._sleep, self._next = rate, unit, sleep, 0.0

    def wait(self, images: int) -> None:
        """Wait until so many images may be sent."""
        if self.rate is None:
            return
        now = time.monotonic()
        if self._next > now:
            self._sleep(self._next - now)
        self._next = max(now, self._next) + (images if self.unit == "images" else 1) / self.rate


class _RequestFailure(NamedTuple):
    """Why there is no answer, and after how many seconds the server wants to be asked again; None: it does not say."""

    why: str
    wait: float | None = None


class RetryingClient:
    """Sends requests to one server until they are answered, or there is no point in it.

    After a server failed for good it is tried only once at a time until it answers again: an attack of a thousand
    images is not to wait a minute for each of them.

    Args:
        address: of the server.
        transport: how it is asked.
        traffic: where images are counted that may have been seen twice.
        sleep: in place of waiting.
    """

    def __init__(
        self, address: Address, transport: Transport, traffic: ServerUsage, sleep: Callable[[float], Any] = time.sleep
    ):
        self.address, self.transport, self.traffic, self._sleep = address, transport, traffic, sleep
        header = token_header(address, transport)
        self._secrets = [part for value in header.values() for part in (value, value.removeprefix("Bearer "))]
        self.connection = Connection(address, transport.timeout, {**header, "Accept-Encoding": "identity"})
        self._pace = RateLimiter(transport.rate, transport.unit, sleep)
        self._jitter = random.Random(0)
        self._is_down = False

    def send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
        *,
        images: int = 0,
    ) -> Reply:
        """The answer to a request, of a status that asking again would not change.

        Args:
            method: of the request.
            path: of the request.
            body: of the request.
            headers: of the request.
            images: in it.

        Raises:
            ModelFailed: if the server cannot be reached or fails each time.
        """
        tries = 1 if self._is_down else self.transport.tries
        trouble = _RequestFailure("")
        for attempt in range(tries):
            if images:
                self._pace.wait(images)
            answer = self._try(method, path, body, headers, images)
            if isinstance(answer, Reply):
                self._is_down = False
                return answer
            trouble = answer
            if trouble.wait is not None and trouble.wait > LONGEST_ASKED:
                break
            if attempt + 1 < tries:
                self._sleep(self._wait(attempt) if trouble.wait is None else trouble.wait)
        self._is_down = True
        often = f" {tries} times" if tries > 1 else ""
        raise self._failure(f"{trouble.why}{often}; is it running, and does it take this model's requests?") from None

    def _try(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], images: int
    ) -> "Reply | _RequestFailure":
        """One exchange: the answer, or why it may be worth to ask again."""
        try:
            reply = self.connection.request(method, path, body, headers)
        except ConnectionFailed as error:
            if isinstance(error.__cause__, ssl.SSLCertVerificationError):
                raise self._failure(f"has a certificate that cannot be trusted ({one_line(error)})") from None
            return _RequestFailure(f"cannot be reached ({one_line(error)})")
        except OverflowError as error:
            raise self._failure(f"sent {error}; that is no answer of a classifier") from None
        except TimeoutError:
            why = f"did not answer within {self.transport.timeout:g} s (--timeout)"
        except (OSError, http.client.HTTPException) as error:
            why = f"broke off its answer ({type(error).__name__}{': ' * bool(str(error))}{one_line(error)})"
        else:
            if reply.status not in _TRY_AGAIN:
                return reply
            self.connection.close()  # some hang up after an error without a word: the next request would run into that
            self.traffic.retried += 0 if reply.status in _UNSEEN else images
            return _RequestFailure(f"answered {self.describe(reply)}", _retry_after(reply))
        self.traffic.retried += images
        return _RequestFailure(why)

    def describe(self, reply: Reply) -> str:
        """A status and what the server says of it, in one line without the token."""
        said = error_of(reply)
        advice = f"; {_ADVICE[reply.status]}" if reply.status in _ADVICE else ""
        return self._hidden(f"{reply.status}{': ' * bool(said)}{said}{advice}")

    def _failure(self, why: str) -> ModelFailed:
        return ModelFailed(self._hidden(f"the server at {self.address.place} {why}"))

    def _hidden(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def _wait(self, attempt: int) -> float:
        return min(FIRST_WAIT * 2**attempt, LONGEST_WAIT) * (0.5 + self._jitter.random() / 2)


def error_of(reply: Reply) -> str:
    """What an answer says of an error: the `error` of JSON, or how a page begins."""
    text = reply.body[:4096].decode("utf-8", "replace")
    if reply.kind == "application/json" or text[:1] == "{":
        try:
            content = json.loads(reply.body)
        except ValueError:
            return one_line(text)[:120]
        if isinstance(content, dict):
            said = next((content[key] for key in ("error", "detail", "message") if content.get(key)), "")
            return one_line(said)[:160]
    return one_line(text)[:80]


def _retry_after(reply: Reply) -> float | None:
    """Seconds that a server asks for, as a number or a date; None if it asks for none that can be read."""
    text = reply.headers.get("retry-after", "").strip()
    if text.isdecimal():
        return float(text[:9])
    try:
        when = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    when = when if when.tzinfo else when.replace(tzinfo=timezone.utc)
    return max(0.0, (when - datetime.now(timezone.utc)).total_seconds())
