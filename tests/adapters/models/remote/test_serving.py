"""`serve-model`: the protocol as others speak it, its limits, and our own client on it."""

import http.client
import importlib.util
import json
import threading

import numpy as np
import pytest
import torch
from torch import nn

from davylamp.adapters import Classifier
from davylamp.adapters.http_server import HttpServer
from davylamp.adapters.models.remote.served_model import ServedModel
from davylamp.adapters.models.zoo.load import load_model
from davylamp.errors import InvalidInput


@pytest.fixture
def offer(digits):
    """Offer the digits' model, and give (host and port, model)."""
    servers = []

    def start(largest=1 << 20, **settings):
        classifier = Classifier(digits.module, num_classes=10, crop=16, name="the digits!").freeze()
        served = ServedModel(classifier, **settings)
        server = HttpServer("127.0.0.1", 0, served.handle_request, largest=largest)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        servers.append((server, thread))
        return f"127.0.0.1:{server.port}", served

    yield start
    for server, thread in servers:
        server.stop()
        thread.join()


def ask(place, method, path, body=None, **headers):
    connection = http.client.HTTPConnection(place, timeout=10)
    connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
    reply = connection.getresponse()
    content = reply.read()
    connection.close()
    return reply.status, content


@pytest.mark.parametrize("outputs", ["logits", "probabilities", "labels"])
@pytest.mark.parametrize("datatype", ["FP32", "UINT8"])
def test_our_client_gets_what_the_model_gives(outputs, datatype, digits, offer):
    place, served = offer(outputs=outputs, datatype=datatype)
    remote = load_model(f"http://{place}/v2/models/{served.name}?classes=10")
    images = digits.inputs if datatype == "FP32" else (digits.inputs * 255).round() / 255
    expected = Classifier(digits.module)(images)
    if outputs == "labels":
        assert torch.equal(remote(digits.inputs).argmax(1), expected.argmax(1))
    elif outputs == "logits":
        torch.testing.assert_close(remote(digits.inputs), expected, rtol=0, atol=1e-5)
    else:
        torch.testing.assert_close(remote(digits.inputs).exp(), expected.softmax(1), rtol=0, atol=1e-6)
    assert remote.outputs == outputs
    assert remote.crop == 16
    assert served.answered == 16


def test_metadata_and_health_are_those_of_the_protocol(offer):
    place, served = offer()
    assert served.name == "the-digits"
    for path in ("live", "ready"):
        assert ask(place, "GET", f"/v2/health/{path}") == (200, b"")
    assert ask(place, "GET", "/v2/models/the-digits/ready")[0] == 200
    assert ask(place, "GET", "/v2/models/the-digits/versions/1/ready")[0] == 200
    assert "binary_tensor_data" in json.loads(ask(place, "GET", "/v2")[1])["extensions"]
    metadata = json.loads(ask(place, "GET", "/v2/models/the-digits")[1])
    assert metadata["inputs"] == [{"name": "images", "datatype": "FP32", "shape": [-1, 3, 16, 16]}]
    assert metadata["outputs"] == [{"name": "logits", "datatype": "FP32", "shape": [-1, 10]}]


def question(images, **more):
    tensor = {"name": "images", "shape": list(images.shape), "datatype": "FP32", "data": images.reshape(-1).tolist()}
    return json.dumps({"inputs": [{**tensor, **more}]})


IMAGE = np.zeros((1, 3, 16, 16), np.float32)


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("{", "the request is not valid JSON"),
        ("[]", "expected one input 'images', got none"),
        ('{"inputs": []}', "expected one input 'images', got 0"),
        (question(IMAGE, name="x"), "expected one input 'images', got 'x'"),
        (question(IMAGE, datatype="BYTES"), "expected images of FP32, got BYTES"),
        (question(IMAGE, datatype="UINT8"), "expected images of FP32, got UINT8"),
        (question(IMAGE, shape=[1, 3, 16]), "expected a shape [N, C, H, W], got [1, 3, 16]"),
        (question(IMAGE, shape=[0, 3, 16, 16]), "expected a shape [N, C, H, W]"),
        (question(IMAGE, shape=[2, 3, 16, 16]), "expected 2x3x16x16 numbers, got 768"),
        (question(np.zeros((1, 3, 8, 8), np.float32)), "expected images of 3 x 16 x 16, got 3 x 8 x 8"),
        (question(IMAGE, data=["a"]), "the data is not a list of numbers"),
        (question(IMAGE + np.float32(np.nan)), "expected finite pixels, got NaN or infinity"),
        (question(IMAGE)[:-1] + ', "outputs": [{"name": "y"}]}', "expected the output 'logits', got ['y']"),
        (question(IMAGE)[:-1] + ', "outputs": [1]}', "expected the output 'logits', got []"),
        (question(IMAGE)[:-1] + ', "parameters": [1]}', "expected parameters as an object"),
    ],
)
def test_a_wrong_request_is_a_line_with_status_400(body, line, offer):
    place, _ = offer()
    status, content = ask(place, "POST", "/v2/models/the-digits/infer", body)
    assert status == 400
    assert line in json.loads(content)["error"]


def test_sizes_names_and_methods_are_kept_to(offer):
    place, _ = offer(largest=1000)
    path = "/v2/models/the-digits/infer"
    assert ask(place, "POST", path, b"x" * 1001)[0] == 413
    assert ask(place, "POST", path, b"x", Inference_Header_Content_Length="99")[0] == 400
    assert ask(place, "POST", path, b"x", Content_Encoding="gzip")[0] == 415
    assert ask(place, "POST", path, iter([b"1\r\nx\r\n0\r\n\r\n"]), Transfer_Encoding="chunked")[0] == 400  # no JSON
    assert ask(place, "GET", path)[0] == 405
    assert ask(place, "POST", "/v2/models/the-digits")[0] == 405
    assert ask(place, "GET", "/v2/models/other")[0] == 404
    assert ask(place, "GET", "/v2", Host="evil.example")[0] == 403
    assert ask(place, "GET", "/v2", Host="localhost")[0] == 200


def test_what_cannot_be_offered_is_one_line(digits):
    classifier = Classifier(digits.module)
    for settings in ({"outputs": "scores"}, {"datatype": "INT8"}, {"name": "a/b"}):
        with pytest.raises(InvalidInput, match="expected"):
            ServedModel(classifier, **settings)


@pytest.mark.skipif(importlib.util.find_spec("tritonclient") is None, reason="tritonclient wants another urllib3")
def test_a_client_that_is_not_ours_gets_the_same(digits, offer):
    from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput

    place, _ = offer()
    client = InferenceServerClient(place)
    assert client.is_server_live()
    assert client.is_model_ready("the-digits")
    images = digits.inputs.numpy()
    expected = digits.module(digits.inputs)
    for sent in (True, False):
        for received in (True, False):
            tensor = InferInput("images", list(images.shape), "FP32")
            tensor.set_data_from_numpy(images, binary_data=sent)
            wanted = [InferRequestedOutput("logits", binary_data=received)]
            answer = client.infer("the-digits", [tensor], outputs=wanted).as_numpy("logits")
            torch.testing.assert_close(torch.tensor(answer), expected, rtol=0, atol=1e-5)


def test_no_class_is_named_where_a_logit_is_not_finite(offer):
    place, served = offer(outputs="labels")
    served.classifier.model = nn.Sequential(served.classifier.model, nn.Threshold(torch.inf, torch.nan))
    status, content = ask(place, "POST", "/v2/models/the-digits/infer", question(IMAGE))
    assert status == 400
    assert "expected finite logits for a label, got NaN or infinity" in json.loads(content)["error"]
