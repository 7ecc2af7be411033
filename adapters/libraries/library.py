"""The type `Library`, with which an attack library is defined. All code specific to a library follows from it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any, NamedTuple

from ...errors import InvalidInput
from ..attack import Attack, Implementation


class KnownIssue(NamedTuple):
    """A known issue of a library's algorithm: a description, and the norms that are affected (empty for all norms)."""

    text: str
    norms: tuple[str, ...] = ()


@dataclass(frozen=True)
class Library:
    """Definition of an attack library: names, implementations and driver.

    A package other than davylamp can define a library. It needs an entry point of the group "davylamp.libraries" that
    names a `Library` object. The module with this object is imported together with davylamp, so it should not import
    the attack library itself. The driver and the attack classes are imported only when an attack runs.

    Args:
        name: name of the library, such as "foolbox" in "foolbox:pgd". It may contain letters, digits, "-" and "_".
        module: name of the library's Python module. The library counts as installed if this module can be imported.
        distribution: name of the installed package, such as "adversarial-robustness-toolbox". The version of this
            package is stored with every result.
        attacks: the implementations. Their `library` must be `name`.
        driver: "module:function" of the function that calls the library, once for each batch. It is called as
            `driver(attack_class, model, inputs, labels, threat_model, targets=None, **kwargs)`, and returns the
            adversarial images, see `docs/add-a-library.md`.
        package: package to which a leading dot in `driver`, `classes` and `within` refers, usually `__name__` of the
            definition's package.
        extra: extra of davylamp that installs the library. If empty, `pip install DISTRIBUTION` is used.
        command: install command, if neither the extra nor `pip install DISTRIBUTION` installs the library.
        introduces: canonical attacks that the implementations need and that are not in davylamp's catalogue.
        findings: known issues by id, in addition to the common ones. Implementations refer to these ids.
        open_defaults: values by canonical name for parameters that have no default in the signature of a class. They
            are the values that the library or the driver uses. A step size may be a text such as "1 epsilon / steps".
        preload: modules that are imported once, before worker processes start.
        refuses: "module:function" of a function that is called as `refuses(row, setting)` before an attack runs. It
            returns the reason why the implementation cannot run in this setting, or "" if it can run. The reason is a
            text that follows the implementation's name. Empty if there are no such restrictions.
        provider: package that contains this definition, if it comes from an entry point. Otherwise "".

    Raises:
        InvalidInput: if the name could be mistaken for the name of a file or attack, or an implementation belongs to a
            different library.
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
        """Whether the library's module can be found. The module is not imported for this."""
        try:
            return find_spec(self.module) is not None
        except (ImportError, ValueError):  # a parent package is missing, or its module has no spec
            return False

    @property
    def version(self) -> str:
        """Installed version of the library. "" if the library is not installed.

        If the definition is in a package other than davylamp, the version of this package is included.
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
    """Return a path `module:name` with a leading dot replaced by the package of the library's definition."""
    module, _, name = path.partition(":")
    if not module.startswith("."):
        return path
    return f"{library.package}{'' if module == '.' else module}:{name}"
