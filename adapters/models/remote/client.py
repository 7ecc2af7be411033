"""HTTP client for one server. It keeps a connection open, retries failed requests, and limits the request rate."""

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

LARGEST = 1 << 28  # limit on the size of a response, in bytes
_CHUNK = 1 << 16
FIRST_WAIT, LONGEST_WAIT = 0.25, 30.0  # seconds before the first retry; limit for any retry
LONGEST_ASKED = 300.0  # limit on a server's Retry-After, in seconds
_TRY_AGAIN = (408, 425, 429, 500, 502, 503, 504)
_UNSEEN = (408, 425, 429, 503)  # refused before any image was processed
_ADVICE: Mapping[int, str] = {
    401: "the server needs a token: put it into an environment variable and name it with --token VARIABLE",
    403: "the token, if any, does not permit the use of this model",
    404: "check the name of the model and its version",
    429: "lower --request-rate",
}


class Reply(NamedTuple):
    """Response of a server. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def kind(self) -> str:
        """Content type, such as "application/json"."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


class ConnectionFailed(Exception):
    """Raised if the server could not be reached and has therefore processed nothing."""


class Connection:
    """A connection to a server. It opens at the first request, and again at the next request after it was closed.

    Args:
        address: address of the server. TLS certificates are verified with the system's certificates.
        timeout: seconds within which the complete response must arrive.
        headers: headers for every request.
    """

    def __init__(self, address: Address, timeout: float, headers: Mapping[str, str]):
        self.address, self.timeout, self._headers = address, timeout, dict(headers)
        self._connection: http.client.HTTPConnection | None = None

    def request(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Reply:
        """Send one request and return the response.

        Raises:
            ConnectionFailed: if the server cannot be reached. The network error is the cause.
            OSError, http.client.HTTPException: if the connection breaks, or takes too long.
            OverflowError: if the response is too large.
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
                closes = True  # half of the request was sent
            else:
                reply = connection.getresponse()
                closes = reply.will_close
            content = _read(reply, deadline)
        except BaseException:
            self.close()  # the rest of the response would be read as that of the next request
            raise
        if closes:
            self.close()
        return Reply(reply.status, {name.lower(): value for name, value in reply.getheaders()}, content)

    def close(self) -> None:
        """Close the connection. The next request opens it again."""
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
    """Read the response of a server that closed the connection before it had read the whole request."""
    try:
        return connection.getresponse()
    except (OSError, http.client.HTTPException):
        raise broken from None


def _read(reply: http.client.HTTPResponse, deadline: float) -> bytes:
    """Read the body of a response. Stop at the deadline, even if data keeps arriving."""
    parts, size = [], 0
    while part := reply.read1(_CHUNK):
        parts.append(part)
        size += len(part)
        if size > LARGEST:
            raise OverflowError(f"more than {LARGEST >> 20} MiB")
        if time.monotonic() > deadline:
            raise TimeoutError("the server did not complete its response within the time limit")
    if reply.length:  # unlike read, read1 does not report a truncated response
        raise http.client.IncompleteRead(b"", reply.length)
    reply.close()  # keeps the connection open
    return b"".join(parts)


class _RequestFailure(NamedTuple):
    """Reason of a failed request, and the seconds to wait according to the server's Retry-After header, or None."""

    why: str
    wait: float | None = None


class RetryingClient:
    """Sends requests to one server. Failed requests are repeated if this can help.

    If all attempts of a request fail, later requests get only one attempt until the server responds again. Otherwise,
    an attack on a thousand images would wait a minute for each image.

    Args:
        address: address of the server.
        transport: rate, retries, timeout and token.
        traffic: counts images that the server may have processed twice.
        sleep: function that waits for some seconds. Tests replace it.
    """

    def __init__(
        self, address: Address, transport: Transport, traffic: ServerUsage, sleep: Callable[[float], Any] = time.sleep
    ):
        self.address, self.transport, self.traffic, self._sleep = address, transport, traffic, sleep
        header = token_header(address, transport)
        self._secrets = [part for value in header.values() for part in (value, value.removeprefix("Bearer "))]
        self.connection = Connection(address, transport.timeout, {**header, "Accept-Encoding": "identity"})
        self._next = 0.0  # time from which the rate allows the next request
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
        """Send a request and return the response. A failed request is repeated if this can help.

        Args:
            method: HTTP method, such as "POST".
            path: path of the request.
            body: body of the request.
            headers: headers of the request.
            images: number of images in the request.

        Raises:
            ModelFailed: if the server cannot be reached or every attempt fails.
        """
        tries = 1 if self._is_down else self.transport.tries
        trouble = _RequestFailure("")
        for attempt in range(tries):
            if images and self.transport.rate is not None:
                now = time.monotonic()
                if self._next > now:
                    self._sleep(self._next - now)
                units = images if self.transport.unit == "images" else 1
                self._next = max(now, self._next) + units / self.transport.rate
            answer = self._try(method, path, body, headers, images)
            if isinstance(answer, Reply):
                self._is_down = False
                return answer
            trouble = answer
            if trouble.wait is not None and trouble.wait > LONGEST_ASKED:
                break
            if attempt + 1 < tries:
                longest = min(FIRST_WAIT * 2**attempt, LONGEST_WAIT)
                chosen = longest * (0.5 + self._jitter.random() / 2) if trouble.wait is None else trouble.wait
                self._sleep(chosen)
        self._is_down = True
        often = f" {tries} times" if tries > 1 else ""
        raise self._failure(f"{trouble.why}{often}; check that the server runs and serves this model") from None

    def _try(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], images: int
    ) -> "Reply | _RequestFailure":
        """Send a request once.

        Returns:
            The response, or the reason of a failure that may be temporary.
        """
        try:
            reply = self.connection.request(method, path, body, headers)
        except ConnectionFailed as error:
            if isinstance(error.__cause__, ssl.SSLCertVerificationError):
                raise self._failure(f"has a certificate that cannot be trusted ({one_line(error)})") from None
            return _RequestFailure(f"cannot be reached ({one_line(error)})")
        except OverflowError as error:
            raise self._failure(f"sent {error}, which is too large for a classifier's response") from None
        except TimeoutError:
            why = f"did not respond within {self.transport.timeout:g} s (--timeout)"
        except (OSError, http.client.HTTPException) as error:
            why = f"broke off its response ({type(error).__name__}{': ' * bool(str(error))}{one_line(error)})"
        else:
            if reply.status not in _TRY_AGAIN:
                return reply
            self.connection.close()  # some hang up after an error without a word: the next request would run into that
            self.traffic.retried += 0 if reply.status in _UNSEEN else images
            return _RequestFailure(f"returned {self.describe(reply)}", _retry_after(reply))
        self.traffic.retried += images
        return _RequestFailure(why)

    def describe(self, reply: Reply) -> str:
        """Describe a response in one line, with its status and the server's message. The token is removed."""
        message = error_of(reply)
        advice = f"; {_ADVICE[reply.status]}" if reply.status in _ADVICE else ""
        return self._hidden(f"{reply.status}{': ' * bool(message)}{message}{advice}")

    def _failure(self, why: str) -> ModelFailed:
        return ModelFailed(self._hidden(f"the server at {self.address.place} {why}"))

    def _hidden(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


def error_of(reply: Reply) -> str:
    """Return the error message in a response.

    The message is the field `error`, `detail` or `message` of a JSON response. For other responses, it is the start of
    the text.
    """
    text = reply.body[:4096].decode("utf-8", "replace")
    if reply.kind == "application/json" or text[:1] == "{":
        try:
            content = json.loads(reply.body)
        except ValueError:
            return one_line(text)[:120]
        if isinstance(content, dict):
            message = next((content[key] for key in ("error", "detail", "message") if content.get(key)), "")
            return one_line(message)[:160]
    return one_line(text)[:80]


def _retry_after(reply: Reply) -> float | None:
    """Return the seconds to wait according to a Retry-After header, which has a number or a date.

    None if the header is missing or unreadable.
    """
    text = reply.headers.get("retry-after", "").strip()
    if text.isdecimal():
        return float(text[:9])
    try:
        when = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    when = when if when.tzinfo else when.replace(tzinfo=timezone.utc)
    return max(0.0, (when - datetime.now(timezone.utc)).total_seconds())
