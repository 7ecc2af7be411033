"""Servers that fail or answer something else: one line each, and the attack goes on where that is possible."""

import importlib.util
import json
import socket
import sys

import pytest
import torch
from torch import nn

from davylamp.adapters import ThreatModel, run_attack
from davylamp.adapters.models.remote.client import LONGEST_ASKED
from davylamp.adapters.models.remote.client import RetryingClient as Patience
from davylamp.adapters.models.remote.server_usage import ServerUsage, total_usage
from davylamp.adapters.models.remote.transport import Transport
from davylamp.adapters.models.zoo.load import load_model
from davylamp.errors import InvalidInput, ModelFailed, Unavailable, Unsupported

QUICK = Transport(tries=2, timeout=0.3)


def answer(shape, data, name="y", datatype="FP32"):
    return json.dumps({"outputs": [{"name": name, "datatype": datatype, "shape": shape, "data": data}]})


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        ("<!doctype html><title>Sign in</title>", "got an HTML page that starts with '<!doctype html>"),
        ("not json at all", "got application/json that starts with 'not json at all'"),
        ("[1, 2]", "got a list without outputs"),
        ('{"message": "hello"}', "got an object with message without outputs"),
        ('{"outputs": []}', "without outputs"),
        (answer([2, 5], [0.0] * 10), "got scores of shape (2, 5)"),
        (answer([1, 10], [0.0] * 10), "got scores of shape (1, 10)"),
        (answer([2, 10], [0.0] * 7), "cannot reshape array of size 7"),
        (answer([2, 10], ["a"] * 20), "could not convert string to float: 'a'"),
        (answer([2, 10], [0.0] * 20, name="other"), "got outputs other"),
        (answer([2, 10], [0.0] * 20, datatype="BYTES"), "got values of BYTES"),
        (answer([2, -10], [0.0] * 20), "got an output of shape (2, -10)"),
        ('{"outputs": [{"name": "y"}]}', "got"),
        ("401", "got 401: fault 401 None; the server needs a token"),
        ("403", "got 403: fault 403"),
        ("404", "check the name of the model"),
        ("400", "got 400: fault 400"),
    ],
)
def test_what_is_no_answer_is_named_in_one_line(fault, line, digits, serve):
    server = serve(faults=[fault])
    remote = load_model(server.url, transport=QUICK)
    with pytest.raises(ModelFailed) as caught:
        remote(digits.inputs[:2])
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)
    assert f"127.0.0.1:{server.server_port}" in str(caught.value)
    assert len(server.requests) == 1  # asking again would change nothing, nor would other images
    assert torch.equal(remote(digits.inputs[:2]).argmax(1), digits.labels[:2])  # and the next is answered


@pytest.mark.parametrize(
    ("fault", "line"), [("500", "returned 500: fault 500"), ("slow", "did not respond within 0.3 s")]
)
def test_what_fails_each_time_is_given_up(fault, line, digits, serve):
    server = serve(faults=[fault] * 2)
    remote = load_model(server.url, transport=QUICK)
    with pytest.raises(ModelFailed, match=line):
        remote(digits.inputs[:2])
    assert len(server.requests) == 2
    assert total_usage(remote).paid == 0
    assert total_usage(remote).retried == 4
    server.faults = ["500"]  # one that is down is tried once only, until it answers
    with pytest.raises(ModelFailed, match="check that the server runs"):
        remote(digits.inputs[:2])
    assert len(server.requests) == 3
    remote(digits.inputs[:2])
    server.faults = ["500"]
    remote(digits.inputs[:2])
    assert total_usage(remote).paid == 4


def test_a_server_that_hangs_up_after_an_error_is_quoted_with_that_error(digits, serve):
    """KServe's (0.21) does; the next request went into the closed connection, and that was what was said."""
    server = serve(faults=["500!"] * 2)
    with pytest.raises(ModelFailed, match="returned 500: fault 500 None 2 times"):
        load_model(server.url, transport=QUICK)(digits.inputs[:2])
    assert len(server.requests) == 2


