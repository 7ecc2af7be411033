"""Finds attacks, implementations and libraries by name. A library is imported only when it is used."""

import importlib
import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import Tensor

from ...errors import InvalidInput, MissingLibrary, UnknownName, Unsupported
from ..attack import Attack, Implementation, RunSetting, current_implementation
from ..libraries.library import Library, absolute_path
from ..libraries.user import LIBRARY as USER
from ..libraries.user.as_implementation import as_implementation, declared_defaults, implementation_from_file
from ..parameters import SUPPLIED, Parameter, check_parameter, find_parameter
from ..paths import is_file_name
from ..threat_model import ThreatModel
from .assemble import catalogue
from .lazy import LazyMapping

LIBRARIES: Mapping[str, Library] = LazyMapping(lambda: catalogue().libraries)
ATTACKS: Mapping[str, Attack] = LazyMapping(lambda: catalogue().attacks)
IMPLEMENTATIONS: Mapping[str, Implementation] = LazyMapping(lambda: catalogue().implementations)
REFUSED_LIBRARIES: Mapping[str, str] = LazyMapping(lambda: catalogue().refused)

# What Foolbox and adversarial-library call a step size in radii.
_RELATIVE_STEPS = ("rel_stepsize", "relative_step_size")

# Passed to every attack by `run_attack` itself, whatever the library.
UNIVERSAL = ("max_queries", "batch_size", "precision")


def find_attack(name: str) -> Attack:
    """Return the canonical attack with a name, such as "pgd".

    Raises:
        UnknownName: if there is no such attack. The message suggests close matches.
        InvalidInput: if the name is a Python file without the name of a function.
    """
    if name.endswith(".py"):
        raise InvalidInput(f"expected an attack from a file as FILE.py:FUNCTION, got {name!r}; write {name}:FUNCTION")
    if name not in ATTACKS:
        raise UnknownName("attack", name, ATTACKS)
    return ATTACKS[name]


def find_implementation(name: str) -> Implementation:
    """Return the implementation with a name: `library:attack`, `library:attack@variant` or `path/to/file.py:NAME`.

    Raises:
        UnknownName: if there is no such implementation. The message suggests close matches.
        Unavailable: if the user's file cannot be read.
        ModelFailed: if the user's file raises an error.
        InvalidInput: if the user's file has no attack `NAME`, or `NAME` is missing.
    """
    current = current_implementation(name)
    if current in IMPLEMENTATIONS:
        return IMPLEMENTATIONS[current]
    library, colon, attack = name.partition(":")
    if is_file_name(name):
        return _with_known_attack(implementation_from_file(name))
    if not colon:
        find_attack(name)
        raise UnknownName("implementation", name, (row.name for row in implementations_of(name)))
    find_library(library)
    canonical = find_attack(attack.partition("@")[0]).name
    have = [row.name for row in implementations_of(canonical)]
    if any(row.startswith(f"{library}:") for row in have):
        raise UnknownName("implementation", name, have)
    hint = f"{library} has no implementation of {canonical}; available: {', '.join(have)}"
    raise UnknownName("implementation", name, (), hint=hint)


def resolve_implementation(attack: Any) -> Implementation:
    """Return the implementation for a name, an `Implementation` or a user's attack (see `as_implementation`)."""
    if isinstance(attack, str):
        return find_implementation(attack)
    return _with_known_attack(attack if isinstance(attack, Implementation) else as_implementation(attack))


def _with_known_attack(row: Implementation) -> Implementation:
    if row.canonical and row.canonical not in ATTACKS:
        raise UnknownName(f"canonical attack of {row.name}", row.canonical, ATTACKS)
    return row


def canonical_attack(row: Implementation) -> Attack:
    """Return the canonical attack of an implementation, also if the attack is not in the catalogue."""
    return row.described or find_attack(row.attack)


def implementations_of(attack: str) -> list[Implementation]:
    """Return all implementations of a canonical attack, in the order of the libraries.

    Raises:
        UnknownName: if there is no such attack.
    """
    find_attack(attack)
    return [row for row in IMPLEMENTATIONS.values() if row.attack == attack]


def find_library(name: str) -> Library:
    """Return the definition of a library.

    Raises:
        UnknownName: if there is no such library, or its definition cannot be used. The message suggests similar names,
            or says why the definition cannot be used.
    """
    if name == USER.name or name.endswith(".py"):
        return USER
    if name not in LIBRARIES:
        if name in REFUSED_LIBRARIES:
            raise Unsupported(f"the library {name} cannot be used: {REFUSED_LIBRARIES[name]}")
        raise UnknownName("library", name, LIBRARIES)
    return LIBRARIES[name]


def require_library(name: str) -> None:
    """Raise MissingLibrary if the library is not installed. The message contains the install command."""
    library = find_library(name)
    if not library.is_installed:
        raise _missing(library)


def _missing(library: Library, module: str = "", reason: str = "") -> MissingLibrary:
    name, package = module or library.name, module or library.distribution
    command = "" if module else library.command
    return MissingLibrary(name, library.extra, reason, package=package, command=command)


