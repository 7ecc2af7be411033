"""Opens the listening socket of a server, and checks the host names in requests."""

import re
import socket
from collections.abc import Iterable
from ipaddress import ip_address

from ..errors import InvalidInput, Unavailable

EVERYWHERE = ("0.0.0.0", "::")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:\[\]/@\s]+))(?::[0-9]{1,5})?")


class AllowedHosts:
    """Host names that a server accepts in the Host header of requests.

    The check protects against DNS rebinding: an attacker lets a domain resolve to this machine, so that a page of this
    domain can read the server. The Host header then contains the attacker's domain, and the request is refused. A
    numeric address cannot be an attacker's domain. A server that listens at every address accepts all numeric
    addresses.

    Args:
        host: the listening address, as given by the user.
        others: further names of the machine, for example those set in a proxy or a hosts file.
    """

    def __init__(self, host: str, others: Iterable[str] = ()):
        self._anywhere = host in EVERYWHERE
        names = {host, *others}
        if self._anywhere or host in _LOOPBACK or host.startswith("127."):
            names |= {*_LOOPBACK}
        if host not in _LOOPBACK:
            names.add(socket.gethostname())
        self._names = {_plain(name) for name in names}

    def status(self, header: str | None) -> str:
        """Return the HTTP error status for a request with this Host header, or "" if the header is accepted."""
        match = _HOST.fullmatch(header or "")
        if match is None:
            return "400 Bad Request"
        name = _plain(match[1] or match[2])
        return "" if name in self._names or (self._anywhere and _is_address(name)) else "403 Forbidden"


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket at an address, and at no other address.

    Raises:
        InvalidInput: if the address is empty, or stands for every address without being written as 0.0.0.0.
        Unavailable: if the server cannot listen at the address.
    """
    if not host.strip():
        raise InvalidInput(
            "expected --host ADDRESS, got an empty text; without --host, only this machine has access (127.0.0.1)"
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # named, as asyncio then turns Nagle off
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        bound = listener.getsockname()[0]
    except (OSError, UnicodeError) as error:
        listener.close()
        raise Unavailable(f"cannot listen at {host}:{port} ({error}); choose a different --port") from error
    if bound in EVERYWHERE and host not in EVERYWHERE:
        listener.close()
        raise InvalidInput(f"expected --host ADDRESS, got {host!r}, which stands for every address; write 0.0.0.0")
    return listener


def _plain(name: str) -> str:
    return name.strip("[]").removesuffix(".").lower()


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
