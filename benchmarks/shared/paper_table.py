"""A paper's table as one row: what it is called, where its numbers are, what computes them again.

Importing this loads neither torch nor an attack library, so that the rows of every paper can be listed at once.
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
    """What is asked of a table: the options of `davylamp reproduce`.

    Args:
        quick: the quick size.
        full: the paper's own parameters and number of images.
        models: names, or classifiers by name; None: those of the size.
        data: a name, or images; None: those of the setting.
        limit: only this many images.
        out: folder that keeps the results and resumes from them; None: a temporary one.
        device: where to compute.
        seed: of every random choice.
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
    """A table or a figure of a paper that `davylamp reproduce` computes again.

    Args:
        name: of the table: "canary-table4".
        title: what it is about, in a few words.
        published: the paper's numbers: a JSON file as `load_published` describes it, or "PAPER_TABLE" of a paper that
            is here; "": `compare` needs none.
        compare: called as `compare(published, options, **arguments)`, returns what `SettingRun.report` returns; or
            "module:name" of it, a leading dot from `davylamp.benchmarks`.
        arguments: of `compare`; those of the usual one are the fields of `compare_table.NamedSetting`.
        show: called with what `compare` returned and a console, or "module:name" of it.
        runs_models: whether the options about models, images, budgets and results mean something.

    Raises:
        InvalidInput: if a field has a wrong type.
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
            options: what is asked.

        Raises:
            InvalidInput: if `compare` does not take the arguments, or returns something else than a dictionary.
            DavylampError: whatever stands in the way.
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
        """Print ours beside theirs.

        Args:
            result: of `run`.
            console: to print on.
        """
        _load(self.show)(result, console)


def _is_word(text: str) -> bool:
    return text.isprintable() and text.split() == [text] and ":" not in text


def _names_function(thing: Any) -> bool:
    return callable(thing) or (isinstance(thing, str) and all(thing.rpartition(":")[::2]))


def _load(function: Callable[..., Any] | str) -> Callable[..., Any]:
    """A function, imported now if it is only named."""
    if not isinstance(function, str):
        return function
    module, _, name = function.rpartition(":")
    return getattr(import_module(module, _BENCHMARKS), name)
