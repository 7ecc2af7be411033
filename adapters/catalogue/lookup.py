"""The catalogue: every implementation by name, what it takes, and its class; a library is loaded when used."""

import importlib
import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import Tensor

from ...errors import InvalidInput, MissingLibrary, UnknownName, Unsupported
from ..attack import Attack, Implementation, RunSetting
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

# What a library takes for a step size where it is given none and states none.
_STEPS_LEFT_OPEN = {"torchattack": "1 epsilon / steps"}

# Given to every attack by `run_attack` itself, whatever the library.
UNIVERSAL = ("max_queries", "batch_size", "precision")


def find_attack(name: str) -> Attack:
    """The canonical attack of that name.

    Raises:
        UnknownName: if there is none; with close matches.
        InvalidInput: for a file without the function in it.
    """
    if name.endswith(".py"):
        raise InvalidInput(f"expected an attack of a file as FILE.py:FUNCTION, got {name!r}: say {name}:FUNCTION")
    if name not in ATTACKS:
        raise UnknownName("attack", name, ATTACKS)
    return ATTACKS[name]


def find_implementation(name: str) -> Implementation:
    """The row called `library:attack`, `library:attack@variant` or, a user's, `path/to/file.py:NAME`.

    Raises:
        UnknownName: if there is none; with close matches.
        Unavailable, ModelFailed, InvalidInput: if a user's file cannot be read, fails, holds no attack, or comes alone.
    """
    library, colon, attack = name.partition(":")
    if name in IMPLEMENTATIONS:
        return IMPLEMENTATIONS[name]
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
    hint = f"{library} has no {canonical}; there are: {', '.join(have)}"
    raise UnknownName("implementation", name, (), hint=hint)


def resolve_implementation(attack: Any) -> Implementation:
    """The row that is meant: a row, the name of one, or a user's attack (see `as_implementation`)."""
    if isinstance(attack, str):
        return find_implementation(attack)
    return _with_known_attack(attack if isinstance(attack, Implementation) else as_implementation(attack))


def _with_known_attack(row: Implementation) -> Implementation:
    """The row itself; UnknownName if a user's says that it is an attack that the catalogue does not have."""
    if row.canonical and row.canonical not in ATTACKS:
        raise UnknownName(f"canonical attack of {row.name}", row.canonical, ATTACKS)
    return row


def canonical_attack(row: Implementation) -> Attack:
    """The canonical attack of a row; a row outside the catalogue brings its description."""
    return row.described or find_attack(row.attack)


def implementations_of(attack: str) -> list[Implementation]:
    """Every row of a canonical attack, in the order of the libraries; UnknownName if there is no such attack."""
    find_attack(attack)
    return [row for row in IMPLEMENTATIONS.values() if row.attack == attack]


def find_library(name: str) -> Library:
    """The record of a library; UnknownName with close matches, or the reason why a record was refused."""
    if name == USER.name or name.endswith(".py"):
        return USER
    if name not in LIBRARIES:
        if name in REFUSED_LIBRARIES:
            raise Unsupported(f"the library {name} cannot be used: {REFUSED_LIBRARIES[name]}")
        raise UnknownName("library", name, LIBRARIES)
    return LIBRARIES[name]


def require_library(name: str) -> None:
    """Raise MissingLibrary, which names the extra, if the library is not installed."""
    library = find_library(name)
    if not library.is_installed:
        raise _missing(library)


def _missing(library: Library, module: str = "", reason: str = "") -> MissingLibrary:
    name, package = module or library.name, module or library.distribution
    command = "" if module else library.command
    return MissingLibrary(name, library.extra, reason, package=package, command=command)


def load_class(row: Implementation, norm: str) -> Any:
    """The library's attack class behind a row.

    Raises:
        MissingLibrary: if the library, or a module that it needs without declaring it, is not installed.
        Unsupported: if the row does not have the norm.
    """
    if norm not in row.classes:
        raise Unsupported(f"{row.name} does not have norm {norm}; it has: {', '.join(row.classes)}")
    if row.given is not None:
        return row.given
    if not row.classes[norm]:  # a stand-in for a row that is not here
        raise Unsupported(f"{row.name} cannot run: {row.broken}")
    require_library(row.library)
    return _load_object(row.classes[norm], find_library(row.library))


