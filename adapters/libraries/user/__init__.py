"""A user's own attack (a function, or an instance of a library's class) as an unregistered implementation."""

from ..library import Library

LIBRARY = Library(
    "user",
    module="davylamp",
    distribution="davylamp",
    attacks=(),
    driver=".driver:run",
    package=__name__,
)
