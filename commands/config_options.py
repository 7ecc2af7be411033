"""Builds the options of commands, with their help, from the fields of the dataclasses `Config` and `AttackChoice`.

Name, type, range, default and help of such an option are defined only in the dataclass, which is also used for TOML
files and for Python. The dataclass checks the values. Its error messages are changed to name the option.
"""

import copy
import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand
from typer.models import ArgumentInfo, OptionInfo

from ..deprecation import current_arguments
from ..engine.plan.config import AttackChoice, Config
from ..engine.plan.schema import Option, option_of_field
from ..errors import DavylampError, UnknownName, close_names
from .completion import completer_of
from .options import split_list, split_names

Given = dict[str, Any]
# Panels of the help after the first. Fields that are in none of them are in the first.
_PANELS = {
    "Attacks": (
        *("target", "parameters", "defaults", "libraries", "fixed", "max_queries", "surrogate", "transfer"),
        *("examples", "fit_data", "fit_limit", "judge_samples", "eot", "order", "stop_when_fooled"),
    ),
    "Images and metrics": ("images", "measures", "neuron_profile", "hierarchy", "eight_bit", "keep_images"),
    "Execution": ("batch_size", "shard_size", "precision", "isolate", "time_limit", "memory_limit"),
    "Remote models": ("request_rate", "price_per_image", "token", "timeout", "request_size", "no_cache"),
}
_PANEL_OF = {name: panel for panel, names in _PANELS.items() for name in names}
_OF_FILES = ("models", "surrogate", "measures")  # may contain file names, which may have commas
_NUMBER = re.compile(r"[+-]?[0-9]{1,30}")
_METAVARS = {int: "N", float: "X", Path: "PATH"}
_TYPED: ContextVar[Mapping[str, str]] = ContextVar("typed")  # options of the current command, by keyword
_CALL = re.compile(r"`([a-z_]+)\(([a-z_]+)='([\w-]*)'\)`")  # a call in backticks, with one keyword
# A keyword in backticks in a message, alone or with a value or a quoted value, but no other text, such as a path.
_KEYWORD = re.compile(r"`(\w+)(?:=([^`]*))?`|(?<![\w/.:-])(\w+)=('[\w-]*')")


@dataclass(frozen=True)
class Keyword:
    """Mark in an annotation: the option has a different name in Python."""

    name: str


@dataclass(frozen=True)
class FromConfig:
    """Mark in an annotation: the parameter of a command stands for several options, one for each field of a dataclass.

    The command's function receives a dict with the values that the user gave, by field.

    Args:
        names: fields that become options. Empty for all fields for which the command has no other parameter.
        record: the dataclass: `Config`, or `AttackChoice` for norm, radius, target and parameters.
        several: fields whose options can be repeated.
    """

    names: tuple[str, ...] = ()
    record: type = Config
    several: tuple[str, ...] = ()


class Command(TyperCommand):
    """Typer command that accepts old names of options, and suggests similar values after an invalid choice."""

    def make_context(self, *arguments: Any, **more: Any) -> Any:
        """Parse the arguments into a Click context. An invalid choice raises an error with suggestions."""
        try:
            return super().make_context(*arguments, **more)
        except typer.BadParameter as error:
            error.message = suggest_choice(error.message)
            raise

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, after old names of options have been replaced by current names."""
        return super().parse_args(
            ctx, current_arguments(args, [each for option in self.params for each in option.opts])
        )


def suggest_choice(message: str) -> str:
    """Return Typer's message about an invalid choice, with similar valid choices added."""
    text = message.removeprefix("Value error, ")
    match = re.fullmatch(r"'(.*)' is not one of (.*)\.", text)
    if match is None:
        return text
    close = close_names(match[1], re.findall(r"'([^']*)'", match[2]))
    return f"{text[:-1]}; did you mean {' or '.join(close)}?" if close else text


