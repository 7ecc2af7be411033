"""A check of a paper against itself: what is printed, what follows from the rest of it, what rounding explains."""

from typing import NamedTuple


class PaperCheck(NamedTuple):
    """One statement.

    Args:
        paper: where it is.
        statement: what is compared.
        printed: the number in the paper.
        computed: the same from other numbers.
        allowed: the largest difference that rounding explains.
        note: what is known about a difference.
    """

    paper: str
    statement: str
    printed: float
    computed: float
    allowed: float
    note: str = ""

    @property
    def holds(self) -> bool:
        """Whether rounding explains the difference."""
        return abs(self.printed - self.computed) <= self.allowed * (1 + 1e-9)