def load_class(row: Implementation, norm: str) -> Any:
    """Import and return the library's attack class, or function, for an implementation and a norm.

    Raises:
        MissingLibrary: if the library, or an undeclared dependency of the library, is not installed.
        Unsupported: if the implementation does not support the norm.
    """
    if norm not in row.classes:
        raise Unsupported(f"{row.name} does not support the norm {norm}; supported: {', '.join(row.classes)}")
    if row.given is not None:
        return row.given
    if not row.classes[norm]:  # an implementation that is not installed here
        raise Unsupported(f"{row.name} cannot run: {row.broken}")
    require_library(row.library)
    return _load_object(row.classes[norm], find_library(row.library))


def load_driver(row: Implementation) -> Callable[..., Tensor]:
    """Import and return the driver of an implementation: the function that calls the library."""
    library = find_library(row.library)
    return _load_object(library.driver, library)


_FOR_FEW = {
    "autoattack": "margin-ensemble (APGD-CE, APGD on the margin, FAB, Square)",
    "apgd-dlr": "apgd-margin",
    "apgd-t": "apgd-margin",
}


def why_not_on(row: Implementation, setting: RunSetting) -> str:
    """Return the reason why an implementation cannot run in a setting. "" if it can run.

    The reason is a text that follows the name of the implementation, such as "needs at least 4 classes, got 2".
    """
    if setting.classes < row.min_classes:
        instead = f"; {_FOR_FEW[row.attack]} needs two" if row.attack in _FOR_FEW else ""
        return f"needs at least {row.min_classes} classes, got {setting.classes}{instead}"
    library = find_library(row.library)
    if row.given is not None or not library.refuses or not library.is_installed:
        return ""
    return _load_object(library.refuses, library)(row, setting)


def load_fit(row: Implementation) -> Callable[..., Mapping[str, Tensor]]:
    """Import and return the function that fits an implementation (`Implementation.fit`)."""
    return _load_object(row.fit, find_library(row.library))


def load_apply(row: Implementation) -> Callable[..., Tensor]:
    """Import and return the function that makes examples from fitted tensors (`Implementation.apply`).

    If the implementation names no function, the returned function adds the fitted perturbation to the images.
    """
    library = find_library(row.library)
    return _load_object(row.apply or "davylamp.adapters.running.fit:add_perturbation", library)


def load_call_context(row: Implementation) -> Callable[[], AbstractContextManager[Any]]:
    """Return the context manager that is active during each call of the library."""
    return _load_object(row.within, find_library(row.library)) if row.within else nullcontext


def _load_object(path: str, library: Library) -> Any:
    """Import "module:name". A leading dot is relative to the library's package. Raises MissingLibrary."""
    module, _, name = absolute_path(path, library).partition(":")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings from a library's imports are not the user's business
            return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        raise _missing(library, error.name or module, f"needed by {library.name}") from error


