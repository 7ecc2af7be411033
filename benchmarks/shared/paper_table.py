"""`PaperTable`, the definition of a table that `davylamp reproduce` can run, and `Options`, the options of the command.

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
        quick: whether to run the smallest size of a table, which takes about a minute.
        full: whether to use the parameters and the number of images of the paper.
        models: names of the models to evaluate, or classifiers by name. None for the models that the table defines.
        data: name of the data to evaluate, or images with labels. None for the data that the table defines.
        limit: number of images to use. None for the number that the table defines.
        out: folder for results. If a call is interrupted, a call with the same folder resumes. None for a temporary
            folder.
        device: device of the computation.
        seed: random seed.
        progress: function that is called with the name of an attack and the number of images it has just attacked.
        rows: the user's assignments (option --as): name of an evaluated model by the paper's name of the model, or name
            of data by the name of a data set.
        data_set: data set of the evaluated data. "" if the user did not name the data set.
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
        """Return the name of the model that the user gave for the paper's surrogate; "" if the user gave none.

        Args:
            paper: the paper's name of the surrogate. "" if the paper has no surrogate.
        """
        if paper and isinstance(self.models, Mapping) and paper in self.models:
            return paper
        return self.rows.get(paper, "") if paper else ""

    @property
    def settled(self) -> "Options":
        """The options, where the models and data that `rows` assigns are also in `models` and `data`."""
        said, data_set, data = split_rows(self.rows)
        models = self.models
        if said and not isinstance(models, Mapping):
            models = tuple(dict.fromkeys([*(models or ()), *said.values()]))
        if data and isinstance(self.data, str) and self.data != data:
            raise InvalidInput(f"expected the data to be named once, got {self.data} and {data_set}={data}")
        mine = data if data and self.data is None else self.data
        return replace(self, rows=said, models=models, data=mine, data_set=data_set or self.data_set)


@dataclass(frozen=True)
class PaperTable:
    """A table or figure of a paper that `davylamp reproduce` recomputes.

    Args:
        name: name of the table in the command, such as "canary-table4".
        title: short title for lists of tables.
        published: the paper's numbers: path of a JSON file for `load_published`, or a name such as "canary_table4" for
            a paper that davylamp includes. "" if `compare` needs no published numbers.
        compare: function that recomputes the table. It is called as `compare(published, options, **arguments)`, and
            returns a dictionary such as the result of `SettingRun.report`. Instead of a function, a text "module:name"
            is allowed, where a leading dot stands for `davylamp.benchmarks`.
        arguments: keyword arguments of `compare`. The arguments of the default function are the fields of
            `compare_table.NamedSetting`.
        show: function that prints the result of `compare`, or "module:name". It is called with the result and a
            console.
        lines: function that returns the lines of the result of `compare` for `build_grid`, or "module:name".
        runs_models: whether `compare` runs models, so that options for models, images and results apply.

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
        """Recompute the table, and return the result of `compare`.

        Args:
            options: options of the command.

        Raises:
            InvalidInput: If `compare` does not accept the arguments, or does not return a dictionary.
            DavylampError: If the computation fails.
        """
        compare, options = _load(self.compare), options.settled
        try:
            inspect.signature(compare).bind(self.published, options, **self.arguments)
        except TypeError as error:
            raise InvalidInput(f"{self.name}: `compare` does not accept the arguments of the table: {error}") from None
        result = compare(self.published, options, **self.arguments)
        if not isinstance(result, dict):
            raise InvalidInput(f"{self.name}: expected `compare` to return a dictionary, got {type(result).__name__}")
        return result

    def print(self, result: Mapping[str, Any], console: "Console") -> None:
        """Print the result of `run` with the function `show`."""
        _load(self.show)(result, console)

    def published_result(self) -> dict[str, Any]:
        """Return a result without computed numbers, from which `grid` shows the published numbers. No model is run.

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
            InvalidInput: If the paper prints no numbers in this table or figure.
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
    """Return a function that is given as a function or as a text "module:name". In the latter case, import it."""
    if not isinstance(function, str):
        return function
    module, _, name = function.rpartition(":")
    return getattr(import_module(module, _BENCHMARKS), name)
