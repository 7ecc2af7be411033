"""Definition of a paper's table: name, published numbers, and the function that recomputes it.

Importing this module loads neither torch nor an attack library, so that all tables can be listed quickly.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import InvalidInput

if TYPE_CHECKING:
    from rich.console import Console

    from ...adapters import Classifier
    from ...adapters.data.datasets import Data

_BENCHMARKS = __name__.rsplit(".", 2)[0]


@dataclass(frozen=True)
class Options:
    """Options of `davylamp reproduce`.

    Args:
        quick: whether to use the quick size.
        full: whether to use the paper's parameters and number of images.
        models: names, or classifiers by name. None for the models of the size.
        data: name, or images. None for the images of the setting.
        limit: number of images to use.
        out: results folder, from which an interrupted call resumes. None for a temporary one.
        device: device of the computation.
        seed: random seed.
        progress: called with an attack and the number of images just attacked.
    """

    quick: bool = False
    full: bool = False
    models: "Mapping[str, Classifier] | Sequence[str] | None" = None
    data: "Data | str | None" = None
    limit: int | None = None
    out: str | Path | None = None
    device: str = "cpu"
    seed: int = 0
    progress: Callable[[str, int], object] | None = None


@dataclass(frozen=True)
class PaperTable:
    """A table or figure of a paper that `davylamp reproduce` recomputes.

    Args:
        name: name of the table: "canary-table4".
        title: short title.
        published: the paper's numbers: a JSON file for `load_published`, or "PAPER_TABLE" of an included paper; "" if
            `compare` needs none.
        compare: function called as `compare(published, options, **arguments)`, which returns the result of
            `SettingRun.report`; or its "module:name", where a leading dot means `davylamp.benchmarks`.
        arguments: arguments of `compare`. For the default function, they are the fields of
            `compare_table.NamedSetting`.
        show: function called with the result of `compare` and a console, or its "module:name".
        runs_models: whether options for models, images, budgets and results apply.

    Raises:
        InvalidInput: If a field has a wrong type.
    """

    name: str
    title: str
    published: str | Path = ""
    compare: Callable[..., dict[str, Any]] | str = ".shared.compare_table:compare_table"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    show: "Callable[[Mapping[str, Any], Console], None] | str" = ".shared.paper_result:print_result"
    runs_models: bool = True

    def __post_init__(self) -> None:
        wanted: Mapping[str, tuple[str, bool]] = {
            "name": ("a text without spaces or colons", isinstance(self.name, str) and _is_word(self.name)),
            "title": ("a text", isinstance(self.title, str)),
            "published": ("a path or a text", isinstance(self.published, (str, Path))),
            "compare": ('a function or "module:name"', _names_function(self.compare)),
            "arguments": ("a mapping", isinstance(self.arguments, Mapping)),
            "show": ('a function or "module:name"', _names_function(self.show)),
        }
        for key, (what, fits) in wanted.items():
            if not fits:
                raise InvalidInput(f"PaperTable: expected {key} as {what}, got {getattr(self, key)!r:.80}")

    def run(self, options: Options) -> dict[str, Any]:
        """Compute the table.

        Args:
            options: options of the command.

        Raises:
            InvalidInput: If `compare` does not accept the arguments, or does not return a dictionary.
            DavylampError: Any error of the computation.
        """
        compare = _load(self.compare)
        try:
            inspect.signature(compare).bind(self.published, options, **self.arguments)
        except TypeError as error:
            raise InvalidInput(f"{self.name}: expected the arguments that compare takes, got: {error}") from None
        result = compare(self.published, options, **self.arguments)
        if not isinstance(result, dict):
            raise InvalidInput(f"{self.name}: expected a dictionary from compare, got {type(result).__name__}")
        return result

    def print(self, result: Mapping[str, Any], console: "Console") -> None:
        """Print davylamp's numbers next to the published ones."""
        _load(self.show)(result, console)


def _is_word(text: str) -> bool:
    return text.isprintable() and text.split() == [text] and ":" not in text


def _names_function(thing: Any) -> bool:
    return callable(thing) or (isinstance(thing, str) and all(thing.rpartition(":")[::2]))


def _load(function: Callable[..., Any] | str) -> Callable[..., Any]:
    """Return a function. If it is given by name, it is imported now."""
    if not isinstance(function, str):
        return function
    module, _, name = function.rpartition(":")
    return getattr(import_module(module, _BENCHMARKS), name)
