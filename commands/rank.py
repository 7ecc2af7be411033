"""The command that ranks: a results folder, or a table of metrics, into scores with their uncertainty."""

import json
from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import InvalidInput, UnknownName
from .merge import open_named
from .options import (
    Json,
    Knowledge,
    Latex,
    LatexWords,
    given_options,
    latex_style,
    one_format,
    say_defaults,
    versions_of,
)
from .placement import place_folder, refused_in_options, reworded
from .table_options import TableOptions


class Subjects(str, Enum):
    """What is ranked."""

    models = "models"
    attacks = "attacks"
    implementations = "implementations"
    defences = "defences"


class Examples(str, Enum):
    """What defended models are attacked by."""

    itself = "own"
    original = "original"


class Method(str, Enum):
    """How the scores come about."""

    irt = "irt"
    canary = "canary"
    mean = "mean"
    borda = "borda"


class Per(str, Enum):
    """What counts once."""

    attack = "attack"
    implementation = "implementation"


class Unequal(str, Enum):
    """What becomes of what not every subject met."""

    common = "common"
    keep = "keep"


class Model(str, Enum):
    """Item response model."""

    auto = "auto"
    one = "1pl"
    two = "2pl"
    three = "3pl"


class Fit(str, Enum):
    """How it is fitted."""

    auto = "auto"
    fast = "fast"
    svi = "svi"
    nuts = "nuts"


# Keywords of `davylamp.rank` by option.
_KEYWORDS = {"epsilon": "budget", "method": "scoring", "item_model": "model", "fit": "method"}


@dataclass(frozen=True)
class AgainstOptions:
    """A baseline to place new subjects in, and how many images that takes."""

    against: Annotated[
        str | None,
        typer.Option(help="place new subjects among those of a folder, bundle, CSV or published:canary-table9"),
    ] = None
    adaptive: Annotated[bool, typer.Option("--adaptive", help="--against: how few images would have been enough")] = (
        False
    )
    width: Annotated[
        int | None, typer.Option(min=0, help="--adaptive: stop when the rank interval is at most this wide")
    ] = None
    batch: Annotated[int, typer.Option(min=1, help="--adaptive: images per batch")] = 8


@dataclass(frozen=True)
class FitOptions:
    """What is ranked, and how the scores are computed."""

    subjects: Annotated[Subjects, typer.Option(help="what to rank")] = Subjects.models
    method: Annotated[
        Method, typer.Option(help="irt: from responses to each image; canary: from metrics, as published")
    ] = Method.irt
    item_model: Annotated[
        Model, typer.Option("--item-model", "--model", help="auto: 1pl below 10 subjects, else 2pl")
    ] = Model.auto
    fit: Annotated[Fit, typer.Option(help="svi: for data too large to sample; nuts: the slow reference")] = Fit.auto


@dataclass(frozen=True)
class ChosenOptions:
    """Which results are ranked."""

    norm: Annotated[str | None, typer.Option(help="only results in this norm")] = None
    epsilon: Annotated[
        str | None, typer.Option("--epsilon", "--eps", "--budget", help="largest distance that counts as fooled: 4/255")
    ] = None
    knowledge: Annotated[
        Knowledge | None, typer.Option(help="only these attacks; canary ranks each kind separately")
    ] = None
    per: Annotated[
        Per, typer.Option(help="one item per attack (the strongest of its libraries) or per implementation")
    ] = Per.attack
    unequal: Annotated[Unequal, typer.Option(help="items that some subjects lack: leave out, or treat as missing")] = (
        Unequal.common
    )
    original: Annotated[str | None, typer.Option(help="defences: the undefended model")] = None
    examples: Annotated[
        Examples | None,
        typer.Option(
            help="defences: examples made on the defended model (own) or on the original (default: own if any)"
        ),
    ] = None

    @property
    def of_layers(self) -> dict[str, Any]:
        """Those that choose metrics, by their names in `build_layers`."""
        names = ("norm", "knowledge", "per", "original", "examples")
        return {name: getattr(getattr(self, name), "value", getattr(self, name)) for name in names}

    def of_images(self, subjects: Subjects) -> Any:
        """Those that choose responses."""
        from ..adapters.parameters import parse_number
        from ..api.rankings import RankedResults

        radius = None if self.epsilon is None else parse_number(self.epsilon, "epsilon")
        kind: Any = subjects.value
        return RankedResults(kind, radius, unequal=self.unequal.value, **self.of_layers)


