"""Conversion of the options for loading models: separate processes, and queries to servers."""

from collections.abc import Iterable
from typing import Any

from .config_options import FromConfig, Given, in_options

_APART = ("isolate", "time_limit", "memory_limit")
LOADING = FromConfig((*_APART, "request_rate", "price_per_image", "token", "timeout", "request_size"))
APART = FromConfig(_APART)
_DEFAULT_ISOLATE = "auto"


def default_isolate() -> Any:
    """Return the default value of `--isolate` on the command line: models from files run in separate processes."""
    return _DEFAULT_ISOLATE


def set_attack_isolation(values: Given, stated: Any = None) -> None:
    """Set whether attacks from files run in separate processes, before any attack is loaded.

    Invalid values are ignored here, and reported when the options are read.

    Args:
        values: values of the options, by field of `Config`.
        stated: config whose values are used for options that were not given.
    """
    from ..adapters.models.sandbox.isolation import Isolation, set_attack_isolation

    said = {"isolate": None, "time_limit": None, "memory_limit": None}
    said = {word: values.get(word) if values.get(word) is not None else getattr(stated, word, None) for word in said}
    isolate = said["isolate"] or default_isolate()
    set_attack_isolation(Isolation(isolate, said["time_limit"] or Isolation.seconds, said["memory_limit"]))


def loading_settings(values: Given) -> Given:
    """Return the options with the default of `--isolate`, by field of `Config`."""
    set_attack_isolation(values)
    return {**values, "isolate": values.get("isolate") or default_isolate()}


def loading_keywords(values: Given) -> Given:
    """Convert options to keywords of Python functions that load models by name.

    Args:
        values: values of the options, by field of `Config`.

    Returns:
        The keywords. The value of `tell` is a function that prints messages to standard error.
    """
    return {**loading_settings(values), "tell": tell}


def tell(line: str) -> None:
    """Print a note to standard error."""
    from ..report.text.console import print_error

    print_error(line if line.startswith("chosen: ") else f"- {in_options(line)}")


def prestart_processes(isolation: Any, models: Iterable[str]) -> None:
    """Start the separate processes of models in the background, and print notes about them to standard error."""
    from ..adapters.models.sandbox.isolated import describe_isolated, prestart_processes
    from ..report.text.console import print_error

    names = list(models)
    prestart_processes(isolation, names)
    for line in describe_isolated(isolation, names):
        print_error(f"- {line}")
