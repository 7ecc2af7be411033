"""One option under every name that it has somewhere: `--model` and `--models`, `--eps` and `--epsilon`."""

from collections.abc import Sequence
from typing import Any

# Other names of an option -> what it is called here, in whichever command has that and not the other.
_OTHERS = {
    "--eps": ("--epsilon", "--budget", "--radius"),
    "--epsilon": ("--budget", "--radius"),
    "--budget": ("--epsilon", "--radius"),
    "--radius": ("--epsilon", "--budget"),
    "--dataset": ("--data",),
    "--defense": ("--defence",),
    "--lib": ("--library",),
    "--libraries": ("--library",),
    "--num-images": ("--limit",),
    "--limit": ("--images",),
    "--images": ("--limit",),
    "--output": ("--out",),
    "--queries": ("--max-queries",),
    "--max-queries": ("--queries",),
    "--iterations": ("--steps",),
    "--metrics": ("--metric",),
    "--alpha": ("--step-size",),
    "--batch": ("--batch-size",),
}
# What a command called an option before, when that meant another thing elsewhere.
_BEFORE = {
    ("rank", "--model"): "--item-model",
    ("detect", "--rate"): "--false-alarms",
}


def with_usual_names(arguments: Sequence[str], command: Any) -> list[str]:
    """The arguments of a command with each option under the name that it has there.

    Args:
        arguments: as they were typed, without the command's name.
        command: with its parameters.
    """
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    positional = {parameter.name for parameter in command.params if parameter.param_type_name == "argument"}
    named: list[str] = []
    first: list[str] = []  # what stands without an option here: `certify --model X` is `certify X`
    words = iter(arguments)
    for word in words:
        if word == "--":
            named += [word, *words]
            break
        name, equals, value = word.partition("=")
        if not name.startswith("--") or name in known:
            named.append(word)
        elif name in ("--model", "--models") and positional & {"model", "models"}:
            first.append(value if equals else next(words, ""))
        else:
            named.append(_usual(name, command.name, known) + equals + value)
    return [*first, *named]


def _usual(name: str, command: str, known: set[str]) -> str:
    """The name of an option in a command; itself, if it is none there."""
    other = name.removesuffix("s") if name.endswith("s") else f"{name}s"
    candidates = (_BEFORE.get((command, name), ""), *_OTHERS.get(name, ()), other)
    return next((candidate for candidate in candidates if candidate in known), name)
