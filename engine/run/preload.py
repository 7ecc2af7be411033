"""Imports for all workers, done once in the server from which they are forked."""

from contextlib import suppress
from importlib import import_module

from ...adapters import LIBRARIES

MODULES = (
    "davylamp.engine.run.processes",
    "torchvision",
    "piq",
    *(module for library in LIBRARIES.values() for module in library.preload),
)


def preload() -> None:
    """Import modules, ignoring errors, which would end the server and its workers.

    The attack that needs such a module imports it again and reports the error.
    """
    for name in MODULES:
        with suppress(Exception):
            import_module(name)


preload()
