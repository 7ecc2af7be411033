"""Builds an implementation from a user's attack. Its properties are declared by the user, detected, or defaults."""

import inspect
import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from ....errors import InvalidInput
from ...attack import Attack, Implementation, Kind, Knowledge, Parameter
from ...models.identity.source_files import code_state
from ...models.sandbox.isolation import Isolation, attack_isolation
from ...parameters import FOREIGN, PARAMETERS, SUPPLIED
from ...paths import split_file_name
from ...threat_model import NORMS, Norm
from .isolated_attack import IsolatedAttack
from .user_attack import UserAttack, as_user_attack, load_user_attack

_PLACES = ("model", "inputs", "labels")  # passed to a function by position, whatever their names
RADIUS = ("epsilon", *(word for word, meant in FOREIGN.items() if meant == "epsilon"))
# Passed by the drivers, under any library's names.
_FILLED = {
    *("model", "estimator", "classifier", "device", "norm", "targeted", "threat_model", "verbose", "batch_size"),
    *("summary_writer", "tensor_board", "n_classes", "nb_classes", "targets", *RADIUS),
}
_LP: Mapping[Any, Norm] = {math.inf: "linf", 2: "l2", 1: "l1", 0: "l0", "inf": "linf"}
_BALLS: tuple[Norm, ...] = tuple(norm for norm in NORMS if norm != "unrestricted")
_SAYS: Mapping[str, Sequence[Any]] = {
    "kind": get_args(Kind),
    "knowledge": get_args(Knowledge),
    "targeted": ("no", "yes", "only", True, False),
    "failure": ("input", "last"),
    "order": ("kept", "content"),
    "alone": (True, False),
}


def as_implementation(thing: Any, *, name: str = "", **said: Any) -> Implementation:
    """Build an implementation from a user's attack, for run_attack, compare and evaluate.

    davylamp detects the norm, the parameters, and whether the attack accepts a radius, a target or a seed. Parameters
    may have canonical names or those of a supported library. Any other argument whose default is a number, string or
    bool becomes a parameter of this implementation only. The user declares all other properties, as attributes of the
    function or class, or as keywords of this function. A declared property takes precedence over a detected one.

    Args:
        thing: the attack. It is a function `(model, inputs, labels, ...) -> adv_inputs`, which may also have the
            arguments `epsilon`, `norm`, `targets`, `seed` and further parameters, or a class or object that is called
            like this. Or it is a class or instance of torchattacks' `Attack`, Foolbox's `Attack` or ART's
            `EvasionAttack`. An instance is copied and not changed.
        name: name of the attack. If empty, the name of the function or class.
        **said: declared properties: `norm` or `norms`, `kind` ("fixed-budget", "minimum-norm"), `knowledge`
            ("white-box", "score-based", "decision-based"), `targeted`, `random` (random generators to seed), `failure`,
            `order`, `alone`, `title`, `source`, and `canonical` (name of the canonical attack that is implemented, such
            as "pgd"). See `Implementation`.

    Raises:
        InvalidInput: if `thing` is not an attack, or a keyword is unknown or has a wrong value.
    """
    called = name or getattr(thing, "__name__", type(thing).__name__)
    given = as_user_attack(thing, where=f"user:{called}")
    return _row(given, "user", called, said)


def implementation_from_file(name: str) -> Implementation:
    """Load the implementation "path/to/file.py:NAME" from a user's file.

    A second call loads the file again only if the file, or a module that it imports from its folder, has changed.

    Raises:
        Unavailable: if the file does not exist.
        UnknownName: if the file has no object `NAME`.
        ModelFailed: if the file raises an error.
        InvalidInput: if the object is not an attack.
    """
    path = split_file_name(name)[0].resolve()
    return _from_file(name, path, code_state(path), attack_isolation())


@lru_cache(maxsize=64)
def _from_file(name: str, path: Path, state: Any, isolation: Isolation | None) -> Implementation:
    del state  # a different state means different code
    if isolation is None:
        return row_in_file(path, name)
    from .attack_process import isolated_implementation  # imports heavy modules

    return isolated_implementation(name, path, isolation)


def row_in_file(path: Path, name: str) -> Implementation:
    """Load a user's attack from a file in this process, and build its implementation.

    Args:
        path: path of the file.
        name: name of the attack, "path/to/file.py:NAME", which is also used in error messages.

    Raises:
        DavylampError: see `implementation_from_file`.
    """
    file, _, called = name.rpartition(":")
    return _row(load_user_attack(path, name), file, called, {})


