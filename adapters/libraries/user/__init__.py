"""Turns a user's attack (a function, or an instance of a library's class) into an implementation."""

from ..library import Library

LIBRARY = Library(
    "user",
    module="davylamp",
    distribution="davylamp",
    attacks=(),
    driver=".driver:run",
    package=__name__,
)
