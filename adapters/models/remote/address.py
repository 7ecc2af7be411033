"""Names of remote models. A name is a URL with settings for requests, and contains no secrets."""

import re
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from ....errors import InvalidInput, UnknownName

Form = Literal["v2", "json"]
Layout = Literal["", "NCHW", "NHWC"]
Datatype = Literal["", "FP16", "FP32", "FP64", "UINT8"]
OutputKind = Literal["", "logits", "probabilities", "labels"]
Writing = Literal["base64", "lists"]

_START = re.compile(r"(json\+)?https?://", re.IGNORECASE)
_MODEL = re.compile(r"(?P<before>.*?)/v2/models/(?P<name>[^/]+)(/versions/(?P<version>[^/]+))?/?")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_EXAMPLE = "http://HOST:PORT/v2/models/NAME"


@dataclass(frozen=True)
class RequestEncoding:
    """Settings for requests, as given after "?" in a model name. Empty fields are completed from the server's metadata.

    Args:
        layout: order of the axes of an image, with channels first or last.
        datatype: type of the values of a pixel.
        scale: factor for pixels in [0, 1]. Always 255 for UINT8.
        input: name of the server's input, if it has several.
        output: name of the server's output, if it has several.
        outputs: output format of the server.
        classes: number of classes.
        writing: format of images in plain JSON requests.
        random: whether the server draws random numbers in every query by design.
    """

    layout: Layout = ""
    datatype: Datatype = ""
    scale: float = 1.0
    input: str = ""
    output: str = ""
    outputs: OutputKind = ""
    classes: int | None = None
    writing: Writing = "base64"
    random: bool = False


@dataclass(frozen=True)
class Address:
    """Address of a remote model, parsed from its name.

    Args:
        name: the whole name.
        form: "v2" for the Open Inference Protocol, "json" for plain JSON, see docs/remote-protocol.md.
        scheme: "http" or "https".
        host: host name or address, without brackets.
        port: port, or None for the scheme's default.
        path: path of the model in requests.
        base: path of the server, before "/v2".
        model: name of the model on the server. "" for plain JSON.
        version: version of the model on the server. "" for the server's choice.
        encoding: encoding of requests and responses.
    """

    name: str
    form: Form
    scheme: str
    host: str
    port: int | None
    path: str
    base: str = ""
    model: str = ""
    version: str = ""
    encoding: RequestEncoding = field(default_factory=RequestEncoding)

    @property
    def place(self) -> str:
        """Host and port, for messages."""
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return shown if self.port is None else f"{shown}:{self.port}"

    @property
    def is_private(self) -> bool:
        """Whether third parties cannot read the connection: it is encrypted, or it stays on this machine."""
        return self.scheme == "https" or self.host in _LOOPBACK


def is_address(name: str) -> bool:
    """Whether a name is that of a remote model."""
    return _START.match(name) is not None


def host_of(name: str) -> str:
    """Return the host in the name of a remote model. Defences may follow in the name. "" if the name is not valid."""
    try:
        return urlsplit(name[name.lower().startswith("json+") * 5 :]).hostname or ""
    except ValueError:
        return ""


def read_address(name: str) -> Address:
    """Parse the address in a model's name.

    Raises:
        InvalidInput: if the name is not that of a remote model, or contains a password.
        UnknownName: if a setting after "?" is unknown.
    """
    form: Form = "json" if name.lower().startswith("json+") else "v2"
    try:
        parts = urlsplit(name[len("json+") :] if form == "json" else name)
        port, host = parts.port, parts.hostname
    except ValueError as error:
        raise InvalidInput(f"expected a remote model as {_EXAMPLE}, got an invalid URL ({error})") from None
    if parts.username is not None or parts.password is not None:
        raise InvalidInput(
            f"the address contains a user or password (host {host}), which would be stored in results; put the "
            "token into an environment variable and give the variable's name: `token=VARIABLE`"
        )
    if not host or parts.fragment or not name.isprintable() or " " in name:
        raise InvalidInput(f"expected a remote model as {_EXAMPLE}, got {name!r}")
    shared = {"name": name, "form": form, "scheme": parts.scheme.lower(), "host": host, "port": port}
    encoding = _read_encoding(parts.query)
    if form == "json":
        return Address(**shared, path=parts.path or "/", encoding=encoding)
    match = _MODEL.fullmatch(parts.path)
    if match is None:
        raise InvalidInput(f"expected a remote model as {_EXAMPLE} (or json+http://... for plain JSON), got {name}")
    model, version = unquote(match["name"]), unquote(match["version"] or "")
    path = f"{match['before']}/v2/models/{quote(model, safe='')}"
    path += f"/versions/{quote(version, safe='')}" if version else ""
    return Address(**shared, path=path, base=match["before"], model=model, version=version, encoding=encoding)


def _read_encoding(query: str) -> RequestEncoding:
    known = {each.name: each for each in fields(RequestEncoding)}
    values: dict[str, Any] = {}
    for key, text in parse_qsl(query, keep_blank_values=True):
        if key not in known:
            raise UnknownName("setting of a remote model", key, known)
        if key in values:
            raise InvalidInput(f"the setting {key} of the remote model is given twice; give it once")
        values[key] = _read_value(key, text)
    return RequestEncoding(**values)


def _read_value(key: str, text: str) -> Any:
    choices = {"layout": Layout, "datatype": Datatype, "outputs": OutputKind, "writing": Writing}
    if key in choices:
        known = [each for each in get_args(choices[key]) if each]
        match = next((each for each in known if each.lower() == text.lower()), None)
        if match is None:
            raise InvalidInput(f"expected {key} as {' or '.join(known)}, got {text[:40]!r}")
        return match
    if key == "random":
        if text not in ("yes", "no"):
            raise InvalidInput(f"expected random as yes or no, got {text[:40]!r}")
        return text == "yes"
    if key == "classes":
        if not re.fullmatch(r"[0-9]{1,6}", text) or int(text) < 2:
            raise InvalidInput(f"expected classes as a whole number from 2, got {text[:40]!r}")
        return int(text)
    if key == "scale":
        if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,9})?", text) or float(text) <= 0:
            raise InvalidInput(f"expected scale as a number above 0, such as 255, got {text[:40]!r}")
        return float(text)
    if not text:
        raise InvalidInput(f"expected the name of the server's {key}, got an empty text")
    return text
