"""How the models that a command names are asked and kept apart: its options, and what they come to."""

from collections.abc import Iterable
from typing import Any

from .config_options import FromConfig, Given, in_options

_APART = ("isolate", "time_limit", "memory_limit")
_ASKING = ("cost", "token", "timeout", "request_size")
LOADING = FromConfig((*_APART, "rate", *_ASKING))
LOADING_AT_FULL_RATE = FromConfig((*_APART, *_ASKING))  # where --rate is another rate
APART = FromConfig(_APART)
_DEFAULT_ISOLATE = "auto"


def default_isolate() -> Any:
    """`--isolate` of every command, unless it is said: files' models run in a process of their own."""
    return _DEFAULT_ISOLATE


def set_attack_isolation(values: Given, stated: Any = None) -> None:
    """Say where attacks of files run, before any of them is looked for; what is wrong is said where it is read.

    Args:
        values: of the options.
        stated: a config that options win over.
    """
    from ..adapters.models.sandbox.attack_isolation import set_attack_isolation
    from ..adapters.models.sandbox.isolation import Isolation

    said = {"isolate": None, "time_limit": None, "memory_limit": None}
    said = {word: values.get(word) if values.get(word) is not None else getattr(stated, word, None) for word in said}
    isolate = said["isolate"] or default_isolate()
    set_attack_isolation(Isolation(isolate, said["time_limit"] or Isolation.seconds, said["memory_limit"]))


def loading_settings(values: Given) -> Given:
    """Fields of `Config`, as the options say; files' models run in a process of their own unless they say otherwise."""
    set_attack_isolation(values)
    return {**values, "isolate": values.get("isolate") or default_isolate()}


def loading_keywords(values: Given) -> Given:
    """Keywords of the verbs that load models by name; which run in a process of their own, is said on standard error.

    Args:
        values: of the options, by field of `Config`.
    """
    return {**loading_settings(values), "tell": tell}


def tell(line: str) -> None:
    """Print, on standard error, what is worth knowing before a run."""
    from ..report.text.console import print_error

    print_error(line if line.startswith("chosen: ") else f"- {in_options(line)}")


def prestart_processes(isolation: Any, models: Iterable[str]) -> None:
    """Begin to start what isolated models need, and say on standard error which they are, and how they are run."""
    from ..adapters.models.sandbox.isolated import describe_isolated, prestart_processes
    from ..report.text.console import print_error

    names = list(models)
    prestart_processes(isolation, names)
    for line in describe_isolated(isolation, names):
        print_error(f"- {line}")
