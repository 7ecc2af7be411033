"""Whether attacks and data of files are kept apart: said for this whole process, as a name cannot say it."""

from collections.abc import Iterator
from contextlib import contextmanager

from .isolation import NOT_ISOLATED, Isolation

_APART = ("yes", "strict")


def attack_isolation() -> Isolation | None:
    """How attacks of files are kept apart from this process now; None: they run in it."""
    return _said[-1] if _said[-1].isolate in _APART else None


def isolation_of_data() -> Isolation | None:
    """How files of images are kept apart from this process now; None: they are read in it."""
    return _said[-1] if _said[-1].isolate == "strict" else None


def set_attack_isolation(isolation: Isolation) -> None:
    """Say for the rest of this process, or until it is said otherwise, how attacks of files are run.

    Args:
        isolation: "yes" and "strict" are for attacks, too, and "strict" for data; "no" and "auto" use them here.
    """
    _said[-1] = isolation


@contextmanager
def attack_isolation_context(isolation: Isolation) -> Iterator[None]:
    """Say for a block how attacks of files are run; where it says nothing, it stays as it was said before."""
    _said.append(isolation if isolation.isolate in _APART else _said[-1])
    try:
        yield
    finally:
        _said.pop()


_said = [NOT_ISOLATED]