def declared_epsilon(row: Implementation) -> float | None:
    """Return the radius that is set in an attack instance. None for a class, a function, or an instance without one."""
    if isinstance(row.given, IsolatedAttack):
        return row.given.epsilon
    thing = row.given.thing if isinstance(row.given, UserAttack) else None
    if thing is None or isinstance(thing, type) or row.given.form == "function":
        return None
    radius = next((getattr(thing, word) for word in RADIUS if hasattr(thing, word)), None)
    return float(radius) if isinstance(radius, (int, float)) and radius > 0 else None


def declared_defaults(row: Implementation) -> dict[str, Any]:
    """Return the default values of a user's attack by parameter name."""
    if isinstance(row.given, IsolatedAttack):
        return dict(row.given.defaults)
    words = {word: each.default for word, each in {**_settings(row.given), **_call(row.given)}.items()}
    defaults = {name: words.get(word) for name, word in row.params.items() if name not in SUPPLIED}
    return {name: value for name, value in defaults.items() if type(value) in (bool, int, float, str)}


class _Words(NamedTuple):
    params: dict[str, str]
    more: dict[str, Parameter]


def _row(given: UserAttack, library: str, name: str, said: Mapping[str, Any]) -> Implementation:
    says = _stated(given, said)
    settings = _settings(given)
    words = _read_words(given, settings)
    roles = {word for word in settings if word in _FILLED} | (set(_call(given)) & _FILLED)
    norms, known = _norms(given, says, settings)
    kind = says.get("kind") or _kind(given, roles)
    assumed = [] if "knowledge" in says else ['white-box (to change this: `knowledge = "score-based"`)']
    if not known:
        assumed.append('any norm (to declare it: `norm = "l2"`)')
    attack = Attack(
        name,
        says.get("title") or name,
        kind,
        says.get("knowledge", "white-box"),
        says.get("source") or _first_line(given),
    )
    targeted = says.get("targeted", _targeted(given, roles))
    targeted = ("yes" if targeted else "no") if isinstance(targeted, bool) else targeted
    return Implementation(
        attack=name,
        library=library,
        classes=dict.fromkeys(norms, given.where),
        params=words.params,
        targeted=targeted,
        random=tuple(says.get("random", ("python", "numpy", "torch"))),
        alone=says.get("alone", False),
        order=says.get("order", "content"),
        failure=says.get("failure", "last" if kind == "fixed-budget" else "input"),
        described=attack,
        given=given,
        more=words.more,
        says_norm=known,
        assumed=tuple(assumed),
        canonical=says.get("canonical", ""),
    )


def _stated(given: UserAttack, said: Mapping[str, Any]) -> dict[str, Any]:
    """Check the properties that the user declares by keywords and attributes, and return them by name."""
    texts = ("norm", "norms", "random", "title", "source", "canonical")
    for word in said:
        if word not in (*_SAYS, *texts):
            raise InvalidInput(
                f"{given.where} declares the unknown property {word}; the properties are {', '.join((*_SAYS, *texts))}"
            )
    stated = {word: value for word in (*_SAYS, *texts) if (value := _attribute(given, word)) is not None} | dict(said)
    for word, choices in _SAYS.items():
        if word in stated and stated[word] not in choices:
            raise InvalidInput(
                f"expected {word} of {given.where} as {' or '.join(map(str, choices))}, got {stated[word]!r}"
            )
    if "norm" in stated or "norms" in stated:
        norms = stated.pop("norms", None) or stated.pop("norm")
        stated["norms"] = tuple(
            _norm(norm, given) for norm in (tuple(norms) if isinstance(norms, (list, tuple)) else (norms,))
        )
        stated.pop("norm", None)
    if not isinstance(stated.get("canonical", ""), str):
        raise InvalidInput(
            f"expected `canonical` of {given.where} as the name of a canonical attack, got {stated['canonical']!r}"
        )
    if isinstance(stated.get("random"), str):
        stated["random"] = (stated["random"],)
    return stated


def _attribute(given: UserAttack, word: str) -> Any:
    """Return a property that the user's function or class declares as an attribute.

    Attributes inherited from a library's class are ignored.
    """
    thing = given.thing
    if not isinstance(thing, type) and given.form == "function":
        return getattr(thing, word, None)
    kind = thing if isinstance(thing, type) else type(thing)
    for base in kind.__mro__:
        if base.__module__.partition(".")[0] in ("torchattacks", "foolbox", "art", "builtins", "abc"):
            return None
        value = vars(base).get(word)
        if value is not None and not callable(value) and not isinstance(value, property):
            return value
    return None


def _norm(value: Any, given: UserAttack) -> Norm:
    norm = _LP.get(value, value.lower() if isinstance(value, str) else value)
    if norm not in NORMS:
        raise InvalidInput(f"expected the norm of {given.where} as one of {', '.join(NORMS)}, got {value!r}")
    return norm