def check_support(row: Implementation, threat_model: ThreatModel, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Check that an implementation supports a threat model and parameters.

    Returns:
        The parameters, converted to their declared types.

    Raises:
        Unsupported: if the implementation cannot run, does not support the norm, targets or a parameter, or needs a
            radius.
        UnknownName: if there is no such parameter.
        InvalidInput: if a parameter has a wrong value.
    """
    if row.broken:
        raise Unsupported(f"{row.name} cannot run: {row.broken}")
    if threat_model.norm not in row.classes:
        raise Unsupported(
            f"{row.name} does not support the norm {threat_model.norm}; supported: {', '.join(row.classes)}"
        )
    fixed_budget = canonical_attack(row).kind == "fixed-budget" and threat_model.norm != "unrestricted"
    if fixed_budget and threat_model.epsilon is None:
        raise Unsupported(f"{row.name} is a fixed-budget attack and needs an epsilon")
    if threat_model.targeted and row.targeted == "no":
        raise Unsupported(f"{row.name} has no targeted mode")
    checked = {name: check_parameter(name, value, row.more) for name, value in parameters.items()}
    for name in checked:
        if not accepts_parameter(row, name):
            raise Unsupported(
                f"{row.name} has no parameter {name}; its parameters: {', '.join(accepted_parameters(row))}"
            )
    return checked


def check_settings(
    row: Implementation, threat_model: ThreatModel, parameters: Mapping[str, Any], radii: Tensor | None
) -> dict[str, Any]:
    """Check and convert parameters as `check_support` does. Also check the radii if each image has its own radius.

    In this case, the parameter `step_size` may have one value for each radius.

    Raises:
        Unsupported: if the implementation does not support the threat model, a parameter, or a radius per image.
        UnknownName: if there is no such parameter.
        InvalidInput: if a parameter has a wrong value, or the numbers of step sizes and radii differ.
    """
    if radii is not None and not (isinstance(radii, Tensor) and radii.ndim == 1 and len(radii)):
        got = f"a tensor of shape {tuple(radii.shape)}" if isinstance(radii, Tensor) else type(radii).__name__
        raise InvalidInput(f"expected radii as a tensor, one for each image, got {got}")
    steps = parameters.get("step_size")
    if isinstance(steps, Tensor):
        if radii is None:
            raise InvalidInput(
                f"got {steps.numel()} step sizes, but no radii; give one step_size for all images, or a radius for "
                "each image"
            )
        if steps.shape != radii.shape:
            raise InvalidInput(
                f"expected one step_size per radius, got {len(radii)} radii and {steps.numel()} step sizes"
            )
        for extreme in (float(steps.min()), float(steps.max())):
            settings = {**check_support(row, threat_model, {**parameters, "step_size": extreme}), "step_size": steps}
    else:
        settings = check_support(row, threat_model, parameters)
    if radii is not None and not supports_per_image_radii(row, threat_model.norm, settings):
        raise Unsupported(
            f"{row.name} does not accept a radius per image with these settings; give one epsilon for all images"
        )
    return settings


def accepts_parameter(row: Implementation, parameter: str) -> bool:
    """Whether an implementation accepts a canonical parameter. Every random implementation accepts `restarts`."""
    return parameter in accepted_parameters(row)


def check_parameter_names(
    names: Iterable[str], attack: str, rows: Sequence[Implementation], more: Mapping[str, Parameter]
) -> None:
    """Raise an error for a parameter that does not exist or that no implementation of an attack accepts.

    Args:
        names: names of the parameters.
        attack: name of the canonical attack.
        rows: the implementations to run.
        more: valid parameters in addition to the canonical ones.

    Raises:
        UnknownName: if a parameter does not exist.
        Unsupported: if no implementation in `rows` accepts a parameter.
    """
    for name in names:
        find_parameter(name, more)
        if not any(accepts_parameter(row, name) for row in rows):
            raise Unsupported(f"no implementation of {attack} has a parameter {name}")


def supports_per_image_radii(row: Implementation, norm: str, parameters: Mapping[str, Any]) -> bool:
    """Whether one call of the implementation can use a different radius for each image."""
    start = "random_start"
    return row.per_image_radii and not {**library_defaults(row, norm), **parameters}.get(start, False)


def accepted_parameters(row: Implementation) -> list[str]:
    """Return the names of all parameters that an implementation accepts. The parameters of its class come first."""
    names = [name for name in row.params if name not in SUPPLIED]
    restarts = ["restarts"] if row.random and "restarts" not in names else []
    return [*dict.fromkeys((*names, *restarts, *UNIVERSAL))]


def library_defaults(row: Implementation, norm: str) -> dict[str, Any]:
    """Return the library's default values of parameters by canonical name, read from the installed attack class.

    If the class has no default for a parameter, the value is that passed by davylamp's driver. Parameters without a
    value, and parameters that the class sets internally, are omitted. A step size that depends on the radius is a
    string, such as "0.03333 epsilon".

    Raises:
        MissingLibrary: if the library is not installed.
    """
    if row.given is not None:
        return declared_defaults(row)
    attack = load_class(row, norm)
    signature = inspect.signature(attack.__init__ if isinstance(attack, type) else attack).parameters
    words = {name: word for name, word in row.params.items() if name not in SUPPLIED and word in signature}
    defaults = {name: signature[word].default for name, word in words.items()}
    left_open = find_library(row.library).open_defaults
    relative = next((word for word in _RELATIVE_STEPS if word in signature), "")
    if defaults.get("step_size", "") is None and relative:  # unless it gets an absolute one
        defaults["step_size"] = f"{signature[relative].default:.4g} epsilon"
    elif defaults.get("step_size", "") is None:
        defaults["step_size"] = left_open.get("step_size")
    defaults |= {name: left_open[name] for name in left_open if defaults.get(name) is inspect.Parameter.empty}
    return {name: value for name, value in defaults.items() if value is not inspect.Parameter.empty and value != ""}


def describe_implementation(row: Implementation) -> dict[str, Any]:
    """Return the description of an implementation as JSON types.

    The entry `defaults` has the library's default values of parameters. If they differ between norms, it has them for
    each norm. The entry is None if the library is not installed.
    """
    attack = canonical_attack(row)
    try:
        by_norm = {norm: library_defaults(row, norm) for norm in row.classes}
    except MissingLibrary:
        by_norm = None
    defaults: Any = by_norm
    if by_norm is not None and len({str(values) for values in by_norm.values()}) == 1:
        defaults = next(iter(by_norm.values()))
    return {
        "attack": row.attack,
        "title": attack.title,
        "implementation": row.name,
        "library": row.library,
        "class": sorted({path.rpartition(":")[2] for path in row.classes.values()}),
        "norms": list(row.classes),
        "knowledge": attack.knowledge,
        "kind": attack.kind,
        "targeted": row.targeted,
        "random": list(row.random),
        "status": row.status,
        "parameters": accepted_parameters(row),
        "defaults": defaults,
        "repairs": list(row.repairs),
        "findings": list(row.findings),
        "broken": row.broken,
        "source": attack.source,
    }
