"""A server of the Open Inference Protocol that is not ours, in the standard library, with faults on demand."""

import base64
import hashlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn


class FaultServer(ThreadingHTTPServer):
    """Offers a module as "digits"; notes which images it has looked at.

    `faults` are done to the next inference requests, one each: a status ("500", "429", "413", "401"; "500!" hangs up
    after it), "half" (hangs up in the middle of its answer), "slow", or the text of a whole answer. `change` is done to
    images on their way in.
    """

    daemon_threads = True

    def __init__(self, net: nn.Module, **settings: Any):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.net = net
        self.is_binary, self.datatype, self.layout = True, "FP32", "NCHW"
        self.classes, self.side, self.batch = 10, 16, -1
        self.kind = "logits"
        self.change: Callable[[np.ndarray], np.ndarray] = lambda images: images
        self.faults: list[str] = []
        self.needs_token = ""
        self.most_images: int | None = None
        self.most_bytes: int | None = None  # of a request: it answers and hangs up before it has read more
        self.seen: Counter[str] = Counter()
        self.requests: list[tuple[str, int]] = []  # what was done, and how many images it was about
        self.headers: list[dict[str, str]] = []
        for name, value in settings.items():
            setattr(self, name, value)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v2/models/digits"

    @property
    def json_url(self) -> str:
        return f"json+http://127.0.0.1:{self.server_port}/predict"

    def images(self) -> int:
        """How many it has looked at."""
        return sum(self.seen.values())

    def lost(self, *kinds: str) -> int:
        """Images in requests that ended so."""
        return sum(count for kind, count in self.requests if kind in kinds)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: FaultServer

    def log_message(self, *_: Any) -> None: ...

    def do_GET(self) -> None:
        server = self.server
        if self.path == "/v2":
            self.reply({"name": "test", "extensions": ["binary_tensor_data"] if server.is_binary else []})
            return
        if self.path.rstrip("/") not in ("/v2/models/digits", "/v2/models/digits/versions/3"):
            self.reply({"error": "no such model"}, 404)
            return
        sizes = [server.side, server.side, 3] if server.layout == "NHWC" else [3, server.side, server.side]
        self.reply({
            "name": "digits", "platform": "test", "versions": ["3"],
            "inputs": [{"name": "x", "datatype": server.datatype, "shape": [server.batch, *sizes]}],
            "outputs": [{"name": "y", "datatype": "INT64" if server.kind == "labels" else "FP32",
                         "shape": [-1] if server.kind == "labels" else [-1, server.classes]}],
        })  # fmt: skip

    def do_POST(self) -> None:
        server = self.server
        length = int(self.headers["Content-Length"])
        if server.most_bytes is not None and length > server.most_bytes:
            self.reply({"error": "the request is too large"}, 413)
            self.close_connection = True
            return
        body = self.rfile.read(length)
        server.headers.append(dict(self.headers))
        fault = server.faults.pop(0) if server.faults else ""
        images, content = self.read(body)
        if server.needs_token and self.headers.get("Authorization") != server.needs_token:
            fault = "401"
        if server.most_images is not None and len(images) > server.most_images:
            fault = "413"
        server.requests.append((fault or "ok", len(images)))
        if fault.removesuffix("!").isdecimal():
            status = int(fault.removesuffix("!"))
            said = {"error": f"fault {status} {self.headers.get('Authorization')}"}
            self.reply(said, status, retry=status == 429)
            self.close_connection = fault.endswith("!")
            return
        if fault == "slow":
            time.sleep(0.6)
        if fault and fault not in ("half", "slow"):
            self.send(fault.encode(), {"Content-Type": "text/html" if fault[0] == "<" else "application/json"})
            return
        server.seen.update(hashlib.sha256(image.tobytes()).hexdigest() for image in images)
        self.answer(server.change(images), content, half=fault == "half")

    def read(self, body: bytes) -> tuple[np.ndarray, Any]:
        kinds = {"FP32": np.float32, "UINT8": np.uint8, "float32": np.float32, "uint8": np.uint8}
        if not self.path.startswith("/v2"):
            content = json.loads(body)
            kind = kinds[content["dtype"]]
            given = content["images"]
            flat = np.frombuffer(base64.b64decode(given), kind) if isinstance(given, str) else np.array(given, kind)
            return flat.reshape(content["shape"]), content
        length = int(self.headers.get("Inference-Header-Content-Length", len(body)))
        content = json.loads(body[:length])
        (tensor,) = content["inputs"]
        kind = kinds[tensor["datatype"]]
        flat = np.frombuffer(body[length:], kind) if length < len(body) else np.array(tensor["data"], kind)
        return flat.reshape(tensor["shape"]), content

    def answer(self, images: np.ndarray, content: Any, *, half: bool) -> None:
        pixels = torch.from_numpy(np.ascontiguousarray(images).astype(np.float32))
        pixels = pixels / 255 if images.dtype == np.uint8 else pixels
        if self.server.layout == "NHWC":
            pixels = pixels.permute(0, 3, 1, 2)
        with torch.no_grad():
            numbers = self.server.net(pixels)
        kind = self.server.kind
        numbers = numbers.argmax(1) if kind == "labels" else numbers.softmax(1) if kind == "probabilities" else numbers
        array = numbers.numpy()
        if not self.path.startswith("/v2"):
            self.reply({kind: array.tolist()}, half=half)
            return
        output = {"name": "y", "datatype": "INT64" if kind == "labels" else "FP32", "shape": list(array.shape)}
        asked = (content.get("outputs") or [{}])[0].get("parameters") or {}
        if not (self.server.is_binary and asked.get("binary_data")):
            self.reply({"model_name": "digits", "outputs": [{**output, "data": array.reshape(-1).tolist()}]}, half=half)
            return
        data = array.tobytes()
        head = json.dumps({"outputs": [{**output, "parameters": {"binary_data_size": len(data)}}]}).encode()
        self.send(head + data, {"Inference-Header-Content-Length": str(len(head))}, half=half)

    def reply(self, content: Any, status: int = 200, *, retry: bool = False, half: bool = False) -> None:
        headers = {"Content-Type": "application/json", **({"Retry-After": "0"} if retry else {})}
        self.send(json.dumps(content).encode(), headers, status, half=half)

    def send(self, body: bytes, headers: dict[str, str], status: int = 200, *, half: bool = False) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if half else body)
        if half:
            self.close_connection = True


@contextmanager
def _running(server: FaultServer) -> Iterator[FaultServer]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def serve(digits) -> Iterator[Callable[..., FaultServer]]:
    """Start a server of the digits' model, with settings; it ends with the test."""
    running = []

    def start(**settings: Any) -> FaultServer:
        context = _running(FaultServer(**{"net": digits.module, **settings}))
        running.append(context)
        return context.__enter__()

    yield start
    for context in running:
        context.__exit__(None, None, None)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch) -> None:
    """Waiting before another try takes no time."""
    monkeypatch.setattr("davylamp.adapters.models.remote.client.FIRST_WAIT", 0.0)
