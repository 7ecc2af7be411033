"""A user's own attack: a function or an object of an attack library's class, made a row without being registered."""

from ..library import Library

LIBRARY = Library(
    "user",
    module="davylamp",
    distribution="davylamp",
    attacks=(),
    driver=".driver:run",
    package=__name__,
)
