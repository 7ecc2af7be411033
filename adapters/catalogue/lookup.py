"""The catalogue: every implementation by name, joined from the library modules; loads no library until one is used."""

import importlib
import importlib.util
import inspect
import warnings
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ...errors import InvalidInput, MissingLibrary, UnknownName, Unsupported
from ..attack import LIBRARIES, Attack, Implementation, ThreatModel
from ..libraries.art import driver as art
from ..libraries.foolbox import driver as foolbox
from ..libraries.torchattacks import driver as torchattacks
from .attacks import ATTACKS
from .parameters import SUPPLIED, check_parameter

IMPLEMENTATIONS: Mapping[str, Implementation] = {
    row.name: row for module in (art, foolbox, torchattacks) for row in module.ROWS
}

_LIBRARIES = "davylamp.adapters.libraries"  # what a leading dot in `classes` starts from
# Given to every attack by `run_attack` itself, whatever the library.
UNIVERSAL = ("max_queries", "batch_size")


def find_attack(name: str) -> Attack:
    """The canonical attack of that name; UnknownName with close matches otherwise."""
    if name not in ATTACKS:
        raise UnknownName("attack", name, ATTACKS)
    return ATTACKS[name]


def find_implementation(name: str) -> Implementation:
    """The row called `library:attack` or `library:attack@variant`; UnknownName with close matches otherwise."""
    library, colon, attack = name.partition(":")
    if name in IMPLEMENTATIONS:
        return IMPLEMENTATIONS[name]
    if not colon:
        find_attack(name)
        raise UnknownName("implementation", name, (row.name for row in implementations_of(name)))
    if library not in LIBRARIES:
        raise UnknownName("library", library, LIBRARIES)
    find_attack(attack.partition("@")[0])
    raise UnknownName("implementation", name, IMPLEMENTATIONS)


def implementations_of(attack: str) -> list[Implementation]:
    """Every row of a canonical attack, in the order of the libraries; UnknownName if there is no such attack."""
    find_attack(attack)
    return [row for row in IMPLEMENTATIONS.values() if row.attack == attack]


def is_installed(library: str) -> bool:
    """Whether the library can be imported, without importing it."""
    return importlib.util.find_spec(library) is not None


def require_library(library: str) -> None:
    """Raise MissingLibrary, which names the extra, if the library is not installed."""
    if not is_installed(library):
        raise MissingLibrary(library, library)


def load_class(row: Implementation, norm: str) -> Any:
    """The library's attack class behind a row.

    Raises:
        MissingLibrary: if the library, or a module that it needs without declaring it, is not installed.
        Unsupported: if the row does not have the norm.
    """
    if norm not in row.classes:
        raise Unsupported(f"{row.name} does not have norm {norm}; it has: {', '.join(row.classes)}")
    require_library(row.library)
    return load_object(row.classes[norm], row.library)


def load_object(path: str, library: str) -> Any:
    """Import "module:name"; a module with a leading dot is one of this package. MissingLibrary if it cannot be."""
    module, _, name = path.partition(":")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what a library's own imports have to say is not the user's business
            return getattr(importlib.import_module(module, f"{_LIBRARIES}.{library}"), name)
    except ModuleNotFoundError as error:
        raise MissingLibrary(error.name or module, library, f"needed by {library}") from error


def check_support(row: Implementation, threat_model: ThreatModel, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters in their own types, if the row can do what is asked; nothing is computed.

    Raises:
        Unsupported: if the row is broken, or lacks the norm, the targeted mode or a parameter, or needs an epsilon.
        UnknownName: if a parameter is not in the vocabulary.
        InvalidInput: if a parameter has a wrong value.
    """
    if row.broken:
        raise Unsupported(f"{row.name} cannot run: {row.broken}")
    if threat_model.norm not in row.classes:
        raise Unsupported(f"{row.name} does not have norm {threat_model.norm}; it has: {', '.join(row.classes)}")
    fixed_budget = ATTACKS[row.attack].kind == "fixed-budget" and threat_model.norm != "unrestricted"
    if fixed_budget and threat_model.epsilon is None:
        raise Unsupported(f"{row.name} is a fixed-budget attack: expected an epsilon, got none")
    if threat_model.targeted and row.targeted == "no":
        raise Unsupported(f"{row.name} has no targeted mode")
    checked = {name: check_parameter(name, value) for name, value in parameters.items()}
    for name in checked:
        if not accepts(row, name):
            raise Unsupported(f"{row.name} does not have parameter {name}; it has: {', '.join(accepted(row))}")
    return checked


def check_settings(
    row: Implementation, threat_model: ThreatModel, parameters: Mapping[str, Any], radii: Tensor | None
) -> dict[str, Any]:
    """The parameters in their own types, as `check_support` gives them; the `step_size` may be one for each radius.

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
    if radii is not None and not takes_radii(row, threat_model.norm, settings):
        raise Unsupported(f"{row.name} does not take a radius for each image here: expected one epsilon, got radii")
    return settings


def accepts(row: Implementation, parameter: str) -> bool:
    """Whether a row takes a canonical parameter; any row that draws random numbers takes `restarts`."""
    return parameter in accepted(row)


def takes_radii(row: Implementation, norm: str, parameters: Mapping[str, Any]) -> bool:
    """Whether one call of the row can give every image a radius of its own."""
    start = "random_start"
    return row.own_radii and not {**library_defaults(row, norm), **parameters}.get(start, False)


def accepted(row: Implementation) -> list[str]:
    """The canonical parameters that a row takes, its own first."""
    own = [name for name in row.params if name not in SUPPLIED]
    restarts = ["restarts"] if row.random and "restarts" not in own else []
    return [*own, *restarts, *UNIVERSAL]


def library_defaults(row: Implementation, norm: str) -> dict[str, Any]:
    """The library's own defaults in canonical words, read from the installed class; MissingLibrary if it is not there.

    A parameter that the class requires, or sets without telling, is left out. A step size that follows from the radius
    is a text, "0.03333 epsilon".
    """
    signature = inspect.signature(load_class(row, norm).__init__).parameters
    words = {name: word for name, word in row.params.items() if name not in SUPPLIED and word in signature}
    defaults = {name: signature[word].default for name, word in words.items()}
    if defaults.get("step_size", "") is None and "rel_stepsize" in signature:  # Foolbox, unless it gets an absolute one
        defaults["step_size"] = f"{signature['rel_stepsize'].default:.4g} epsilon"
    return {name: value for name, value in defaults.items() if value is not inspect.Parameter.empty}


def describe(row: Implementation) -> dict[str, Any]:
    """All that the catalogue knows of a row, as plain values; `defaults` is None where the library is not installed.

    `defaults` are the library's own, by norm where the norms differ.
    """
    attack = ATTACKS[row.attack]
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
        "parameters": accepted(row),
        "defaults": defaults,
        "repairs": list(row.repairs),
        "findings": list(row.findings),
        "broken": row.broken,
        "source": attack.source,
    }
