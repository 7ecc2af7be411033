"""Imports for all workers. They are made once, in the server process from which workers are forked."""

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
    """Import the modules that workers need. Errors are ignored, because they would end the server and its workers.

    An attack that needs a module which cannot be imported imports it again, and reports the error.
    """
    for name in MODULES:
        with suppress(Exception):
            import_module(name)


preload()
