"""The rows of davylamp's attacks: one function each, in the module of its name."""

from ...attack import Implementation

_RAYS = Implementation(
    "rays",
    "davylamp",
    {"linf": ".rays:rays"},
    {"max_queries": "max_queries", "tolerance": "tolerance"},
    targeted="yes",
    failure="input",
)

ROWS: tuple[Implementation, ...] = (_RAYS,)
