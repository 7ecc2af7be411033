"""How the help of every command shows its options: their panel, what their values are called, what completes them."""

import copy
import inspect
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

from typer.models import ArgumentInfo, OptionInfo

from .known_names import completer_of

PANELS = {
    "Model": (
        *("model", "models", "resize", "crop", "mean", "std", "interpolation", "labels", "outputs", "defence"),
        *("surrogate", "original", "name", "datatype", "detector"),
    ),
    "Images": (
        *("data", "limit", "images", "pixels", "hierarchy", "profile", "fit_data", "fit_limit", "clean", "validation"),
        *("held_out", "corruption", "severity", "sequence", "baseline"),
    ),
    "Attack": (
        *("attack", "attacks", "beside", "libraries", "library", "repaired", "norm", "epsilon", "target", "steps"),
        *("step_size", "random_start", "restarts", "confidence", "param", "attack_param", "defaults", "max_queries"),
        *("queries", "draws", "eot", "transfer", "examples", "seeds", "seed", "budget", "threshold", "plant"),
        *("first_norm", "quick", "preset", "order", "stop_when_fooled"),
    ),
    "What is measured and kept": ("measures", "metric", "keep_images", "shard_size", "bootstrap", "false_alarms"),
    "Where it runs": (
        *("device", "batch_size", "precision", "executor", "workers", "part", "address", "isolate", "time_limit"),
        *("memory_limit", "retry_failed", "trust_unknown", "amp"),
    ),
    "A model behind a server": ("rate", "cost", "token", "timeout", "request_size", "no_answers"),
    "A place among others": ("against", "adaptive", "width", "batch"),
    "Output": (
        *(
            "out",
            "columns",
            "wide",
            "verbose",
            "as_csv",
            "as_json",
            "as_markdown",
            "as_latex",
            "strict",
            "print_config",
        ),
        *("items", "sensitivity", "stability"),
    ),
}
_PANEL_OF = {name: panel for panel, names in PANELS.items() for name in names}
_FEW = 8  # options that need no panels
_WORDS = {int: "N", float: "X", Path: "PATH"}


def describe(parameters: dict[str, inspect.Parameter]) -> dict[str, inspect.Parameter]:
    """The parameters of a command with panel, name of the value and completion in their options."""
    grouped = sum(any(True for _ in _options(each)) for each in parameters.values()) > _FEW
    described = {name: _described(name, each, grouped=grouped) for name, each in parameters.items()}
    if not grouped:
        return described
    places = {None: -1} | {panel: place for place, panel in enumerate(PANELS)}
    return dict(sorted(described.items(), key=lambda item: places.get(_panel(item[1]), len(places))))


def _panel(parameter: inspect.Parameter) -> str | None:
    info = next(_options(parameter), None)
    return info.rich_help_panel if isinstance(info, OptionInfo) else None


def _described(name: str, parameter: inspect.Parameter, *, grouped: bool) -> inspect.Parameter:
    info = next(_options(parameter), None)
    if info is None:
        return parameter
    info = copy.copy(info)
    kind = get_args(parameter.annotation)[0]
    if isinstance(info, OptionInfo):
        if grouped and info.rich_help_panel is None:
            info.rich_help_panel = _PANEL_OF.get(name)
        info.metavar = _value_of(kind) if info.metavar is None else info.metavar
    choices = _choices(kind)
    if choices and isinstance(info, OptionInfo):
        info.help = f"{info.help} ({', '.join(choices)})"
    elif choices:
        info.help, info.show_choices = f"{info.help} ({', '.join(choices)})", False
    elif info.autocompletion is None:
        info.autocompletion = completer_of(name)
    return parameter.replace(annotation=Annotated[kind, info])


def _options(parameter: inspect.Parameter) -> Iterator[Any]:
    for mark in getattr(parameter.annotation, "__metadata__", ()):
        if isinstance(mark, (OptionInfo, ArgumentInfo)):
            yield mark


def _value_of(kind: Any) -> str:
    """What a value is called: short, as the column is narrow; "" for a flag, which Typer would call <bool>."""
    plain = _plain(kind)
    if get_origin(plain) is tuple:
        return "A B"
    return "" if plain is bool else _WORDS.get(plain, "TEXT")


def _choices(kind: Any) -> list[str]:
    plain = _plain(kind)
    return [str(each.value) for each in plain] if isinstance(plain, type) and issubclass(plain, Enum) else []


def _plain(kind: Any) -> Any:
    """A type without None and without the list around it."""
    inside = [each for each in get_args(kind) if each is not type(None)]
    if get_origin(kind) is list or (inside and len(inside) < len(get_args(kind))):
        return _plain(inside[0])
    return kind
