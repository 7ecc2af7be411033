"""How a server is asked, whatever it answers: how fast, how often again, for which price, with which token."""

import math
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ....errors import InvalidInput, Unavailable
from ...defaults import REQUEST_SIZE, TIMEOUT
from .address import Address, host_of, is_address
from .answer_cache import FILE

Unit = Literal["images", "requests"]
TRIES = 6
_RATE = re.compile(r"\s*([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*(images|requests|)\s*")
_TOKEN = re.compile(r"(?:(?P<header>[A-Za-z][A-Za-z0-9-]{0,60})=)?(?P<variable>[A-Za-z_][A-Za-z0-9_]{0,120})")


@dataclass(frozen=True)
class Transport:
    """How a server is asked; nothing of it changes an answer, and none of it is part of a model's identity.

    Args:
        rate: at most so many images or requests a second; None: as fast as it answers.
        unit: of the rate.
        cost: price of one image.
        token: the environment variable that holds a token, sent as "Authorization: Bearer ..."; or "HEADER=VARIABLE"
            for a header of another name. "": the variable `variable_of` the host, if it is set.
        timeout: seconds until a request has failed.
        request_size: images of one request, at most.
        tries: of one request.
        answers: file in which answers are kept; "": they are not.

    Raises:
        InvalidInput: if a value is out of range.
    """

    rate: float | None = None
    unit: Unit = "images"
    cost: float = 0.0
    token: str = ""
    timeout: float = TIMEOUT
    request_size: int = REQUEST_SIZE
    tries: int = TRIES
    answers: str = ""

    def __post_init__(self) -> None:
        for name, value in (("rate", self.rate), ("timeout", self.timeout)):
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise InvalidInput(f"expected {name} as a number above 0, got {value}")
        if not (self.cost >= 0 and math.isfinite(self.cost)):
            raise InvalidInput(f"expected cost as a number from 0, got {self.cost}")
        for name, number in (("request_size", self.request_size), ("tries", self.tries)):
            if number < 1:
                raise InvalidInput(f"expected {name} as a whole number from 1, got {number}")
        if self.token:
            _split_token(self.token)


def transport_with_cache(folder: Path) -> Transport:
    """As by default, with the answers that are kept in a results folder, if there are any."""
    return Transport(answers=str(folder / FILE) if (folder / FILE).is_file() else "")


def read_rate(text: str) -> tuple[float | None, Unit]:
    """A rate as an option has it: "20", "20 images" or "5 requests", a second; "" for none.

    Raises:
        InvalidInput: if it is none of these.
    """
    if not text:
        return None, "images"
    match = _RATE.fullmatch(text)
    if match is None or float(match[1]) <= 0:
        raise InvalidInput(f"expected a rate as '20 images' or '5 requests' (a second), got {text[:40]!r}")
    return float(match[1]), "requests" if match[2] == "requests" else "images"


def variable_of(address: Address) -> str:
    """The environment variable that is looked for a token for this host alone: "DAVYLAMP_TOKEN_API_EXAMPLE_ORG"."""
    return _variable(address.host)


def check_token(token: str, models: Iterable[str]) -> None:
    """Raise InvalidInput where one token would be sent to several hosts."""
    hosts = sorted({host_of(name) for name in models if is_address(name)})
    if token and len(hosts) > 1:
        raise InvalidInput(
            f"expected one host with --token, got {', '.join(hosts)}; leave it out and export one variable for each: "
            + ", ".join(_variable(host) for host in hosts)
        )


def token_header(address: Address, transport: Transport) -> dict[str, str]:
    """The header with the token of a server; {} if there is none.

    Raises:
        Unavailable: if the variable that was named is not set.
        InvalidInput: if the token could be read on the way, or is no text for a header.
    """
    header, variable = _split_token(transport.token) if transport.token else ("Authorization", variable_of(address))
    value = os.environ.get(variable, "")
    if not value:
        if transport.token:
            raise Unavailable(f"expected a token in the environment variable {variable}, found none; export {variable}")
        return {}
    if not address.is_private:
        raise InvalidInput(
            f"expected https:// for {address.host}, to which the token in {variable} is sent, got http://, "
            "which anybody on the way can read"
        )
    if not (value.isascii() and value.isprintable()) or value != value.strip():
        raise InvalidInput(f"expected a token of printable ASCII in {variable}, got other characters; check the file")
    return {header: f"Bearer {value}" if header == "Authorization" and " " not in value else value}


def _variable(host: str) -> str:
    return f"DAVYLAMP_TOKEN_{re.sub('[^A-Z0-9]', '_', host.upper())}"


def _split_token(text: str) -> tuple[str, str]:
    match = _TOKEN.fullmatch(text)
    if match is None:
        raise InvalidInput(
            "expected the name of an environment variable (or HEADER=VARIABLE) for the token, got another text; "
            "the token itself belongs into the variable"
        )
    return match["header"] or "Authorization", match["variable"]
