"""Definition of a paper's table: name, published numbers, and the function that recomputes it.

Importing this module loads neither torch nor an attack library, so that all tables can be listed quickly.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import InvalidInput
from .counterpart import split_rows

if TYPE_CHECKING:
    from rich.console import Console

    from ...adapters import Classifier
    from ...adapters.data.datasets import Data
    from .paper_grid import GridPart

_BENCHMARKS = __name__.rsplit(".", 2)[0]


@dataclass(frozen=True)
class Options:
    """Options of `davylamp reproduce`.

    Args:
        quick: whether to use the small size, which takes about a minute.
        full: whether to use the paper's parameters and number of images.
        models: names, or classifiers by name. None for the models of the size.
        data: name, or images. None for the images of the setting.
        limit: number of images to use.
        out: results folder, from which an interrupted call resumes. None for a temporary folder.
        device: device of the computation.
        seed: random seed.
        progress: called with an attack and the number of images just attacked.
        rows: evaluated model for the paper's name of a model, or evaluated data for the name of a data set.
        data_set: data set of the evaluated data, if the user named it.
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
    rows: Mapping[str, str] = field(default_factory=dict)
    data_set: str = ""

    def surrogate(self, paper: str) -> str:
        """Return the model that replaces the paper's surrogate for transferred examples, or "" if the user gave none.

        Args:
            paper: the paper's name of the surrogate. "" for none.
        """
        if paper and isinstance(self.models, Mapping) and paper in self.models:
            return paper
        return self.rows.get(paper, "") if paper else ""

    @property
    def settled(self) -> "Options":
        """Options with the models and data that `rows` names. `rows` keeps the models."""
        said, data_set, data = split_rows(self.rows)
        models = self.models
        if said and not isinstance(models, Mapping):
            models = tuple(dict.fromkeys([*(models or ()), *said.values()]))
        if data and isinstance(self.data, str) and self.data != data:
            raise InvalidInput(f"expected one name of data, got {self.data} and {data_set}={data}")
        mine = data if data and self.data is None else self.data
        return replace(self, rows=said, models=models, data=mine, data_set=data_set or self.data_set)


@dataclass(frozen=True)
class PaperTable:
    """A table or figure of a paper that `davylamp reproduce` recomputes.

    Args:
        name: name of the table, such as "canary-table4".
        title: short title.
        published: the paper's numbers: a JSON file for `load_published`, or "PAPER_TABLE" for a paper included in
            davylamp. "" if `compare` needs none.
        compare: function called as `compare(published, options, **arguments)` that returns the result of
            `SettingRun.report`, or its "module:name". A leading dot is relative to `davylamp.benchmarks`.
        arguments: arguments of `compare`. Those of the default function are the fields of `compare_table.NamedSetting`.
        show: function called with the result of `compare` and a console, or its "module:name".
        lines: function that returns the lines of a result of `compare`, or its "module:name".
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
    lines: Callable[[Mapping[str, Any]], Sequence[Mapping[str, Any]]] | str = ".shared.paper_result:lines_of"
    runs_models: bool = True

    def __post_init__(self) -> None:
        wanted: Mapping[str, tuple[str, bool]] = {
            "name": ("a text without spaces or colons", isinstance(self.name, str) and _is_word(self.name)),
            "title": ("a text", isinstance(self.title, str)),
            "published": ("a path or a text", isinstance(self.published, (str, Path))),
            "compare": ('a function or "module:name"', _names_function(self.compare)),
            "arguments": ("a mapping", isinstance(self.arguments, Mapping)),
            "lines": ('a function or "module:name"', _names_function(self.lines)),
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
        compare, options = _load(self.compare), options.settled
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

    def published_result(self) -> dict[str, Any]:
        """Return the published numbers as a result without lines. No model is run.

        Raises:
            InvalidInput: If the table has no published numbers.
        """
        from .paper_numbers import load_published

        if not self.published:
            raise InvalidInput(f"{self.name} has no published table")
        document = load_published(self.published)
        unit = str(document.get("unit") or document["note"])
        return {"table": Path(self.published).stem, "source": document["source"], "unit": unit, "lines": []}

    def grid(self, result: Mapping[str, Any]) -> "list[GridPart]":
        """Arrange a result in the parts, rows and columns of the paper's table.

        Args:
            result: result of `run` or `published_result`.

        Raises:
            InvalidInput: If the paper prints no numbers for it.
        """
        from .paper_grid import build_grid

        if not self.published:
            raise InvalidInput(f"{self.name} has no published table")
        return build_grid(self.published, _load(self.lines)(result))


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
