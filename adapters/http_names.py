"""Where a server listens, and to which names it answers."""

import re
import socket
from collections.abc import Iterable
from ipaddress import ip_address

from ..errors import InvalidInput, Unavailable

EVERYWHERE = ("0.0.0.0", "::")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:\[\]/@\s]+))(?::[0-9]{1,5})?")


class AllowedHosts:
    """The names under which a server may be asked: a page elsewhere cannot read along under a name that it registered.

    That a name of the attacker's leads to this machine (DNS rebinding) is seen from the request's Host. An address
    written in numbers is nobody's name: if the server listens at every address, it answers to each of them.

    Args:
        host: the address that it listens at, as it was given.
        others: further names, as a proxy or a hosts file gives the machine.
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
    if bound in EVERYWHERE and host not in EVERYWHERE:
        listener.close()
        raise InvalidInput(f"expected --host ADDRESS, got {host!r}, which is every address: write 0.0.0.0 to mean that")
    return listener


def _plain(name: str) -> str:
    return name.strip("[]").removesuffix(".").lower()


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
