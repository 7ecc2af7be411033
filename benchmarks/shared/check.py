"""Consistency check of a paper: a printed number against the same number computed from other parts of the paper."""

from typing import NamedTuple


class PaperCheck(NamedTuple):
    """One checked statement.

    Args:
        paper: paper, and the place in it.
        statement: description of the comparison.
        printed: number in the paper.
        computed: number computed from other numbers in the paper.
        allowed: largest difference that rounding explains.
        note: explanation of a larger difference.
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
