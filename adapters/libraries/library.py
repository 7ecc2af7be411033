"""Definition of an attack library, which determines all library-specific behaviour."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any, NamedTuple

from ...errors import InvalidInput
from ..attack import Attack, Implementation


class KnownIssue(NamedTuple):
    """A known issue of a library's algorithm: its description, and the norms that it concerns (empty for all norms)."""

    text: str
    norms: tuple[str, ...] = ()


@dataclass(frozen=True)
class Library:
    """Definition of an attack library: names, implementations and driver.

    Another package provides a library through an entry point of the group "davylamp.libraries" that names a `Library`
    object. The module with the definition is imported together with davylamp, so it should not import the library
    itself. The driver and the classes are imported when an attack runs.

    Args:
        name: first half of the names of its implementations, such as "foolbox" in "foolbox:pgd". It may contain
            letters, digits, "-" and "_".
        module: importable module, such as "foolbox". The library counts as installed if the module can be imported.
        distribution: name of the installed package, such as "adversarial-robustness-toolbox". The version of this
            package is stored with every result.
        attacks: the implementations, whose `library` must be this name.
        driver: "module:function", called as `driver(attack_class, model, inputs, labels, threat_model, targets=None,
            **kwargs)` for each batch. It returns the adversarial images, see `docs/add-a-library.md`.
        package: the package to which a leading dot in `driver`, `classes` and `within` refers, usually `__name__` of
            the definition's package.
        extra: the extra of davylamp that installs the library. If empty, `pip install DISTRIBUTION` installs it.
        command: install command, if neither the extra nor `pip install DISTRIBUTION` installs the library.
        introduces: canonical attacks that the implementations need and davylamp's catalogue does not have.
        findings: known issues by id, in addition to the common ones. The implementations refer to them by id.
        open_defaults: values by canonical name, for parameters that have no default in the signature of a class. They
            are the values that the library or the driver uses. A step size may be a text such as "1 epsilon / steps".
        preload: modules that are imported once, before worker processes start.
        refuses: "module:function", called as `refuses(row, setting)` before anything is computed. It returns why the
            library cannot run in that setting, as a text that follows the implementation's name, or "" if it can. If
            empty, there are no such restrictions.
        provider: package that provides this definition, if it comes from an entry point.

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
    open_defaults: Mapping[str, Any] = field(default_factory=dict)
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
        """Whether the library can be imported. The check does not import it."""
        try:
            return find_spec(self.module) is not None
        except (ImportError, ValueError):  # a parent package is missing, or its module has no spec
            return False

    @property
    def version(self) -> str:
        """Installed version, or "" if the library is not installed.

        If another package provides the definition, its version is included.
        """
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
    """Resolve a leading dot in the path `module:name`, which refers to the package of the library's definition."""
    module, _, name = path.partition(":")
    if not module.startswith("."):
        return path
    return f"{library.package}{'' if module == '.' else module}:{name}"