def test_what_is_answered_before_the_request_is_read_is_heard(serve):
    server = serve(most_bytes=1000, side=1200)
    remote = load_model(server.url, transport=Transport(tries=1))
    with pytest.raises(ModelFailed, match="got 413: the request is too large"):
        remote(torch.rand(1, 3, 1200, 1200))


def test_a_request_that_is_too_large_is_halved_on_a_new_connection(serve):
    """The server answers and hangs up while half of the request is unread: nothing more can be asked there."""
    net = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 10))
    server = serve(net=net, most_bytes=20 << 20, side=1200)
    remote = load_model(server.url)
    images = torch.rand(4, 3, 1200, 1200)  # 17 MB each
    with torch.no_grad():
        assert torch.allclose(remote(images), net(images), atol=1e-5)
    assert [count for _, count in server.requests][-4:] == [1] * 4
    assert (total_usage(remote).paid, total_usage(remote).retried) == (4, 0)


def test_a_server_that_hangs_up_half_way_is_asked_again(digits, serve):
    server = serve()
    remote = load_model(server.url, transport=QUICK)
    server.faults = ["half"]
    assert torch.equal(remote(digits.inputs[:2]), digits.module(digits.inputs[:2]))
    traffic = total_usage(remote)
    assert (traffic.paid, traffic.retried, server.images()) == (2, 2, 4)
    assert "2 resent after failed requests" in traffic.line


def test_too_many_images_at_once_are_halved_and_that_is_remembered(digits, serve):
    server = serve(most_images=3)
    remote = load_model(server.url)
    images = digits.inputs
    assert torch.equal(remote(images).argmax(1), digits.labels)
    assert [count for kind, count in server.requests if kind == "413"] == [16, 8, 4]
    server.requests.clear()
    remote(images)
    assert {count for _, count in server.requests} == {2}


def test_a_single_image_that_is_too_large_is_named(digits, serve):
    server = serve(most_images=0)
    with pytest.raises(ModelFailed, match=r"expected outputs for 1 images .* got 413"):
        load_model(server.url)(digits.inputs[:2])


def test_the_words_of_triton_are_a_limit(digits, serve):
    said = "inference request batch-size must be <= 4 for 'digits'"
    server = serve()
    remote = load_model(server.url)
    handler = server.RequestHandlerClass

    class Triton(handler):
        def do_POST(self):  # noqa: N802 - the library's name
            if not self.server.requests:
                self.server.requests.append(("400", 16))
                self.rfile.read(int(self.headers["Content-Length"]))
                self.reply({"error": said}, 400)
                return
            super().do_POST()

    server.RequestHandlerClass = Triton
    remote.model.close()
    assert torch.equal(remote(digits.inputs).argmax(1), digits.labels)
    assert [count for kind, count in server.requests if kind == "ok"] == [4, 4, 4, 4]


def test_nan_is_an_answer_that_is_not_kept(digits, serve, tmp_path):
    server = serve()
    remote = load_model(server.url, transport=Transport(answers=str(tmp_path / "answers.sqlite")))
    remote(digits.inputs[:1])
    server.faults = [answer([1, 10], [float("nan")] * 10)]
    assert remote(digits.inputs[1:2]).isnan().all()
    assert torch.equal(remote(digits.inputs[1:2]), digits.module(digits.inputs[1:2]))


def test_a_server_that_is_not_there_is_one_line():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    with pytest.raises(
        ModelFailed, match=rf"the server at 127.0.0.1:{port} cannot be reached .* 2 times; check that the server runs"
    ):
        load_model(f"http://127.0.0.1:{port}/v2/models/digits", transport=QUICK)


def test_a_model_that_is_not_there_is_one_line(serve):
    server = serve()
    with pytest.raises(
        Unavailable, match=r"expected the metadata of other from .* got 404: no such model; check the name"
    ):
        load_model(server.url.replace("digits", "other"))


def test_images_of_another_size_are_refused_before_they_are_sent(digits, serve):
    server = serve(side=32)
    with pytest.raises(InvalidInput, match=r"expected images of 3 x 32 x 32 .NCHW., got 3 x 16 x 16"):
        load_model(server.url)(digits.inputs[:1])
    assert server.requests == []


