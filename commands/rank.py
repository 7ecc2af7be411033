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
from .placement import PUBLISHED, place_folder, place_metrics, refused_in_options, reworded
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
    view.check(one_format({"csv": as_csv, "latex": as_latex, "json": as_json}))
    style = latex_style(latex_words)
    from ..report.text.ranking import rankings_document, rankings_frame

    given = given_options(context)
    folder, against, titles = open_named(context, results, baseline.against)
    of_metrics = _of_metrics(folder, fit.method, against)
    _refuse(given, folder, fit, against)
    of_fit = {"scoring": fit.method.value, "model": fit.item_model.value, "method": fit.fit.value, "seed": seed}
    with refused_in_options():
        every: list[Any]
        if against is not None and of_metrics:
            every = [place_metrics(folder, against, fit.subjects.value, chosen.of_layers, seed)]
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


def _of_metrics(folder: Path, method: Method, against: str | None) -> bool:
    """Whether means of metrics are ranked, with CANARY's model, and not responses to images."""
    baseline = against or ""
    is_table = folder.suffix == ".csv" or Path(baseline).suffix == ".csv" or baseline.startswith(PUBLISHED)
    return method is Method.canary or is_table


def _refuse(given: Collection[str], folder: Path, fit: FitOptions, against: str | None) -> None:
    """Refuse options that the ranking would ignore; what the results refuse is refused where they are read."""
    method, of_metrics = fit.method, _of_metrics(folder, fit.method, against)
    is_placed, of_defences = "against" in given, fit.subjects is Subjects.defences
    is_file = folder.suffix == ".csv" and (against is None or Path(against).suffix == ".csv")

    def options(*names: str) -> str:
        return ", ".join(f"--{name.replace('_', '-')}" for name in names if name in given)

    def refuse(names: str, line: str, *, unless: bool = False) -> None:
        if names and not unless:
            raise InvalidInput(f"expected {line}")

    if "as_csv" in given:
        unprinted = options("library", "sensitivity", "items")
        refuse(unprinted, f"--json or a table with {unprinted}: CSV is the ranking alone")
    adaptive = options("adaptive", "width", "batch")
    refuse(adaptive, f"{adaptive} with --against and responses to images", unless=is_placed and not of_metrics)
    refuse(adaptive, f"--adaptive with {adaptive}", unless="adaptive" in given)
    if is_placed:
        refuse(options("as_latex"), "--against without --latex: placements are no table of a ranking")
        if method in (Method.mean, Method.borda):
            refuse("--method", f"--against without --method {method.value}: means over different images are no ranking")
        ignored = options("library", "items", "sensitivity", "stability", "propagate")
        refuse(ignored, f"--against without {ignored}: the items are the baseline's")
    if of_metrics:
        names = ["epsilon", "library", "unequal", "item_model", "fit", "items", "stability"]
        names += ["norm", "knowledge", "per", "original"] if is_file else []
        ignored = options(*names, *(["method"] if method in (Method.mean, Method.borda) else []))
        table = "a table of metrics" if method is not Method.canary else "--method canary"
        what = "a CSV table" if is_file else table
        refuse(ignored, f"{what} without {ignored}: it ranks means of metrics with CANARY's model")
        why = "--method canary --subjects defences without --per: libraries are averaged"
        refuse(options("per"), why, unless=not of_defences)
    else:
        refuse(options("propagate"), "--propagate with --method canary: no other has two layers")
        ignored = options("item_model", "fit", "items")
        line = f"{ignored} with --method irt, got --method {method.value}"
        refuse(ignored, line, unless=method is Method.irt)
    of_implementations = fit.subjects is Subjects.implementations
    line = "--library with --subjects implementations and --method irt"
    refuse(options("library"), line, unless=of_implementations and method is Method.irt)
    line = "--per without --subjects implementations: each counts there"
    refuse(options("per"), line, unless=not of_implementations)
    line = "--examples with --subjects defences of a results folder"
    refuse(options("examples"), line, unless=of_defences and folder.suffix != ".csv")
    line = "--examples without a baseline of metrics, whose examples nobody knows"
    refuse(options("examples"), line, unless=against is None or not of_metrics)
    refuse(options("original"), "--original with --subjects defences", unless=of_defences)


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
    """As CANARY: a table of metrics from a file, or one each of white-box and of black-box attacks from a folder."""
    from ..engine.tables.metric_matrix import build_layers
    from ..report.text.ranking import Ranked
    from ..scoring import VIEWS, drop_each, metrics_of, rank_metrics

    every: list[Ranked] = []
    wrong: dict[str, ValueError] = {}
    layers = build_layers(folder, subjects.value, metrics_of(VIEWS[subjects.value]), **chosen)
    for layer, matrix in layers.items():
        frame, dropped = matrix.frame, None
        try:
            ranking = rank_metrics(frame, subjects.value, propagate=details.propagate, seed=seed)
        except ValueError as error:
            wrong[layer] = error
            continue
        if details.sensitivity:

            def score(kept: Any, frame: Any = frame) -> Any:
                return rank_metrics(frame.iloc[:, kept], subjects.value, seed=seed).score

            dropped = drop_each(score, list(frame.columns), axis="items")
        which = "" if folder.suffix == ".csv" else f", {layer} attacks"
        title = f"{subjects.value} of {folder}{which}: {ranking.method}, {len(frame.columns)} metrics"
        every.append(Ranked(title, ranking, matrix.notes, sensitivity=dropped, layer=layer))
    if not every:
        raise next(iter(wrong.values()))
    notes = tuple(f"no ranking by {layer} attacks: {error}" for layer, error in wrong.items())
    return [replace(ranked, notes=(*ranked.notes, *notes)) for ranked in every]
