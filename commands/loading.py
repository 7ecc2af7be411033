"""Options for loading models: isolation, and queries to servers."""

from collections.abc import Iterable
from typing import Any

from .config_options import FromConfig, Given, in_options

_APART = ("isolate", "time_limit", "memory_limit")
LOADING = FromConfig((*_APART, "request_rate", "price_per_image", "token", "timeout", "request_size"))
APART = FromConfig(_APART)
_DEFAULT_ISOLATE = "auto"


def default_isolate() -> Any:
    """Return the default of `--isolate`, with which models from files run in a separate process."""
    return _DEFAULT_ISOLATE


def set_attack_isolation(values: Given, stated: Any = None) -> None:
    """Set the isolation of attacks from files, before any attack is loaded.

    Invalid values are reported later, when the options are read.

    Args:
        values: values of the options.
        stated: config, used for options that were not given.
    """
    from ..adapters.models.sandbox.isolation import Isolation, set_attack_isolation

    said = {"isolate": None, "time_limit": None, "memory_limit": None}
    said = {word: values.get(word) if values.get(word) is not None else getattr(stated, word, None) for word in said}
    isolate = said["isolate"] or default_isolate()
    set_attack_isolation(Isolation(isolate, said["time_limit"] or Isolation.seconds, said["memory_limit"]))


def loading_settings(values: Given) -> Given:
    """Convert options to fields of `Config`. By default, models from files run in a separate process."""
    set_attack_isolation(values)
    return {**values, "isolate": values.get("isolate") or default_isolate()}


def loading_keywords(values: Given) -> Given:
    """Convert options to keywords of API functions that load models by name.

    The keyword `tell` prints a message to standard error about models that run in separate processes.

    Args:
        values: values of the options, by field of `Config`.
    """
    return {**loading_settings(values), "tell": tell}


def tell(line: str) -> None:
    """Print a note to standard error."""
    from ..report.text.console import print_error

    print_error(line if line.startswith("chosen: ") else f"- {in_options(line)}")


def prestart_processes(isolation: Any, models: Iterable[str]) -> None:
    """Start the processes of isolated models in the background, and report them to standard error."""
    from ..adapters.models.sandbox.isolated import describe_isolated, prestart_processes
    from ..report.text.console import print_error

    names = list(models)
    prestart_processes(isolation, names)
    for line in describe_isolated(isolation, names):
        print_error(f"- {line}")
