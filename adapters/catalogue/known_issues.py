"""Known issues of the libraries' algorithms, collected from all libraries. The implementations run as shipped."""

from collections.abc import Mapping
from functools import cache

from ..attack import Implementation
from ..libraries.common_known_issues import COMMON
from ..libraries.library import KnownIssue
from .lazy import LazyMapping
from .lookup import LIBRARIES


@cache
def _all_findings() -> Mapping[str, KnownIssue]:
    return {**COMMON, **{key: finding for each in LIBRARIES.values() for key, finding in each.findings.items()}}


def _text(issue: KnownIssue) -> str:
    return f"{issue.text} ({', '.join(issue.norms)} only)" if issue.norms else issue.text


FINDINGS: Mapping[str, str] = LazyMapping(lambda: {key: _text(issue) for key, issue in _all_findings().items()})


def known_issues_of(row: Implementation, norm: str) -> tuple[str, ...]:
    """Return the ids of an implementation's known issues that concern a norm."""
    return tuple(key for key in row.findings if not (norms := _all_findings()[key].norms) or norm in norms)
