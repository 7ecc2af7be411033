"""Definition of an attack library. All library-specific behaviour follows from it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import NamedTuple

from ...errors import InvalidInput
from ..attack import Attack, Implementation


class KnownIssue(NamedTuple):
    """A known issue of a library's algorithm: its description and the norms that it concerns (empty for all)."""

    text: str
    norms: tuple[str, ...] = ()


@dataclass(frozen=True)
class Library:
    """Definition of an attack library: names, implementations and driver.

    A separate package provides one through an entry point of the group "davylamp.libraries" that names a `Library`. The
    module of the definition is imported with davylamp, so it should import nothing heavy; the driver and the
    classes are loaded when an attack runs.

    Args:
        name: first half of the names of its implementations, "foolbox" in "foolbox:pgd": letters, digits, "-", "_".
        module: importable module, "foolbox"; it also determines whether the library is installed.
        distribution: installed package, "adversarial-robustness-toolbox"; its version is stored with every result.
        attacks: its implementations; their `library` is this name.
        driver: "module:function", called as `driver(attack_class, model, inputs, labels, threat_model, targets=None,
            **kwargs)` for each batch and returning the adversarial images, see `docs/add-a-library.md`.
        package: base of a leading dot in `driver`, `classes` and `within`: `__name__` of the definition's package.
        extra: extra of davylamp that installs the library; if empty, it is installed by `pip install DISTRIBUTION`.
        command: install command, if neither of these installs it.
        introduces: canonical attacks of its implementations that davylamp's catalogue does not have.
        findings: known issues by id, which its implementations may name, in addition to the common ones.
        preload: modules that workers import once before they start.
        refuses: "module:function", called as `refuses(row, setting)` before anything is computed. Returns why the
            library cannot run in that setting, phrased to follow the implementation's name; "" if it can. If empty,
            there are no such restrictions.
        provider: distribution that provides this definition, if it comes from an entry point.

    Raises:
        InvalidInput: if the name could be mistaken for a file or an attack, or an implementation belongs to a different
            library.
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
                raise InvalidInput(f"expected implementations of {self.name} in its definition, got {row.name}")

    @property
    def is_installed(self) -> bool:
        """Whether the library can be imported. This is checked without importing it."""
        try:
            return find_spec(self.module) is not None
        except (ImportError, ValueError):  # a parent package is missing, or its module has no spec
            return False

    @property
    def version(self) -> str:
        """Installed version, with that of the package that provides the definition; "" if it is not installed."""
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
    """Return the path `module:name` with a leading dot resolved from the package of the library's definition."""
    module, _, name = path.partition(":")
    if not module.startswith("."):
        return path
    return f"{library.package}{'' if module == '.' else module}:{name}"
