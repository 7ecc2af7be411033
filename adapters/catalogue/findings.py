"""Known defects of the libraries' algorithms, gathered from their records; the rows run as shipped."""

from collections.abc import Mapping

from ..attack import Implementation
from ..libraries.common_findings import COMMON
from ..libraries.library import Finding
from .lookup import LIBRARIES

_ALL: Mapping[str, Finding] = {
    **COMMON,
    **{key: finding for library in LIBRARIES.values() for key, finding in library.findings.items()},
}
FINDINGS: Mapping[str, str] = {key: finding.text for key, finding in _ALL.items()}


def findings_of(row: Implementation, norm: str) -> tuple[str, ...]:
    """The ids of a row's findings that concern a norm."""
    return tuple(key for key in row.findings if not (norms := _ALL[key].norms) or norm in norms)
