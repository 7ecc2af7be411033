"""HTTP client for the JSON interface of a davylamp server. It needs only Python's standard library."""

import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from ...engine.store.atomic_files import replace_file
from ...errors import InvalidInput, Unavailable

SERVER, TOKEN = "DAVYLAMP_SERVER", "DAVYLAMP_TOKEN"
_SECONDS = 60.0
_LOCAL = ("localhost", "127.0.0.1", "::1")


class ServerClient:
    """Client of one server. If the environment variable `DAVYLAMP_TOKEN` has a token, all requests contain the token.

    Args:
        address: address of the server, such as "https://HOST". "" for the address in the environment variable
            `DAVYLAMP_SERVER`.

    Raises:
        InvalidInput: If there is no address, or if a token would be sent to a different machine over plain HTTP.
    """

    def __init__(self, address: str = ""):
        self.address = (address or os.environ.get(SERVER, "")).rstrip("/")
        self.token = os.environ.get(TOKEN, "")
        parts = urlsplit(self.address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidInput(f"expected --server http(s)://HOST or {SERVER} in the environment, got {address!r}")
        if self.token and parts.scheme == "http" and parts.hostname not in _LOCAL:
            raise InvalidInput(
                f"expected https://{parts.netloc}, got plain HTTP, over which others could read the token in "
                "DAVYLAMP_TOKEN"
            )
        self._opener = build_opener(_NoRedirect)

    def ask(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """Send a request to the server, and return the JSON response. The path is relative to the JSON interface.

        Raises:
            InvalidInput: If the server refuses the request.
            Unavailable: If the server cannot be reached.
        """
        data = None if body is None else json.dumps(body).encode()
        with self._open(method, path, data, {"content-type": "application/json"}, query) as answer:
            return json.load(answer)

    def save(self, path: str, target: Path) -> None:
        """Download a file. If the download fails, `target` is not changed."""

        def write(draft: Path) -> None:
            with self._open("GET", path, None, {}, {}) as answer, draft.open("wb") as file:
                shutil.copyfileobj(answer, file, 1 << 20)

        replace_file(target, write)

    def send_file(self, path: str, fields: Mapping[str, str], file: Path | None) -> Any:
        """Send a form with an optional file to the server, and return the JSON response. The file is read in chunks."""
        mark = f"davylamp{secrets.token_hex(16)}"
        parts = [_field(mark, name, value) for name, value in fields.items()]
        if file is not None:
            head = f'--{mark}\r\ncontent-disposition: form-data; name="file"; filename="{_quoted(file.name)}"\r\n'
            parts.append(f"{head}content-type: application/octet-stream\r\n\r\n".encode())
        start, end = b"".join(parts), f"--{mark}--\r\n".encode()
        size = 0
        if file is not None:
            size, end = file.stat().st_size, b"\r\n" + end  # a file's bytes end before this line end
        headers = {"content-type": f"multipart/form-data; boundary={mark}"}
        headers["content-length"] = str(len(start) + size + len(end))
        with self._open("POST", path, _pieces(start, file, end), headers, {}) as answer:
            return json.load(answer)

    def _open(self, method: str, path: str, data: Any, headers: Mapping[str, str], query: Mapping[str, Any]) -> Any:
        asked = f"?{urlencode(query)}" if query else ""
        request = Request(f"{self.address}/api/v1{path}{asked}", data, dict(headers), method=method)
        if self.token:
            request.add_header("authorization", f"Bearer {self.token}")
        try:
            return self._opener.open(request, timeout=_SECONDS)
        except HTTPError as error:
            raise InvalidInput(f"{self.address} refused: {_reason(error)}") from error
        except (URLError, HTTPException, OSError) as error:
            raise Unavailable(f"could not reach {self.address} ({getattr(error, 'reason', error)})") from error


class _NoRedirect(HTTPRedirectHandler):
    """Refuses HTTP redirects, so that the token is never sent to a different server."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Return None, which makes urllib refuse the redirect."""


def _reason(error: HTTPError) -> str:
    try:
        return str(json.loads(error.read(1 << 16))["error"])
    except (ValueError, KeyError, TypeError, OSError):
        return f"{error.code} {error.reason}"


def _field(mark: str, name: str, value: str) -> bytes:
    return f'--{mark}\r\ncontent-disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()


def _quoted(name: str) -> str:
    return "".join(each if each.isprintable() and each not in '"\\' else "_" for each in name)


def _pieces(start: bytes, file: Path | None, end: bytes) -> Iterator[bytes]:
    yield start
    if file is not None:
        with file.open("rb") as opened:
            while piece := opened.read(1 << 20):
                yield piece
    yield end
