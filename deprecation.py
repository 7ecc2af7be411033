"""Support for old names from before version 1.0.

An old name still works. Its use causes a DeprecationWarning in Python, and a printed line on the command line.
"""

import inspect
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields
from functools import wraps
from typing import Any, TypeVar

# Old name of an option, keyword or TOML key -> new names. The first that a command, function or table has counts; if it
# has the old name, the old name is something else there.
SETTINGS: Mapping[str, tuple[str, ...]] = {
    "against": ("x_axis",),
    "batch": ("batch_images",),
    "beside": ("also",),
    "cost": ("price_per_image",),
    "draws": ("n", "judge_samples"),
    "false_alarms": ("false_positive_rates",),
    "first": ("n0",),
    "mixed": ("all_threat_models",),
    "no_answers": ("no_cache",),
    "pixels": ("eight_bit",),
    "pooled": ("pool_images",),
    "profile": ("neuron_profile",),
    "published": ("with_leaderboard",),
    "rate": ("request_rate",),
    "references": ("with_imported",),
    "repaired": ("fixed",),
    "run": ("probe",),
    "together": ("merge",),
    "trust": ("no_sandbox",),
    "width": ("max_rank_width",),
    "with": ("also",),
}
# Old option -> its new name, where the option differed from the keyword.
OPTIONS: Mapping[str, str] = {"rate": "false_positive_rates"}
# Old command -> the words of the new one.
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "conformance": ("test-attack", "--misbehaving"),
    "contract": ("test-attack",),
    "corrupt-table": ("corruptions", "run"),
    "curve": ("curves",),
    "train": ("fit",),
    "work": ("server", "worker"),
    **{name: ("server", name) for name in ("backup", "fetch", "restore", "submit", "tasks", "users")},
}
# Setting -> old value -> new value.
VALUES: Mapping[str, Mapping[str, str]] = {"examples": {"own": "defended"}}

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])
_PRINT: ContextVar[Callable[[str], object] | None] = ContextVar("print_deprecation", default=None)


def warn_renamed(owner: str, old: str, new: str) -> None:
    """Warn that the attribute `old` of `owner` is now called `new`."""
    warn_replaced(f"{owner}.{old}", f"{owner}.{new}")


def warn_replaced(old: str, new: str) -> None:
    """Warn that an old name is used."""
    _warn(f"{old} is deprecated: use {new}")


def current_name(owner: str, name: str, renamed: Mapping[str, str]) -> str:
    """Return the current name of an attribute of the module `owner`, and warn if `name` is an old name.

    `renamed` maps old names to current ones.
    """
    if name in renamed:
        warn_renamed(owner, name, renamed[name])
    return renamed.get(name, name)


def current_setting(name: str, known: Collection[str]) -> str:
    """Return the current name of an option, keyword or TOML key, if it is in `known`. Otherwise `name` unchanged."""
    if name in known:
        return name
    return next((new for new in SETTINGS.get(name, ()) if new in known), name)


def current_settings(values: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """Replace old names and values in keywords or in a TOML table by the current ones. Warns about each old name.

    Args:
        values: values by name.
        known: current names that are accepted.

    Raises:
        InvalidInput: if a value is given twice, by the old name and by the current name.
    """
    current: dict[str, Any] = {}
    for name, value in values.items():
        new = current_setting(name, known)
        if new != name:
            warn_replaced(name, new)
        if new in current or (new != name and new in values):
            from .errors import InvalidInput  # davylamp.metrics needs no other part

            raise InvalidInput(f"{new} is given twice, also by its old name {name}; give it once")
        current[new] = _current_value(value, new, f"{new}={{}}")
    return current


def current_command(arguments: Sequence[str], commands: Collection[str]) -> list[str]:
    """Replace an old command name at the beginning of command line arguments by the current name.

    The current name, of one or two words, becomes the first argument. An old name causes a warning.
    """
    words = list(arguments)
    if words and words[0] not in commands and words[0] in COMMANDS:
        new = COMMANDS[words[0]]
        warn_replaced(words[0], " ".join(new))
        words[:1] = new
    name = " ".join(words[:2])
    return [name, *words[2:]] if len(words) > 1 and name in commands else words


def current_arguments(arguments: Sequence[str], options: Collection[str]) -> list[str]:
    """Replace old options and old values in the arguments of a command by the current ones. Warns about old ones."""
    known = {_as_setting(option): option for option in options}
    current: list[str] = []
    for place, text in enumerate(arguments):
        if text == "--":
            return [*current, *arguments[place:]]
        option, equals, value = text.partition("=") if text.startswith("--") else ("", "", text)
        old = _as_setting(option)
        name = OPTIONS.get(old, "")
        new = known.get(name if old not in known and name in known else current_setting(old, known), option)
        if new != option:
            warn_replaced(option, new)
            if any(each.partition("=")[0] == new for each in arguments):
                from .errors import InvalidInput

                raise InvalidInput(f"{new} is given twice, also by its old name {option}; give it once")
        before = new if equals else current[-1] if current and not option else ""
        current.append(f"{new}{equals}{_current_value(value, _as_setting(before), f'{before} {{}}')}")
    return current


def takes_old_names(*more: type | str) -> Callable[[_Decorated], _Decorated]:
    """Return a decorator that makes a function or a dataclass accept old names of its keywords.

    Args:
        *more: names of keywords that the function accepts by `**`, and dataclasses whose fields are such keywords.
    """

    def decorate(target: _Decorated) -> _Decorated:
        if isinstance(target, type):
            target.__init__ = decorate(target.__init__)  # type: ignore[misc]
            target.__getattr__ = _read_old_attribute  # type: ignore[attr-defined]
            return target  # type: ignore[return-value]
        known = set(inspect.signature(target).parameters)
        for each in more:
            known |= {each} if isinstance(each, str) else {field.name for field in fields(each)}

        @wraps(target)
        def with_current_names(*arguments: Any, **keywords: Any) -> Any:
            return target(*arguments, **current_settings(keywords, known))

        return with_current_names  # type: ignore[return-value]

    return decorate


@contextmanager
def printed(show: Callable[[str], object]) -> Iterator[None]:
    """Context manager that calls `show` at the first use of each old name, instead of warning."""
    shown: set[str] = set()

    def once(line: str) -> None:
        if line not in shown:
            shown.add(line)
            show(line)

    token = _PRINT.set(once)
    try:
        yield
    finally:
        _PRINT.reset(token)


def _read_old_attribute(self: Any, name: str) -> Any:
    new = current_setting(name, [each.name for each in fields(self)])
    if new == name:
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
    warn_renamed(type(self).__name__, name, new)
    return getattr(self, new)


def _current_value(value: Any, setting: str, form: str) -> Any:
    new = VALUES.get(setting, {}).get(value) if isinstance(value, str) else None
    if new is None:
        return value
    warn_replaced(form.format(value), form.format(new))
    return new


def _as_setting(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")


def _warn(line: str) -> None:
    """Issue a DeprecationWarning at the nearest caller outside davylamp. Inside `printed`, print the line instead."""
    if show := _PRINT.get():
        show(line)
        return
    package, level, frame = __name__.partition(".")[0], 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        level, frame = level + 1, frame.f_back
    warnings.warn(line, DeprecationWarning, stacklevel=level)