def _settings(given: UserAttack) -> dict[str, inspect.Parameter]:
    """Return the parameters of the constructor with their defaults. For an instance, its current values."""
    thing = given.thing
    if given.form == "function" and not isinstance(thing, type):
        return dict(list(given.signature.items())[3:])
    if isinstance(thing, type):
        return dict(given.signature)
    signature = UserAttack(type(thing), given.form, given.where).signature
    return {
        word: each.replace(default=getattr(thing, word), kind=inspect.Parameter.KEYWORD_ONLY)
        for word, each in signature.items()
        if hasattr(thing, word)
    }


def _call(given: UserAttack) -> dict[str, inspect.Parameter]:
    """Return the parameters with which the attack is called, after the model, the images and the labels."""
    if given.form != "function":
        return {}
    signature = list(given.call_signature.items())
    names = [name for name, _ in signature]
    misplaced = [name for place, name in enumerate(_PLACES) if name in names and names.index(name) != place]
    if len(signature) < len(_PLACES) or misplaced:
        advice = f"; arguments are passed by position, so move {misplaced[0]} to its position" if misplaced else ""
        raise InvalidInput(
            f"expected {given.where} with the arguments (model, inputs, labels, epsilon, ...), "
            f"got ({', '.join(names)}){advice}"
        )
    return dict(signature[len(_PLACES) :])


def _read_words(given: UserAttack, settings: Mapping[str, inspect.Parameter]) -> _Words:
    """Return the attack's parameter name for each canonical parameter, and the parameters that only this attack has."""
    words = _Words({}, {})
    for word, parameter in {**settings, **_call(given)}.items():
        if word in _FILLED:
            continue
        meant = FOREIGN.get(word, word)
        default = parameter.default
        if meant in (*PARAMETERS, *SUPPLIED) and meant not in (*words.params, "precision"):
            words.params[meant] = word
        elif type(default) in (bool, int, float, str):
            bounds = (0, 1) if type(default) is bool else (-math.inf, math.inf)
            words.more[word] = Parameter(type(default), *bounds, f"of {given.where}, {default!r} by default")
            words.params[word] = word
        elif default is inspect.Parameter.empty:
            raise InvalidInput(f"expected a default for parameter {word} of {given.where}, got none")
    return words


def _norms(
    given: UserAttack, says: Mapping[str, Any], settings: Mapping[str, inspect.Parameter]
) -> tuple[tuple[Norm, ...], bool]:
    """Return the norms that the attack supports, and whether they are known.

    Norms are known if they are declared or detected. Otherwise they are assumed.
    """
    if "norms" in says:
        return says["norms"], True
    thing = given.thing
    power = getattr(getattr(thing, "distance", None), "p", None) if given.form == "foolbox" else None
    if power in _LP:
        return (_LP[power],), True
    if "norm" in {**settings, **_call(given)}:
        default = {**settings, **_call(given)}["norm"].default
        first = _LP.get(default, str(default).lower())
        return tuple(sorted(_BALLS, key=lambda norm: norm != first)), True
    if given.form == "torchattacks" and (
        measure := re.search(r"Distance Measure *: *(\w+)", inspect.getdoc(thing) or "")
    ):
        return (_norm(measure.group(1), given),), True
    kind = getattr(thing, "__name__", type(thing).__name__).lower()
    named: list[Norm] = [norm for norm in NORMS if norm in kind]
    if len(named) == 1:
        return (named[0],), True
    return _BALLS, False


def _kind(given: UserAttack, roles: set[str]) -> Kind:
    if given.form == "foolbox":
        kind = given.thing if isinstance(given.thing, type) else type(given.thing)
        return "minimum-norm" if any(base.__name__ == "MinimizationAttack" for base in kind.__mro__) else "fixed-budget"
    return "fixed-budget" if roles & {*RADIUS, "threat_model"} else "minimum-norm"


def _targeted(given: UserAttack, roles: set[str]) -> Literal["no", "yes"]:
    if given.form == "foolbox":
        return "yes"
    if given.form == "torchattacks":
        instance = given.thing if not isinstance(given.thing, type) else _instance(given)
        return "yes" if "targeted" in getattr(instance, "supported_mode", ()) else "no"
    return "yes" if roles & {"targets", "targeted"} else "no"


def _instance(given: UserAttack) -> Any:
    """Return an instance of a torchattacks class, to test whether it supports targets. None if construction fails."""
    from torch import nn

    try:
        with given.surroundings:
            return given.thing(nn.Linear(1, 1))
    except Exception:
        return None


def _first_line(given: UserAttack) -> str:
    text = inspect.getdoc(given.thing) if isinstance(given.thing, type) or given.form == "function" else ""
    return (text or given.where).strip().splitlines()[0]
