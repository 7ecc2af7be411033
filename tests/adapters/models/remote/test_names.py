"""Names of remote models, and how their servers are asked: what is refused, and where a token goes."""

import pickle

import pytest
import torch

from davylamp.adapters.models.remote.address import RequestEncoding, read_address
from davylamp.adapters.models.remote.transport import Transport, check_token, read_rate, token_header, variable_of
from davylamp.adapters.models.zoo.load import load_model
from davylamp.engine import Config
from davylamp.errors import InvalidInput, ModelFailed, Unavailable, UnknownName

SECRET = "s3cret-t0ken"


def test_a_name_says_where_a_model_is():
    address = read_address("https://h.example:8443/a/v2/models/my%20net/versions/3?layout=nhwc&scale=255&classes=10")
    assert (address.form, address.scheme, address.host, address.port) == ("v2", "https", "h.example", 8443)
    assert (address.model, address.version, address.base) == ("my net", "3", "/a")
    assert address.path == "/a/v2/models/my%20net/versions/3"
    assert address.encoding == RequestEncoding(layout="NHWC", scale=255.0, classes=10)
    assert read_address("json+http://127.0.0.1:5/p?writing=lists").path == "/p"


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("http://user:pw@h/v2/models/x", "the address contains a user or password .host h."),
        ("http://h/models/x", "for plain JSON"),
        ("http://h:99999/v2/models/x", "invalid URL"),
        ("http:///v2/models/x", "expected a remote model as http://HOST:PORT"),
        ("http://h/v2/models/x#part", "expected a remote model as http://HOST:PORT"),
        ("http://h/v2/models/x?layout=CHWN", "expected layout as NCHW or NHWC, got 'CHWN'"),
        ("http://h/v2/models/x?scale=0", "expected scale as a number above 0"),
        ("http://h/v2/models/x?classes=1", "expected classes as a whole number from 2"),
        ("http://h/v2/models/x?random=maybe", "expected random as yes or no"),
        ("http://h/v2/models/x?input=", "expected the name of the server's input"),
        ("http://h/v2/models/x?scale=2&scale=3", "scale of the remote model is given twice"),
    ],
)
def test_a_name_that_is_none_is_one_line(name, line):
    with pytest.raises(InvalidInput, match=line) as caught:
        load_model(name)
    assert "pw" not in str(caught.value).replace("password", "")


def test_an_unknown_setting_is_named_and_no_place_for_a_secret():
    with pytest.raises(UnknownName, match="unknown setting of a remote model 'api_key'; known") as caught:
        load_model(f"http://h/v2/models/x?api_key={SECRET}")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "rate"), [("20", (20, "images")), ("5 requests", (5, "requests")), ("", (None, "images"))]
)
def test_a_rate_is_read(text, rate):
    assert read_rate(text) == rate


@pytest.mark.parametrize(
    ("field", "value", "line"),
    [
        ("request_rate", "fast", "request_rate: expected a rate as '20 images' or '5 requests'"),
        ("price_per_image", -1.0, "expected price_per_image as a number from 0, got -1.0"),
        ("timeout", 0.0, "timeout: expected a number > 0"),
        ("request_size", 0, "request_size: expected a whole number >= 1"),
        ("token", SECRET, "expected the name of an environment variable"),
    ],
)
def test_a_setting_that_cannot_be_is_one_line(field, value, line):
    with pytest.raises(InvalidInput, match=line) as caught:
        Config(**{field: value})
    assert SECRET not in str(caught.value)


def test_a_rate_is_shared_by_workers():
    assert Config(request_rate="20").transport(workers=4).rate == 5
    assert Config(no_cache=True).transport("somewhere").answers == ""


def test_a_token_goes_to_its_host_alone(monkeypatch):
    address = read_address("https://api.example-one.org/v2/models/x")
    assert variable_of(address) == "DAVYLAMP_TOKEN_API_EXAMPLE_ONE_ORG"
    monkeypatch.setenv("DAVYLAMP_TOKEN_API_EXAMPLE_ONE_ORG", SECRET)
    assert token_header(address, Transport()) == {"Authorization": f"Bearer {SECRET}"}
    assert token_header(read_address("https://other.org/v2/models/x"), Transport()) == {}
    monkeypatch.setenv("MINE", "Basic abc")
    assert token_header(address, Transport(token="MINE")) == {"Authorization": "Basic abc"}
    assert token_header(address, Transport(token="X-Api-Key=MINE")) == {"X-Api-Key": "Basic abc"}
    with pytest.raises(InvalidInput, match="`token` applies to a single host, got a, b"):
        check_token("MINE", ["http://a/v2/models/x", "http://b/v2/models/x+jpeg", "demo:x"])
    check_token("MINE", ["http://a/v2/models/x", "http://a:9/v2/models/x"])


def test_a_token_that_could_be_read_or_is_none_is_refused(monkeypatch):
    with pytest.raises(Unavailable, match="the environment variable NOT_SET is not set"):
        token_header(read_address("https://h/v2/models/x"), Transport(token="NOT_SET"))
    monkeypatch.setenv("MINE", SECRET)
    with pytest.raises(InvalidInput, match=r"would be sent to h.org unencrypted") as caught:
        token_header(read_address("http://h.org/v2/models/x"), Transport(token="MINE"))
    assert SECRET not in str(caught.value)
    monkeypatch.setenv("MINE", f"{SECRET}\r\nX-Other: 1")
    with pytest.raises(InvalidInput, match="expected a token of printable ASCII in MINE") as caught:
        token_header(read_address("https://h.org/v2/models/x"), Transport(token="MINE"))
    assert SECRET not in str(caught.value)


def test_a_token_opens_the_server_and_is_nowhere_else(digits, serve, monkeypatch):
    server = serve(needs_token=f"Bearer {SECRET}")
    monkeypatch.setenv("MINE", SECRET)
    remote = load_model(server.url, transport=Transport(token="MINE"))
    assert torch.equal(remote(digits.inputs[:1]), digits.module(digits.inputs[:1]))
    assert SECRET.encode() not in pickle.dumps(remote.model.__getstate__())
    server.faults = ["400"]  # it says the header that it got
    with pytest.raises(ModelFailed, match=r"got 400: fault 400 \*\*\*") as caught:
        remote(digits.inputs[:1])
    assert SECRET not in str(caught.value)
