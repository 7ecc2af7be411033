"""Imports that all workers need, done once in the server process from which they are forked."""

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
    """Import the modules. Errors are ignored, because they would end the server and its workers.

    The attack that needs such a module imports it again and reports the error.
    """
    for name in MODULES:
        with suppress(Exception):
            import_module(name)


preload()
