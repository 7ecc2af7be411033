"""Serves a page or a model over HTTP with Uvicorn, with the same limits as davylamp's shared server."""

import asyncio
import json
import socket
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import DavylampError, MissingLibrary
from .http_names import EVERYWHERE, AllowedHosts, listen

if TYPE_CHECKING:
    from .http_limits import Application, Receive, Scope, Send


class HttpAnswer(NamedTuple):
    """HTTP response to a request."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def json_answer(status: int, content: Any) -> HttpAnswer:
    """Build an `HttpAnswer` with JSON content."""
    return HttpAnswer(status, {"Content-Type": "application/json"}, json.dumps(content).encode())


class HttpServer:
    """HTTP server. It listens as soon as the object is created, and handles requests in threads while `run` runs.

    Args:
        host: listening address; "0.0.0.0" is every address of this machine.
        port: listening port; 0 for any free port.
        answer: function that returns the response to a request. It is called with the method, the path without its
            query, the headers by name in lower case, and the body.
        names: additional host names to accept.
        largest: largest size of a request's body, in bytes.

    Raises:
        InvalidInput: if the address is empty.
        MissingLibrary: if Uvicorn is not installed.
        Unavailable: if the server cannot listen at the address.
    """

    def __init__(
        self,
        host: str,
        port: int,
        answer: Callable[[str, str, Mapping[str, str], bytes], HttpAnswer],
        *,
        names: Iterable[str] = (),
        largest: int = 0,
    ):
        try:
            import uvicorn

            from .http_limits import Protected, configure
        except ImportError as error:
            raise MissingLibrary("uvicorn", "serve") from error
        host = host.strip().removeprefix("[").removesuffix("]")
        self._listener = listen(host, port)
        self._listener.listen(128)  # requests from now on wait for `run`
        self._server = uvicorn.Server(configure(Protected(_application(answer), AllowedHosts(host, names), largest)))
        self.port = self._listener.getsockname()[1]
        shown = socket.gethostname() if host in EVERYWHERE else f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self.port}"

    def run(self) -> None:
        """Handle requests until interrupted, or until `stop` is called."""
        try:
            self._server.run(sockets=[self._listener])
        except KeyboardInterrupt:  # which Uvicorn raises once all responses are sent
            return
        finally:
            self._listener.close()

    def stop(self) -> None:
        """Make `run` return. This method must be called from a different thread."""
        self._server.should_exit = True


def _application(answer: Callable[[str, str, Mapping[str, str], bytes], HttpAnswer]) -> "Application":
    async def application(scope: "Scope", receive: "Receive", send: "Send") -> None:
        if scope["type"] != "http":
            return
        pieces, more = [], True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            pieces.append(message.get("body", b""))
            more = message.get("more_body", False)
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if headers.get("content-encoding", "identity") != "identity":
            given = json_answer(415, {"error": "the body of the request is compressed; send it uncompressed"})
        else:
            try:
                given = await asyncio.to_thread(answer, scope["method"], scope["path"], headers, b"".join(pieces))
            except DavylampError as error:
                given = json_answer(503, {"error": str(error)})
        said = {**given.headers, "Content-Length": str(len(given.body))}
        lines = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in said.items()]
        await send({"type": "http.response.start", "status": given.status, "headers": lines})
        await send({"type": "http.response.body", "body": given.body})

    return application
