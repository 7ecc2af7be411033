"""Settings, for the whole process, of the isolation of attacks and data from files."""

from collections.abc import Iterator
from contextlib import contextmanager

from .isolation import NOT_ISOLATED, Isolation

_ISOLATING = ("yes", "strict")


def attack_isolation() -> Isolation | None:
    """Return the isolation of attacks from files, or None if they run in this process."""
    return _settings[-1] if _settings[-1].isolate in _ISOLATING else None


def isolation_of_data() -> Isolation | None:
    """Return the isolation of image files, or None if they are read in this process."""
    return _settings[-1] if _settings[-1].isolate == "strict" else None


def set_attack_isolation(isolation: Isolation) -> None:
    """Set the isolation of attacks from files for the rest of the process.

    Args:
        isolation: "yes" isolates attacks from files, and "strict" also data from files. With "no" and "auto", neither
            is isolated.
    """
    _settings[-1] = isolation


@contextmanager
def attack_isolation_context(isolation: Isolation) -> Iterator[None]:
    """Set the isolation of attacks from files inside the block. "no" and "auto" keep the current setting."""
    _settings.append(isolation if isolation.isolate in _ISOLATING else _settings[-1])
    try:
        yield
    finally:
        _settings.pop()


_settings = [NOT_ISOLATED]