@dataclass(frozen=True)
class DetailOptions:
    """What is shown beside the ranking."""

    library: Annotated[str | None, typer.Option(help="show images on which this library differs at equal ability")] = (
        None
    )
    items: Annotated[int, typer.Option(min=0, help="number of hardest and easiest images to show")] = 3
    sensitivity: Annotated[
        bool, typer.Option("--sensitivity", help="rank again without each subject and each metric")
    ] = False
    stability: Annotated[
        bool, typer.Option("--stability", help="rank again with a quarter and a half of the images")
    ] = False
    propagate: Annotated[bool, typer.Option("--propagate", help="canary: propagate the uncertainty of both layers")] = (
        False
    )


def rank_subjects(
    *,
    context: typer.Context,
    results: Annotated[
        list[Path],
        typer.Argument(
            help="results folders or BUNDLE.zip, several are read as one; or a CSV table of CANARY's metrics with "
            "names in the first column"
        ),
    ],
    baseline: AgainstOptions,
    fit: FitOptions,
    chosen: ChosenOptions,
    details: DetailOptions,
    seed: Annotated[int, typer.Option(min=0, help="random seed")] = 0,
    view: TableOptions,
    as_csv: Annotated[bool, typer.Option("--csv", help="print CSV")] = False,
    as_latex: Latex = False,
    latex_words: LatexWords = None,
    as_json: Json = False,
) -> None:
    """Rank models, attacks or implementations: ability, rank intervals, groups without significant differences."""
    from ..api.rankings import is_of_metrics, place_metrics

    view.check(one_format({"csv": as_csv, "latex": as_latex, "json": as_json}))
    style = latex_style(latex_words)
    from ..report.text.ranking import Placed, rankings_document, rankings_frame

    given = given_options(context)
    folder, against, titles = open_named(context, results, baseline.against)
    of_metrics = is_of_metrics(folder, fit.method.value, against)
    of_fit = {"scoring": fit.method.value, "model": fit.item_model.value, "method": fit.fit.value, "seed": seed}
    with refused_in_options():
        _refuse(given, folder, fit, against)
        every: list[Any]
        if against is not None and of_metrics:
            placed = place_metrics(folder, against, fit.subjects.value, chosen.of_layers, seed)
            every = [Placed(f"{folder} against {against}", *placed)]
        elif against is not None:
            more = {"adaptive": baseline.adaptive, "width": baseline.width, "batch": baseline.batch}
            every = [place_folder(folder, against, chosen.of_images(fit.subjects), of_fit | more)]
        elif of_metrics:
            every = _rank_layers(folder, fit.subjects, chosen.of_layers, details, seed)
        else:
            every = [_rank_folder(folder, chosen.of_images(fit.subjects), details, of_fit)]
    every = [replace(reworded(shown), title=titles(shown.title)) for shown in every]
    unused = {"method", "per"} if folder.suffix == ".csv" else set()
    if fit.subjects is Subjects.implementations or (fit.subjects is Subjects.defences and fit.method is Method.canary):
        unused.add("per")
    say_defaults(context, [name for name in ("subjects", "method", "per", "seed") if name not in unused])
    if as_latex:
        from ..report.text.latex_documents import ranking_latex

        versions = {} if folder.suffix == ".csv" else versions_of(folder)
        tables = [ranking_latex(shown.ranking, shown.title, versions, style) for shown in every]
        print("\n".join(tables), end="")  # noqa: T201 - standard output is the product
    elif as_json:
        print(json.dumps(rankings_document(every), indent=1, allow_nan=False))  # noqa: T201 - the product
    elif as_csv:
        from ..report.text.console import frame_csv, print_error

        print(frame_csv(rankings_frame(every)), end="")  # noqa: T201
        for note in dict.fromkeys(note for shown in every for note in shown.lines):
            print_error(f"- {note}")
    else:
        with view.open() as console:
            for shown in every:
                shown.print(details.items if view.verbose or "items" in given else 0, console)