def load_driver(row: Implementation) -> Callable[..., Tensor]:
    """The function that calls the library for a row."""
    library = find_library(row.library)
    return _load_object(library.driver, library)


_FOR_FEW = {
    "autoattack": "margin-ensemble (APGD-CE, APGD on the margin, FAB, Square)",
    "apgd-dlr": "apgd-margin",
    "apgd-t": "apgd-margin",
}


def why_not_on(row: Implementation, setting: RunSetting) -> str:
    """Why a row cannot be run so, said after its name, before anything is computed; "" if nothing stands against it."""
    if setting.classes < row.min_classes:
        instead = f"; {_FOR_FEW[row.attack]} needs two" if row.attack in _FOR_FEW else ""
        return f"needs at least {row.min_classes} classes, got {setting.classes}{instead}"
    library = find_library(row.library)
    if row.given is not None or not library.refuses or not library.is_installed:
        return ""
    return _load_object(library.refuses, library)(row, setting)


def load_fit(row: Implementation) -> Callable[..., Mapping[str, Tensor]]:
    """The function with which a row learns once, see `Implementation.fit`."""
    return _load_object(row.fit, find_library(row.library))


def load_apply(row: Implementation) -> Callable[..., Tensor]:
    """The function that applies what a row has learned; without one a perturbation is added."""
    library = find_library(row.library)
    return _load_object(row.apply or "davylamp.adapters.running.fit:add_perturbation", library)


def load_call_context(row: Implementation) -> Callable[[], AbstractContextManager[Any]]:
    """What a row wants entered around each call of its library; one that does nothing where it wants nothing."""
    return _load_object(row.within, find_library(row.library)) if row.within else nullcontext


def _load_object(path: str, library: Library) -> Any:
    """Import "module:name", a leading dot from the record's package; MissingLibrary if it cannot be."""
    module, _, name = absolute_path(path, library).partition(":")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings from a library's imports are not the user's business
            return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        raise _missing(library, error.name or module, f"needed by {library.name}") from error


