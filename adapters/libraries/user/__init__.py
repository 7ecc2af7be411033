"""Builds an implementation from a user's attack: a function, or a class or instance of a library's attack."""

from ..library import Library

LIBRARY = Library(
    "user",
    module="davylamp",
    distribution="davylamp",
    attacks=(),
    driver=".driver:run",
    package=__name__,
)