def _refuse(given: Collection[str], folder: Path, fit: FitOptions, against: str | None) -> None:
    """Refuse options that the form of the output or the ranking would ignore."""
    from ..api.rankings import refuse_ignored

    unprinted = ", ".join(f"--{name}" for name in ("library", "sensitivity", "items") if name in given)
    if "as_csv" in given and unprinted:
        raise InvalidInput(f"expected --json or a table with {unprinted}: CSV is the ranking alone")
    if "as_latex" in given and against is not None:
        raise InvalidInput("expected --against without --latex: placements are no table of a ranking")
    keywords = {_KEYWORDS.get(name, name) for name in given}
    refuse_ignored(keywords, folder, fit.subjects.value, fit.method.value, against)


def _rank_folder(folder: Path, chosen: Any, details: DetailOptions, options: dict[str, Any]) -> Any:
    """Per image: load, rank, look at the items."""
    from ..api.rankings import rank_images
    from ..engine import ResultsStore
    from ..engine.store.imported import published_note
    from ..report.text.ranking import Ranked, pair_sentences, separating_sentences
    from ..scoring import describe_items, differential_items, drop_each, of_subjects, rank_matrix, rank_subsamples

    ranking, responses, notes = rank_images(folder, chosen, **options)
    names, library = responses.subjects, details.library
    if chosen.subjects == "models":
        notes += tuple(published_note(ResultsStore(folder, create=False)))
    size = f"{responses.values.shape[1]} items, {len(set(responses.images))} images"
    title = f"{chosen.subjects} of {folder}: {ranking.method}, {size}"
    table = differential = dropped = None
    if library is not None:
        _check_library(library, names)
    if ranking.fit is not None:
        table = describe_items(ranking.fit, responses.values, responses.images)
        if library is not None:
            focal = [name.partition(":")[0] == library for name in names]
            differential = differential_items(ranking.fit, responses.values, focal, responses.images)
    if details.sensitivity:
        if len(names) < 3:
            raise InvalidInput(f"expected at least 3 {chosen.subjects} for --sensitivity, got {len(names)}")
        dropped = drop_each(
            lambda kept: rank_matrix(of_subjects(responses, kept), **options).score, names, axis="subjects"
        )
    parts = rank_subsamples(responses, ranking, **options) if details.stability else None
    sentences, separating = tuple(pair_sentences(ranking, responses)), tuple(separating_sentences(ranking, responses))
    more = {"sentences": sentences, "separating": separating, "stability": parts}
    return Ranked(title, ranking, notes, table, differential, dropped, **more)


def _check_library(library: str, implementations: Collection[str]) -> None:
    """Implementations of this library and of others, or there is nothing to set against one another."""
    have = list(dict.fromkeys(name.partition(":")[0] for name in implementations))
    if library not in have:
        raise UnknownName("library", library, have)
    if len(have) < 2:
        raise InvalidInput(f"expected implementations of another library beside --library {library}, got none")


def _rank_layers(
    folder: Path, subjects: Subjects, chosen: dict[str, Any], details: DetailOptions, seed: int
) -> list[Any]:
    """As CANARY, a ranking for each kind of attacks."""
    from ..api.rankings import rank_layers
    from ..report.text.ranking import Ranked

    more = {"propagate": details.propagate, "sensitivity": details.sensitivity, "seed": seed}
    every = []
    for each in rank_layers(folder, subjects.value, chosen, **more):
        which = "" if folder.suffix == ".csv" else f", {each.layer} attacks"
        title = f"{subjects.value} of {folder}{which}: {each.ranking.method}, {each.metrics} metrics"
        every.append(Ranked(title, each.ranking, each.notes, sensitivity=each.without, layer=each.layer))
    return every