def check_support(row: Implementation, threat_model: ThreatModel, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters in their declared types, if the row can do what is asked; nothing is computed.

    Raises:
        Unsupported: if the row is broken, or lacks the norm, the targeted mode or a parameter, or needs an epsilon.
        UnknownName: if a parameter is not in the vocabulary.
        InvalidInput: if a parameter has a wrong value.
    """
    if row.broken:
        raise Unsupported(f"{row.name} cannot run: {row.broken}")
    if threat_model.norm not in row.classes:
        raise Unsupported(f"{row.name} does not have norm {threat_model.norm}; it has: {', '.join(row.classes)}")
    fixed_budget = canonical_attack(row).kind == "fixed-budget" and threat_model.norm != "unrestricted"
    if fixed_budget and threat_model.epsilon is None:
        raise Unsupported(f"{row.name} is a fixed-budget attack: expected an epsilon, got none")
    if threat_model.targeted and row.targeted == "no":
        raise Unsupported(f"{row.name} has no targeted mode")
    checked = {name: check_parameter(name, value, row.more) for name, value in parameters.items()}
    for name in checked:
        if not accepts_parameter(row, name):
            raise Unsupported(
                f"{row.name} does not have parameter {name}; it has: {', '.join(accepted_parameters(row))}"
            )
    return checked


def check_settings(
    row: Implementation, threat_model: ThreatModel, parameters: Mapping[str, Any], radii: Tensor | None
) -> dict[str, Any]:
    """The parameters in their types, as `check_support` gives them; the `step_size` may be one for each radius.

    Raises:
        Unsupported: if the row cannot do what is asked, or takes no radius for each image.
        UnknownName: if a parameter is not in the vocabulary.
        InvalidInput: if a parameter has a wrong value, or there are not as many step sizes as radii.
    """
    if radii is not None and not (isinstance(radii, Tensor) and radii.ndim == 1 and len(radii)):
        got = f"a tensor of shape {tuple(radii.shape)}" if isinstance(radii, Tensor) else type(radii).__name__
        raise InvalidInput(f"expected radii as a tensor, one for each image, got {got}")
    steps = parameters.get("step_size")
    if isinstance(steps, Tensor):
        if radii is None:
            raise InvalidInput(f"expected one step_size for all images, as there are no radii, got {steps.numel()}")
        if steps.shape != radii.shape:
            raise InvalidInput(f"expected as many radii as step_size, got {len(radii)} and {steps.numel()}")
        for extreme in (float(steps.min()), float(steps.max())):
            settings = {**check_support(row, threat_model, {**parameters, "step_size": extreme}), "step_size": steps}
    else:
        settings = check_support(row, threat_model, parameters)
    if radii is not None and not supports_per_image_radii(row, threat_model.norm, settings):
        raise Unsupported(f"{row.name} does not take a radius for each image here: expected one epsilon, got radii")
    return settings


def accepts_parameter(row: Implementation, parameter: str) -> bool:
    """Whether a row takes a canonical parameter; any row that draws random numbers takes `restarts`."""
    return parameter in accepted_parameters(row)


def check_parameter_names(
    names: Iterable[str], attack: str, rows: Sequence[Implementation], more: Mapping[str, Parameter]
) -> None:
    """Refuse a parameter that nobody knows, or that no implementation of an attack has.

    Args:
        names: of the parameters that were given.
        attack: its name.
        rows: the implementations that are run.
        more: parameters beyond `PARAMETERS` that count as known.

    Raises:
        UnknownName: if there is no such parameter.
        Unsupported: if it fits none of the rows.
    """
    for name in names:
        find_parameter(name, more)
        if not any(accepts_parameter(row, name) for row in rows):
            raise Unsupported(f"no implementation of {attack} has parameter {name}")


def supports_per_image_radii(row: Implementation, norm: str, parameters: Mapping[str, Any]) -> bool:
    """Whether one call of the row can give every image another radius."""
    start = "random_start"
    return row.per_image_radii and not {**library_defaults(row, norm), **parameters}.get(start, False)


def accepted_parameters(row: Implementation) -> list[str]:
    """The canonical parameters that a row takes, those of its class first."""
    names = [name for name in row.params if name not in SUPPLIED]
    restarts = ["restarts"] if row.random and "restarts" not in names else []
    return [*dict.fromkeys((*names, *restarts, *UNIVERSAL))]


def library_defaults(row: Implementation, norm: str) -> dict[str, Any]:
    """The library's defaults in canonical words, read from the installed class; MissingLibrary if it is not there.

    A parameter that the class requires, or sets without telling, is left out. A step size that follows from the radius
    is a text, "0.03333 epsilon".
    """
    if row.given is not None:
        return declared_defaults(row)
    attack = load_class(row, norm)
    signature = inspect.signature(attack.__init__ if isinstance(attack, type) else attack).parameters
    words = {name: word for name, word in row.params.items() if name not in SUPPLIED and word in signature}
    defaults = {name: signature[word].default for name, word in words.items()}
    relative = next((word for word in _RELATIVE_STEPS if word in signature), "")
    if defaults.get("step_size", "") is None and relative:  # unless it gets an absolute one
        defaults["step_size"] = f"{signature[relative].default:.4g} epsilon"
    elif defaults.get("step_size", "") is None and row.library in _STEPS_LEFT_OPEN:
        defaults["step_size"] = _STEPS_LEFT_OPEN[row.library]
    return {name: value for name, value in defaults.items() if value is not inspect.Parameter.empty and value != ""}


def describe_implementation(row: Implementation) -> dict[str, Any]:
    """All that the catalogue knows of a row, as plain values; `defaults` is None where the library is not installed.

    `defaults` are the library's, by norm where the norms differ.
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
