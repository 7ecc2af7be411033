"""`UserAttack`, which holds the function, class or instance that a user gives as an attack, or loads it from a file."""

import inspect
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ....errors import InvalidInput
from ...models.identity.digest import ModelIdentity, identify_code
from ...user_code_guard import guard_user_code, one_line
from ...user_file import load_object

Form = Literal["function", "torchattacks", "foolbox", "art"]
_BASES: Mapping[tuple[str, str], Form] = {
    ("torchattacks.attack", "Attack"): "torchattacks",
    ("foolbox.attacks.base", "Attack"): "foolbox",
    ("art.attacks.attack", "EvasionAttack"): "art",
}
EXPECTED = "a function (model, inputs, labels, epsilon) -> adv_inputs, or an attack of torchattacks, Foolbox or ART"


@dataclass(frozen=True, eq=False)
class UserAttack:
    """A user's attack.

    Args:
        thing: the function, class or instance.
        form: the library of the attack's class. "function" for a function, and for a class or object that is called
            like a function.
        where: name of the attack in messages, such as "my_attack.py:MyAttack".
        path: the file of the attack. None if the attack was given as a Python object.
        surroundings: context manager that is active while the attack's code runs.
        loaded_as: identity of the attack at the time when its file was loaded. The file may be edited later.
    """

    thing: Any
    form: Form
    where: str
    path: Path | None = None
    surroundings: AbstractContextManager[Any] = field(default_factory=nullcontext)
    loaded_as: ModelIdentity | None = None

    @property
    def identity(self) -> ModelIdentity:
        """Identity of the attack's code and settings."""
        return identify_code(self.thing, self.path) if self.loaded_as is None else self.loaded_as

    @property
    def signature(self) -> Mapping[str, inspect.Parameter]:
        """Parameters of the constructor, or of the function. Empty for an instance."""
        if isinstance(self.thing, type):
            return signature_of(self.thing.__init__, self.where, skip=1)
        return signature_of(self.thing, self.where) if self.form == "function" else {}

    @property
    def call_signature(self) -> Mapping[str, inspect.Parameter]:
        """Parameters of the call that returns the images, for a function or a callable object."""
        if isinstance(self.thing, type):
            return signature_of(self.thing.__call__, self.where, skip=1)
        return signature_of(self.thing, self.where)

    def __reduce__(self) -> Any:
        if self.path is not None:
            return reload_user_attack, (str(self.path), self.where)
        return UserAttack, (self.thing, self.form, self.where)


def reload_user_attack(path: str, where: str) -> UserAttack:
    """Load the attack from its file in a different process. Pickled attacks are restored with this function."""
    given = as_user_attack(*_load(Path(path), where.rpartition(":")[2]), where=where, path=Path(path))
    return replace(given, loaded_as=given.identity)


def _load(path: Path, name: str) -> tuple[Any, AbstractContextManager[Any]]:
    return load_object(path, name, "an attack")


def load_user_attack(path: Path, where: str) -> UserAttack:
    """Load a user's attack from a file.

    Raises:
        InvalidInput: if the object in the file is not an attack.
        DavylampError: see `load_user_object`.
    """
    return reload_user_attack(str(path), where)


def as_user_attack(
    thing: Any, surroundings: AbstractContextManager[Any] | None = None, *, where: str, path: Path | None = None
) -> UserAttack:
    """Convert a function, class or instance to a `UserAttack`.

    Raises:
        InvalidInput: if the object is neither callable nor an attack of a known library, or is an abstract class.
    """
    if isinstance(thing, str) or (not callable(thing) and not _form_of(thing)):
        raise InvalidInput(f"expected {EXPECTED} as {where}, got {one_line(repr(thing))[:80]}")
    form = _form_of(thing) or "function"
    if inspect.isabstract(thing):
        missing = ", ".join(sorted(thing.__abstractmethods__))
        raise InvalidInput(f"expected {where} to be a complete attack, got a class without {missing}")
    return UserAttack(thing, form, where, path, surroundings or nullcontext())


def _form_of(thing: Any) -> Form | None:
    kind = thing if isinstance(thing, type) else type(thing)
    names = [(base.__module__, base.__name__) for base in kind.__mro__]
    return next((_BASES[name] for name in names if name in _BASES), None)


def signature_of(function: Any, where: str, skip: int = 0) -> dict[str, inspect.Parameter]:
    """Return the named parameters of a function, without the first `skip` parameters.

    Raises:
        InvalidInput: if the signature of the function cannot be read.
    """
    try:
        with guard_user_code(where):
            parameters = list(inspect.signature(function).parameters.values())[skip:]
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"cannot read the parameters of {where}: {one_line(error)}") from error
    hidden = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {parameter.name: parameter for parameter in parameters if parameter.kind not in hidden}
