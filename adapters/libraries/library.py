"""What a library is to davylamp: one record. Everything else that depends on a library is derived from it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import NamedTuple

from ...errors import InvalidInput
from ..attack import Attack, Implementation


class KnownIssue(NamedTuple):
    """A known defect of a library's algorithm: what it does, and the norms that it concerns (empty: all)."""

    text: str
    norms: tuple[str, ...] = ()


@dataclass(frozen=True)
class Library:
    """An attack library: what it is called, what it has, and how it is called.

    A separate package brings one by an entry point of the group "davylamp.libraries" that names a `Library`. The
    module that holds the record is imported with davylamp, so it should import nothing heavy; the driver and the
    classes are loaded when an attack runs.

    Args:
        name: first half of the names of its implementations, "foolbox" in "foolbox:pgd": letters, digits, "-", "_".
        module: what is imported to use it, "foolbox"; whether it is installed is asked of this module.
        distribution: what is installed, "adversarial-robustness-toolbox"; its version is stored with every result.
        attacks: its implementations; their `library` is this name.
        driver: "module:function", called as `driver(attack_class, model, inputs, labels, threat_model, targets=None,
            **kwargs)` for each batch and returning the adversarial images, see `docs/add-a-library.md`.
        package: where a leading dot in `driver`, `classes` and `within` starts: `__name__` of the record's package.
        extra: of davylamp that installs it; empty: `pip install DISTRIBUTION` does.
        command: that installs it, where neither does.
        introduces: canonical attacks of its rows that davylamp's catalogue does not have.
        findings: known defects by id, which its rows may name; besides the common ones.
        preload: modules that workers import once before they start.
        refuses: "module:function", called as `refuses(row, setting)` before anything is computed: why the library
            cannot run that there, said after the row's name; "" if it can. Empty: it can whatever the row has.
        provider: distribution that brings this record, set for those that an entry point brings.

    Raises:
        InvalidInput: if the name could not be told from a file or an attack, or a row belongs to another library.
    """

    name: str
    module: str
    distribution: str
    attacks: tuple[Implementation, ...]
    driver: str
    package: str
    extra: str = ""
    command: str = ""
    introduces: tuple[Attack, ...] = ()
    findings: Mapping[str, KnownIssue] = field(default_factory=dict)
    preload: tuple[str, ...] = ()
    refuses: str = ""
    provider: str = ""

    def __post_init__(self) -> None:
        if not self.name or not self.name.replace("-", "").replace("_", "").isalnum():
            raise InvalidInput(f"expected a library's name of letters, digits, - and _, got {self.name!r}")
        for row in self.attacks:
            if row.library != self.name:
                raise InvalidInput(f"expected rows of {self.name} in its record, got {row.name}")

    @property
    def is_installed(self) -> bool:
        """Whether it can be imported, without importing it."""
        try:
            return find_spec(self.module) is not None
        except (ImportError, ValueError):  # a parent package is not there, or its module says nothing of itself
            return False

    @property
    def version(self) -> str:
        """What is installed, with the version of the package that brings the record; "" if it is not installed."""
        known = _version_of(self.distribution)
        if not self.provider or self.provider == self.distribution:
            return known
        return f"{known} by {self.provider} {_version_of(self.provider)}".strip()


def _version_of(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""


def absolute_path(path: str, library: Library) -> str:
    """The path `module:name`, a leading dot resolved from the package of the library's record."""
    module, _, name = path.partition(":")
    if not module.startswith("."):
        return path
    return f"{library.package}{'' if module == '.' else module}:{name}"
