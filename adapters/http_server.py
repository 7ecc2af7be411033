"""A small HTTP server: where it listens, to which names it answers, how much it reads and for how long it waits.

It serves a report (`davylamp serve`) and a model (`davylamp serve-model`) with the standard library alone; a lab's
server, an application, has Uvicorn.
"""

import json
import re
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ..errors import InvalidInput, Unavailable

CONNECTIONS = 500  # at once; further ones wait until one of these ends
SILENCE = 10.0  # seconds after which a connection that sends nothing is closed
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_EVERYWHERE = ("0.0.0.0", "::")
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:\[\]/@\s]+))(?::[0-9]{1,5})?")


class HttpAnswer(NamedTuple):
    """What is answered to a request."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def json_answer(status: int, content: Any) -> HttpAnswer:
    """An answer in JSON."""
    return HttpAnswer(status, {"Content-Type": "application/json"}, json.dumps(content).encode())


class Names:
    """The names under which a server may be asked: a page elsewhere cannot read along under a name that it registered.

    That a name of the attacker's leads to this machine (DNS rebinding) is seen from the request's Host. An address
    written in numbers is nobody's name: if the server listens at every address, it answers to each of them.

    Args:
        host: the address that it listens at, as it was given.
        others: further names, as a proxy or a hosts file gives the machine.
    """

    def __init__(self, host: str, others: Iterable[str] = ()):
        self._anywhere = host in _EVERYWHERE
        names = {host, *others}
        if self._anywhere or host in _LOOPBACK or host.startswith("127."):
            names |= {*_LOOPBACK}
        if host not in _LOOPBACK:
            names.add(socket.gethostname())
        self._names = {_plain(name) for name in names}

    def status(self, header: str | None) -> str:
        """The status of the answer to a request with this Host; "" if it may be answered."""
        match = _HOST.fullmatch(header or "")
        if match is None:
            return "400 Bad Request"
        name = _plain(match[1] or match[2])
        return "" if name in self._names or (self._anywhere and _is_address(name)) else "403 Forbidden"


def listen(host: str, port: int) -> socket.socket:
    """A socket bound to the address, and to no other.

    Raises:
        InvalidInput: if the address is empty, or another word for every address.
        Unavailable: if it cannot be listened at.
    """
    if not host.strip():
        raise InvalidInput("expected --host ADDRESS, got an empty text; leave it out for this machine only (127.0.0.1)")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # named, as asyncio then turns Nagle off
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        bound = listener.getsockname()[0]
    except (OSError, UnicodeError) as error:
        listener.close()
        raise Unavailable(f"could not listen at {host}:{port} ({error}); choose another with --port") from error
    if bound in _EVERYWHERE and host not in _EVERYWHERE:
        listener.close()
        raise InvalidInput(f"expected --host ADDRESS, got {host!r}, which is every address: write 0.0.0.0 to mean that")
    return listener


class HttpServer(ThreadingHTTPServer):
    """Answers requests, each connection in a thread of its own.

    Args:
        host: address to listen at; "0.0.0.0" is every address of this machine.
        port: 0: any that is free.
        answer: called with the method, the path without its query, the headers by name in lower case, and the body.
        names: further names under which it may be asked for.
        largest: bytes of a request's body.
        connections: at once; further ones wait.
        silence: seconds after which a connection that sends nothing is closed.

    Raises:
        InvalidInput: if the address is empty.
        Unavailable: if it cannot be listened at.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(
        self,
        host: str,
        port: int,
        answer: Callable[[str, str, Mapping[str, str], bytes], HttpAnswer],
        *,
        names: Iterable[str] = (),
        largest: int = 0,
        connections: int = CONNECTIONS,
        silence: float = SILENCE,
    ):
        host = host.strip().removeprefix("[").removesuffix("]")
        self.answer, self.names, self.largest, self.silence = answer, Names(host, names), largest, silence
        self._places = threading.BoundedSemaphore(connections)
        listener = listen(host, port)
        super().__init__(listener.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.server_name, self.server_port = listener.getsockname()[:2]
        self.server_activate()
        shown = socket.gethostname() if host in _EVERYWHERE else f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self.server_port}"

    def run(self) -> None:
        """HttpAnswer until interrupted."""
        try:
            self.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            return
        finally:
            self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        """HttpAnswer in a thread of its own, once there is room for it."""
        self._places.acquire()
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """The thread's work."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no error of ours."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "davylamp", ""
    disable_nagle_algorithm = True  # else an answer waits 40 ms for the client to confirm its head
    server: HttpServer

    def setup(self) -> None:
        self.request.settimeout(self.server.silence)
        super().setup()

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the signature is the library's
        """Nothing is logged: a request may hold what is nobody's business."""

    def _answer(self) -> None:
        if refused := self._refused():  # what is left of the request would be taken for the next one
            self.close_connection = True
            self._send(json_answer(refused[0], {"error": refused[1]}))
            return
        length = int(self.headers.get("Content-Length", "0"))
        body = self.rfile.read(length)
        if len(body) < length:
            self.close_connection = True
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        self._send(self.server.answer(self.command, urlsplit(self.path).path, headers, body))

    do_DELETE = do_GET = do_HEAD = do_PATCH = do_POST = do_PUT = _answer  # noqa: N815 - the names are the library's

    def _refused(self) -> tuple[int, str] | None:
        """Status and reason where a request is not to be read."""
        if status := self.server.names.status(self.headers.get("Host")):
            return int(status[:3]), "this server has another name: --allow-host NAME"
        text, largest = self.headers.get("Content-Length", "0"), self.server.largest
        if not (text.isascii() and text.isdecimal()) or "Transfer-Encoding" in self.headers:
            return 411, "expected a Content-Length"
        if int(text[:20]) > largest:
            return 413, f"expected at most {largest} bytes, got {text[:20]}"
        if self.headers.get("Content-Encoding", "identity") != "identity":
            return 415, "expected a body that is not compressed"
        return None

    def _send(self, answer: HttpAnswer) -> None:
        self.send_response(answer.status)
        headers = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", **answer.headers}
        headers |= {"Connection": "close"} if self.close_connection else {}
        for name, value in {**headers, "Content-Length": str(len(answer.body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)


def _plain(name: str) -> str:
    return name.strip("[]").removesuffix(".").lower()


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