def with_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with a signature for Typer, in which each option is a parameter of its own.

    Two kinds of parameters of `function` are replaced by one option for each field. A parameter marked `FromConfig`
    receives a dict of the values that the user gave. A parameter whose type is a dataclass of options receives an
    instance of the dataclass.
    """
    declared = inspect.signature(function).parameters
    marks = {name: _mark_of(parameter.annotation) for name, parameter in declared.items()}
    taken = {name for mark in marks.values() if isinstance(mark, FromConfig) for name in mark.names}
    groups: dict[str, dict[str, inspect.Parameter]] = {}
    parameters: dict[str, inspect.Parameter] = {}
    for name, parameter in declared.items():
        mark = marks[name]
        if isinstance(mark, FromConfig):
            groups[name] = _options_of(mark, taken)
        elif mark is not None:
            hints = get_type_hints(mark, include_extras=True)
            groups[name] = {each.name: _parameter(each.name, hints[each.name], each.default) for each in fields(mark)}
        added = groups.get(name, {name: parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)})
        if twice := added.keys() & parameters.keys():
            raise ValueError(f"{function.__name__} defines {', '.join(sorted(twice))} twice")
        parameters |= added
    typed = dict(_typed(name, parameter) for name, parameter in parameters.items())
    parameters = {name: _shown(name, parameter) for name, parameter in parameters.items()}

    def command(**values: Any) -> Any:
        for name, inside in groups.items():
            given, mark = {option: values.pop(option) for option in inside}, marks[name]
            values[name] = read_given(given, mark.record) if isinstance(mark, FromConfig) else mark(**given)
        with named_by_option(typed):
            return function(**values)

    command.__doc__, command.__name__ = function.__doc__, function.__name__
    command.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    command.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
    return command


def read_given(values: Given, record: type = Config) -> Given:
    """Return the values that the user gave, by field.

    Lists are split at commas, and texts are converted to numbers. Values are not checked.
    """
    given = {}
    for name, value in values.items():
        if value is None or value is False:
            continue
        number = _number_in(_hints(record)[name])
        if isinstance(value, list) and name != "parameters":
            split = split_names if name in _OF_FILES else split_list
            given[name] = [_number(text, number) for text in split(option_of(name), value) or []]
        else:
            given[name] = _number(value, number)
    return given


def keywords_of(options: Any, given: Collection[str]) -> Given:
    """Return the values in a dataclass of options that the user gave, by their keyword in Python."""
    hints = get_type_hints(type(options), include_extras=True)
    return {_keyword_of(name, hints[name]): value for name, value in vars(options).items() if name in given}


def option_of(name: str) -> str:
    """Return the option for a field of `Config`, such as "--seed" for "seeds"."""
    option = next((each for record in (Config, AttackChoice) if (each := _options(record).get(name))), None)
    return f"--{option.name if option is not None and option.name else _dashed(name)}"


@contextmanager
def named_by_option(typed: Mapping[str, str]) -> Iterator[None]:
    """Context manager that makes error messages name command-line options instead of config keys or Python keywords.

    Args:
        typed: the command's options, by the corresponding Python keyword.
    """
    token = _TYPED.set(typed)
    try:
        yield
    except DavylampError as error:
        if error.path and str(error).startswith(
            (error.path, f"unknown {error.path}")
        ):  # not in messages that start with a file name
            key = error.path.partition("[")[0].partition(".")[0]
            option = _option_typed(key) or option_of(key)
            shown = option.removeprefix("--") if isinstance(error, UnknownName) else option
            error.args = (str(error).replace(error.path, shown, 1),)
        error.args = (in_options(str(error)),)
        raise
    finally:
        _TYPED.reset(token)


def in_options(message: str) -> str:
    """Replace Python keywords in a message by the options of the current command, such as "`budget`" by "--epsilon".

    A Python call such as "`table(by='models')`" is replaced by the command "`davylamp table FOLDER --by models`".
    """

    def option(match: re.Match[str]) -> str:
        name, value = match[1] or match[3], (match[2] or match[4] or "").strip("'")
        typed = _option_typed(name)
        if match[1] and typed is None and (name in _options(Config) or name in _options(AttackChoice)):
            typed = option_of(name)
        if typed is None:
            return match[0]
        return f"{typed} {value}".rstrip()

    def command(match: re.Match[str]) -> str:
        return f"`davylamp {_dashed(match[1])} FOLDER --{_dashed(match[2])} {match[3]}`"

    return _KEYWORD.sub(option, _CALL.sub(command, message))


def _option_typed(name: str) -> str | None:
    """Return the option of the current command for a Python keyword. A repeatable option has a singular name."""
    typed = _TYPED.get({})
    return typed.get(name) or typed.get(name.removesuffix("s"))


def _typed(name: str, parameter: inspect.Parameter) -> tuple[str, str]:
    """Return the Python keyword and the option name of a parameter."""
    marks, keyword = getattr(parameter.annotation, "__metadata__", ()), _keyword_of(name, parameter.annotation)
    info = next((mark for mark in marks if isinstance(mark, OptionInfo)), None)
    if info is None:
        return keyword, name.upper()
    names = (info.default, *(info.param_decls or ()))  # Typer treats the first as the default until registration
    return keyword, next((str(each) for each in names if str(each).startswith("--")), f"--{_dashed(name)}")


def _keyword_of(name: str, annotation: Any) -> str:
    marks = getattr(annotation, "__metadata__", ())
    return next((mark.name for mark in marks if isinstance(mark, Keyword)), name)


def _dashed(name: str) -> str:
    return name.replace("_", "-")


@cache
def _hints(record: type) -> dict[str, Any]:
    return get_type_hints(record, include_extras=True)


@cache
def _options(record: type) -> dict[str, Option]:
    marked = {name: option_of_field(hint) for name, hint in _hints(record).items()}
    return {name: option for name, option in marked.items() if option is not None}


def _options_of(mark: FromConfig, taken: set[str]) -> dict[str, inspect.Parameter]:
    known, shown = _options(mark.record), {}
    for name in mark.names or [each for each in known if each not in taken]:
        option, kind = known[name], _plain_type(_hints(mark.record)[name])
        several = get_origin(kind) in (tuple, dict) or _is_mapping(kind) or name in mark.several
        decls = [option_of(name), *([f"--{option.also}"] if option.also else [])]
        info = typer.Option(
            *decls,
            help=f"{option.help} (repeatable)" if several else option.help,
            rich_help_panel=_PANEL_OF.get(name),
            metavar=None if kind is bool else _METAVARS.get(_number_in(kind), "TEXT"),
        )
        typed: Any = bool if kind is bool else (list[str] if several else str) | None
        shown[name] = _parameter(name, Annotated[typed, info], False if kind is bool else None)
    return shown


def _number_in(hint: Any) -> Any:
    """Return the type of the numbers in a field, which may be a list. None if the field has no numbers."""
    kind = _plain_type(hint)
    inside = [_plain_type(each) for each in get_args(kind)] if get_origin(kind) is tuple else [kind]
    return inside[0] if inside[0] in (int, float) else None


def _number(text: Any, kind: Any) -> Any:
    """Convert a text to a number. A text that is not a number is returned unchanged, and refused by the dataclass."""
    if kind is None or not isinstance(text, str):
        return text
    if _NUMBER.fullmatch(text.strip()):
        return int(text)
    try:
        return float(text)
    except ValueError:
        return text


def _shown(name: str, parameter: inspect.Parameter) -> inspect.Parameter:
    """Return a command's parameter with placeholder text for its value, its possible values, and shell completion."""
    marks = getattr(parameter.annotation, "__metadata__", ())
    info = next((copy.copy(mark) for mark in marks if isinstance(mark, (OptionInfo, ArgumentInfo))), None)
    if info is None:
        return parameter
    kind = get_args(parameter.annotation)[0]
    plain = _plain_type(kind)
    plain = get_args(plain)[0] if get_origin(plain) is list else plain
    if isinstance(info, OptionInfo) and info.metavar is None:
        info.metavar = "A B" if get_origin(plain) is tuple else "" if plain is bool else _METAVARS.get(plain, "TEXT")
    if choices := _choices(plain):
        info.help = f"{info.help} ({', '.join(choices)})"
        info.show_choices = isinstance(info, OptionInfo) and info.show_choices
    elif info.autocompletion is None:
        info.autocompletion = completer_of(name)
    return parameter.replace(annotation=Annotated[kind, info])


def _choices(kind: Any) -> tuple[str, ...]:
    """Return the values of an Enum or a Literal. Empty for other types."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return tuple(str(each.value) for each in kind)
    return get_args(kind) if get_origin(kind) is Literal else ()


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _mark_of(annotation: Any) -> Any:
    """Return the `FromConfig` mark or the dataclass of options in an annotation. None for a single option."""
    marks = [mark for mark in getattr(annotation, "__metadata__", ()) if isinstance(mark, FromConfig)]
    return marks[0] if marks else annotation if is_dataclass(annotation) else None


def _is_mapping(kind: Any) -> bool:
    return getattr(get_origin(kind), "__name__", "") == "Mapping"


def _plain_type(hint: Any) -> Any:
    """Return a type hint without `Annotated` and without `None`."""
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if get_origin(hint) in (Union, UnionType):
        return _plain_type(next(each for each in get_args(hint) if each is not NoneType))
    return hint
