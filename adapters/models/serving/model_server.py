"""The HTTP server around a served model: limits of size, time and number, and nothing else."""

import json
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from .served_model import Served, ServedModel

LARGEST = 1 << 28  # bytes of a request
CONNECTIONS = 64
SILENCE = 60  # seconds after which a connection that says nothing is closed


class ModelServer(ThreadingHTTPServer):
    """A thread a connection; the model answers one request at a time.

    Args:
        listener: a bound socket.
        served: what is offered.
        refuse: "" for a Host that may ask, or the status of the answer: "403 Forbidden".
        largest: bytes of a request.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(
        self,
        listener: socket.socket,
        served: ServedModel,
        refuse: Callable[[str | None], str] = lambda _: "",
        largest: int = LARGEST,
    ):
        super().__init__(listener.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket, self.served, self.refuse, self.largest = listener, served, refuse, largest
        self._places = threading.BoundedSemaphore(CONNECTIONS)
        self.server_name, self.server_port = listener.getsockname()[:2]
        self.server_activate()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own, or hang up where there are too many."""
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
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
    timeout = SILENCE
    disable_nagle_algorithm = True  # else an answer waits 40 ms for the client to confirm its head
    server: ModelServer

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the signature is the library's
        """Nothing is logged: a request may hold what is nobody's business."""

    def _answer(self) -> None:
        if refused := self.server.refuse(self.headers.get("Host")):
            self._send(
                _plain(int(refused.partition(" ")[0]), "this server has another name: --allow-host NAME"), end=True
            )
            return
        text = self.headers.get("Content-Length", "0" if self.command == "GET" else "")
        if not text.isdecimal() or "Transfer-Encoding" in self.headers:
            self._send(_plain(411, "expected a Content-Length"), end=True)
            return
        if int(text) > self.server.largest:
            self._send(_plain(413, f"expected at most {self.server.largest} bytes, got {text}"), end=True)
            return
        if self.headers.get("Content-Encoding", "identity") != "identity":
            self._send(_plain(415, "expected a body that is not compressed"), end=True)
            return
        body = self.rfile.read(int(text))
        if len(body) < int(text):
            self.close_connection = True
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        self._send(self.server.served.answer(self.command, urlsplit(self.path).path, headers, body))

    def _send(self, answer: Served, *, end: bool = False) -> None:
        self.send_response(answer.status)
        headers = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", **answer.headers}
        for name, value in headers.items():
            self.send_header(name, value)
        if end:  # what is left of the request would be taken for the next one
            self.close_connection = True
            self.send_header("Connection", "close")
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)


def _plain(status: int, why: str) -> Served:
    return Served(status, {"Content-Type": "application/json"}, json.dumps({"error": why}).encode())
