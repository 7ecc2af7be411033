"""Options that are fields of the record of an evaluation, and options in groups; read off when their command is run.

A command is listed without them: `davylamp --help` loads neither torch nor the engine.
"""

import inspect
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand

from ..errors import DavylampError, UnknownName
from .describing import describe
from .options import read_whole, split_list, split_models, split_names
from .source_options import options_in_source
from .synonyms import with_usual_names

Given = dict[str, Any]
COMPLETING = "_DAVYLAMP_COMPLETE"  # set by a shell that asks what could come next


@dataclass(frozen=True)
class FromConfig:
    """Marks a parameter that stands for options of `Config`: it gets their values by field.

    Args:
        names: the fields; empty: all that no other parameter of the command has.
    """

    names: tuple[str, ...] = ()


class DerivedCommand(TyperCommand):
    """A command that gets its options when it is run or explained, and takes each under its usual names."""

    def make_context(self, info_name: str | None, args: list[str], *arguments: Any, **more: Any) -> Any:
        """The context of the complete command."""
        app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        app.command(self.name, epilog=self.epilog)(complete(self.callback.unfinished))  # type: ignore[union-attr]
        command = typer.main.get_command(app)
        try:
            return command.make_context(info_name, with_usual_names(args, command), *arguments, **more)
        except typer.BadParameter as error:
            error.message = say_choice(error.message)
            raise


def say_choice(message: str) -> str:
    """Typer's complaint about a value that is none of a parameter's, as davylamp names what is near: "did you mean"."""
    said = message.removeprefix("Value error, ")
    match = re.fullmatch(r"'(.*)' is not one of (.*)\.", said)
    if match is None:
        return said
    close = get_close_matches(match[1], re.findall(r"'([^']*)'", match[2]))
    return f"{said[:-1]}; did you mean {' or '.join(close)}?" if close else said


def unfinished(function: Callable[..., Any]) -> Callable[[], None]:
    """What `DerivedCommand` is registered with: name and help of a function whose options are still to be read off."""

    def listed() -> None:
        """Never called."""

    listed.__doc__, listed.__name__ = function.__doc__, function.__name__
    listed.unfinished = function  # type: ignore[attr-defined]
    return listed


def complete(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with an option in its signature for each field of its groups.

    A parameter marked `FromConfig` gets a dict of its fields' values; one whose type is a dataclass gets an instance.
    """
    declared = inspect.signature(function).parameters
    marks = {name: _mark_of(parameter.annotation) for name, parameter in declared.items()}
    taken = {field for mark in marks.values() if isinstance(mark, FromConfig) for field in mark.names}
    groups: dict[str, dict[str, inspect.Parameter]] = {}
    parameters: dict[str, inspect.Parameter] = {}
    for name, parameter in declared.items():
        mark = marks[name]
        if isinstance(mark, FromConfig):
            groups[name] = _options_of_config(mark.names or None, taken)
        elif mark is not None:
            hints = get_type_hints(mark, include_extras=True)
            groups[name] = {each.name: _parameter(each.name, hints[each.name], each.default) for each in fields(mark)}
        added = groups.get(name, {name: parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)})
        if twice := added.keys() & parameters.keys():
            raise ValueError(f"{function.__name__} has {', '.join(sorted(twice))} twice")
        parameters |= added

    parameters = describe(parameters)

    def command(**values: Any) -> Any:
        for name, inside in groups.items():
            several = {option: values.pop(option) for option in inside}
            values[name] = several if isinstance(marks[name], FromConfig) else marks[name](**several)
        return function(**values)

    command.__doc__, command.__name__ = function.__doc__, function.__name__
    command.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    command.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
    return command


def read_settings(values: Mapping[str, Any]) -> Given:
    """The fields of `Config` that options gave, checked; a mistake is named by the option."""
    from ..engine.plan.config import Config
    from ..engine.plan.schema import check_fields

    models: Any = lambda _, texts: split_models(texts)  # noqa: E731
    readers = {"models": models, "surrogate": models, "measures": split_names}
    given = {}
    for name, value in values.items():
        if value is None or value is False:
            continue
        option = option_of(name)
        whole = isinstance(value, list) and int in map(_plain_type, get_args(_plain_type(_hints()[name])))
        read = readers.get(name) or (read_whole if whole else split_list)
        given[name] = read(option, value) if isinstance(value, list) else value
    with named_by_option():
        return check_fields(Config, given)


def option_of(name: str) -> str:
    """The option of a field of `Config`: "--seed" of "seeds"."""
    from ..engine.plan.schema import option_of_field

    option = option_of_field(_hints()[name])
    return f"--{option.name if option is not None and option.name else name.replace('_', '-')}"


@contextmanager
def named_by_option(**others: str) -> Iterator[None]:
    """A mistake in a value names the option that it was typed for, not the key that it would have in a file.

    Args:
        **others: options by field, where a command calls them otherwise than `Config` does.
    """
    try:
        yield
    except DavylampError as error:
        path = getattr(error, "path", "")
        if path:
            key = path.partition("[")[0].partition(".")[0]
            option = others.get(key) or (option_of(key) if key in _hints() else f"--{key.replace('_', '-')}")
            shown = option.removeprefix("--") if isinstance(error, UnknownName) else option
            error.args = (str(error).replace(path, shown, 1),)
        raise


def _hints() -> dict[str, Any]:
    from ..engine.plan.config import Config

    return get_type_hints(Config, include_extras=True)


def _options_of_config(names: tuple[str, ...] | None, taken: set[str]) -> dict[str, inspect.Parameter]:
    """Parameters for fields of `Config` that have an option; None: for those that are not taken."""
    if COMPLETING in os.environ:
        listed = {name: _parameter(name, *each) for name, each in options_in_source().items()}
        return {name: listed[name] for name in names or listed if name not in taken or names}
    from ..engine.plan.config import Config
    from ..engine.plan.schema import option_of_field

    options = {}
    for name in names or [field.name for field in fields(Config) if field.name not in taken]:
        option = option_of_field(_hints()[name])
        if option is None:
            continue
        kind = _plain_type(_hints()[name])
        several = get_origin(kind) is tuple
        shown: Any = list[str] if several else kind if kind in (bool, int, float) else str
        help_text = f"{option.help} (repeatable)" if several else option.help
        asked = typer.Option(option_of(name), help=help_text)
        annotation = Annotated[bool, asked] if kind is bool else Annotated[shown | None, asked]
        options[name] = _parameter(name, annotation, False if kind is bool else None)
    return options


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _mark_of(annotation: Any) -> Any:
    """What makes a parameter a group: its `FromConfig`, or the dataclass that it is of; None: it is an option."""
    marks = [mark for mark in getattr(annotation, "__metadata__", ()) if isinstance(mark, FromConfig)]
    return marks[0] if marks else annotation if is_dataclass(annotation) else None


def _plain_type(hint: Any) -> Any:
    """A type hint without its limits and without None."""
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if get_origin(hint) in (Union, UnionType):
        return _plain_type(next(each for each in get_args(hint) if each is not NoneType))
    return hint