def test_a_type_that_images_do_not_have_is_unsupported(serve):
    with pytest.raises(
        Unsupported, match=r"x INT8 \[-1, 3, 16, 16\], but davylamp sends images only as FP16, FP32, FP64, UINT8"
    ):
        load_model(serve(datatype="INT8").url)


def test_an_attack_goes_on_after_a_server_failed_for_one_image(digits, serve):
    server = serve()
    remote = load_model(server.url, transport=Transport(tries=1))
    inputs, labels = digits.inputs[:3], digits.labels[:3]
    logits = remote.predict_logits(inputs)
    remote.steady = True
    server.faults = ["", "500"]
    result = run_attack(
        "torchattacks:square", remote, inputs, labels, ThreatModel("linf", 0.1), logits=logits, batch_size=1, steps=5
    )
    assert len(result.errors) == 1
    assert "returned 500" in result.errors[0]
    assert [bool(kinds) for kinds in result.violations] == [True, False, False]  # failed, and no robust image
    assert not result.robust[0]


def test_what_a_server_asks_for_is_waited():
    waited = []
    patience = Patience(_address(), Transport(tries=3), ServerUsage(), waited.append)
    replies = [(429, {"retry-after": "7"}), (503, {"retry-after": "garbage"}), (200, {})]
    patience.connection.request = lambda *_: _reply(*replies.pop(0))
    assert patience.send("POST", "/", b"", images=4).status == 200
    assert waited[0] == 7
    assert patience.traffic.retried == 0  # refused before they were looked at


def test_a_server_that_asks_for_too_long_a_wait_is_given_up():
    waited = []
    patience = Patience(_address(), Transport(), ServerUsage(), waited.append)
    patience.connection.request = lambda *_: _reply(429, {"retry-after": str(int(LONGEST_ASKED) + 1)})
    with pytest.raises(ModelFailed, match="returned 429; lower --request-rate"):
        patience.send("POST", "/", b"", images=4)
    assert waited == []


def test_waits_grow_and_are_the_same_each_time(monkeypatch):
    monkeypatch.setattr("davylamp.adapters.models.remote.client.FIRST_WAIT", 0.25)
    series = []
    for _ in range(2):
        waited = []
        patience = Patience(_address(), Transport(tries=5), ServerUsage(), waited.append)
        patience.connection.request = lambda *_: _reply(500, {})
        with pytest.raises(ModelFailed):
            patience.send("GET", "/")
        series.append(waited)
    assert series[0] == series[1]
    for place, wait in enumerate(series[0]):
        assert 0.125 * 2**place <= wait <= 0.25 * 2**place


@pytest.mark.parametrize(("unit", "expected"), [("images", [1.0, 1.0]), ("requests", [0.1, 0.1])])
def test_a_rate_is_kept(unit, expected, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("davylamp.adapters.models.remote.client.time.monotonic", lambda: now[0])
    waited = []

    def sleep(seconds):
        waited.append(seconds)
        now[0] += seconds

    patience = Patience(_address(), Transport(rate=10, unit=unit), ServerUsage(), sleep)
    patience.connection.request = lambda *_: _reply(200, {})
    for _ in range(3):
        patience.send("POST", "/", b"", images=10)
    assert waited == pytest.approx(expected)


def _address():
    from davylamp.adapters.models.remote.address import read_address

    return read_address("http://127.0.0.1:9/v2/models/x")


def _reply(status, headers):
    from davylamp.adapters.models.remote.client import Reply

    return Reply(status, headers, b"")


@pytest.mark.parametrize(("file", "name"), [("remote_model", "RemoteModel"), ("answer_cache", "AnswerCache")])
def test_what_is_dropped_while_the_interpreter_ends_says_nothing(file, name):
    """The names of a module are None then: here those of a second copy of it."""
    spec = importlib.util.find_spec(f"davylamp.adapters.models.remote.{file}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made, errors, before = getattr(module, name).__new__(getattr(module, name)), [], sys.unraisablehook
    sys.unraisablehook = errors.append
    try:
        vars(module).update(dict.fromkeys(vars(module)))
        del made
    finally:
        sys.unraisablehook = before
    assert errors == []
