"""A check of a paper: a printed number against the same number computed from other parts of the paper."""

from typing import NamedTuple


class PaperCheck(NamedTuple):
    """Comparison of a number that a paper prints with the same number computed from other parts of the paper.

    Args:
        paper: name of the paper, with the tables or sections.
        statement: description of the number.
        printed: the printed number.
        computed: the computed number.
        allowed: largest difference that rounding can explain.
        note: explanation, if the difference is larger.
    """

    paper: str
    statement: str
    printed: float
    computed: float
    allowed: float
    note: str = ""

    @property
    def holds(self) -> bool:
        """Whether rounding can explain the difference between the printed and the computed number."""
        return abs(self.printed - self.computed) <= self.allowed * (1 + 1e-9)
