"""Settings for requests to a server: rate, retries, price and token."""

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
    """Settings for requests to a server. They change no outputs and are not part of the model identity.

    Args:
        rate: largest number of images or requests per second. None for no limit.
        unit: unit of the rate, images or requests.
        cost: price of one image.
        token: environment variable with a token, which is sent as "Authorization: Bearer ...", or "HEADER=VARIABLE" for
            a different header. If "", the variable named by `variable_of` is used if it is set.
        timeout: seconds after which a request fails.
        request_size: largest number of images per request.
        tries: number of attempts per request.
        answers: file of the answer cache. "" for no cache.

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
        for name, value in (("request_rate", self.rate), ("timeout", self.timeout)):
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise InvalidInput(f"expected {name} as a number above 0, got {value}")
        if not (self.cost >= 0 and math.isfinite(self.cost)):
            raise InvalidInput(f"expected price_per_image as a number from 0, got {self.cost}")
        for name, number in (("request_size", self.request_size), ("tries", self.tries)):
            if number < 1:
                raise InvalidInput(f"expected {name} as a whole number from 1, got {number}")
        if self.token:
            _split_token(self.token)


def transport_with_cache(folder: Path) -> Transport:
    """Return default settings for requests. If the results folder has an answer cache, they use this cache."""
    return Transport(answers=str(folder / FILE) if (folder / FILE).is_file() else "")


def read_rate(text: str) -> tuple[float | None, Unit]:
    """Parse a rate: "20", "20 images" or "5 requests", per second. "" for no limit.

    Raises:
        InvalidInput: if the text has a different form.
    """
    if not text:
        return None, "images"
    match = _RATE.fullmatch(text)
    if match is None or float(match[1]) <= 0:
        raise InvalidInput(f"expected a rate as '20 images' or '5 requests' (per second), got {text[:40]!r}")
    return float(match[1]), "requests" if match[2] == "requests" else "images"


def variable_of(address: Address) -> str:
    """Return the environment variable for this host's token, such as "DAVYLAMP_TOKEN_API_EXAMPLE_ORG"."""
    return _variable(address.host)


def check_token(token: str, models: Iterable[str]) -> None:
    """Raise InvalidInput if the same token would be sent to several hosts."""
    hosts = sorted({host_of(name) for name in models if is_address(name)})
    if token and len(hosts) > 1:
        raise InvalidInput(
            (
                f"`token` applies to a single host, got {', '.join(hosts)}; omit `token` and export one variable "
                "for each host: "
            )
            + ", ".join(_variable(host) for host in hosts)
        )


def token_header(address: Address, transport: Transport) -> dict[str, str]:
    """Return the header with a server's token, or {} without a token.

    Raises:
        Unavailable: if the named variable is not set.
        InvalidInput: if the connection is not encrypted, or the token is not valid in a header.
    """
    header, variable = _split_token(transport.token) if transport.token else ("Authorization", variable_of(address))
    value = os.environ.get(variable, "")
    if not value:
        if transport.token:
            raise Unavailable(f"the environment variable {variable} is not set; export {variable} with the token")
        return {}
    if not address.is_private:
        raise InvalidInput(
            f"the token in {variable} would be sent to {address.host} unencrypted; use https:// instead of http://"
        )
    if not (value.isascii() and value.isprintable()) or value != value.strip():
        raise InvalidInput(f"expected a token of printable ASCII in {variable}, got other characters; check its value")
    return {header: f"Bearer {value}" if header == "Authorization" and " " not in value else value}


def _variable(host: str) -> str:
    return f"DAVYLAMP_TOKEN_{re.sub('[^A-Z0-9]', '_', host.upper())}"


def _split_token(text: str) -> tuple[str, str]:
    match = _TOKEN.fullmatch(text)
    if match is None:
        raise InvalidInput(
            "expected the name of an environment variable (or HEADER=VARIABLE) for the token; the token itself "
            "belongs in the variable"
        )
    return match["header"] or "Authorization", match["variable"]
