"""What every worker needs, imported once in the server that the workers are forked from."""

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
    """Import what can be imported: any error would end the server, and its workers with it.

    What cannot is imported again by the attack that needs it, which then says what is wrong.
    """
    for name in MODULES:
        with suppress(Exception):
            import_module(name)


preload()
