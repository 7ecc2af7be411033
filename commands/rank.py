"""The command that ranks: a results folder, or a table of metrics, into scores with their uncertainty."""

import json
import math
from collections.abc import Collection, Sequence
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
from .placement import Placed, in_options, place_folder, refused_in_options
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
WIDE = 24  # characters of an interval on a terminal
WIDTH = 95  # characters of the other columns of a ranking, names left out


@dataclass(frozen=True)
class Ranked:
    """A ranking and what belongs to it; None: not asked for, or not to be had."""

    title: str
    ranking: Any
    notes: tuple[str, ...] = ()
    items: Any = None
    differential: Any = None
    sensitivity: Any = None
    layer: str = ""
    sentences: tuple[str, ...] = ()
    stability: Any = None

    @property
    def frame(self) -> Any:
        """One line for each subject."""
        return self.ranking.to_frame()

    @property
    def lines(self) -> tuple[str, ...]:
        """What a reader should know first."""
        return in_options((*self.ranking.notes, *self.notes))

    @property
    def document(self) -> dict[str, Any]:
        """Everything as one JSON document."""
        document = {"title": self.title, **self.ranking.to_dict()}
        document["notes"] = list(self.lines)
        for name in ("items", "differential"):
            frame = getattr(self, name)
            if frame is not None:
                document[name] = json.loads(frame.to_json(orient="records"))
        if self.sensitivity is not None:
            document["sensitivity"] = [
                {name: None if value != value else value for name, value in record._asdict().items()}  # noqa: PLR0124
                for record in self.sensitivity
            ]
        if self.stability is not None:
            document["stability"] = [record._asdict() for record in self.stability]
        if self.sentences:
            document["sentences"] = list(self.sentences)
        return document

    def print(self, items: int, console: Any) -> None:
        """Notes first, then tables; of the items this many of the hardest and the easiest."""
        _print(self, items, console)


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
    every = [replace(shown, title=titles(shown.title)) for shown in every]
    unused = {"method", "per"} if folder.suffix == ".csv" else set()
    if fit.subjects is Subjects.implementations or (fit.subjects is Subjects.defences and fit.method is Method.canary):
        unused.add("per")
    say_defaults(context, [name for name in ("subjects", "method", "per", "seed") if name not in unused])
    if as_latex:
        print(_latex(every, folder, style), end="")  # noqa: T201 - standard output is the product
    elif as_json:
        print(json.dumps(_document(every), indent=1, allow_nan=False))  # noqa: T201 - standard output is the product
    elif as_csv:
        from ..report.text.console import frame_csv, print_error

        print(frame_csv(_frame(every)), end="")  # noqa: T201
        for note in dict.fromkeys(note for shown in every for note in shown.lines):
            print_error(f"- {note}")
    else:
        with view.open() as console:
            for shown in every:
                shown.print(details.items, console)


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


def _rank_folder(folder: Path, chosen: Any, details: DetailOptions, options: dict[str, Any]) -> Ranked:
    """Per image: load, rank, look at the items."""
    from ..api.rankings import rank_images
    from ..engine import ResultsStore
    from ..engine.store.imported import published_note
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
    sentences = tuple(_sentences(ranking, responses))
    return Ranked(title, ranking, notes, table, differential, dropped, sentences=sentences, stability=parts)


def _sentences(ranking: Any, responses: Any) -> list[str]:
    """What would tell neighbours apart, what does tell subjects apart, and where libraries differ."""
    from ..scoring import (
        describe_differences,
        describe_projections,
        differential_groups,
        informative_items,
        kinds_of,
        libraries_of,
        project_pairs,
    )
    from ..scoring.result_rows import NAMED, some_of

    sentences = describe_projections(project_pairs(ranking, len(set(responses.images))))
    fit = ranking.fit
    if fit is None or fit.model.response != "bernoulli" or fit.diagnostics.problem:
        return sentences
    kinds = informative_items(fit, responses.values, kinds_of(responses))
    if len(kinds) > 1:
        shares = [f"{item} {share:.0%}" for item, share in zip(kinds["item"], kinds["share"], strict=True) if share]
        sides = "Models" if responses.kind in ("attacks", "implementations") else "Attacks"
        sentences.append(f"{sides} that separate the subjects, by share of the information: {some_of(shares)}.")
    images = informative_items(fit, responses.values, responses.images).query("share > 0")["item"].head(NAMED)
    sentences.append(f"Images that separate the subjects best: {', '.join(images)}.")
    libraries = libraries_of(responses.subjects)
    if responses.kind == "implementations" and len(set(libraries)) > 1:
        table = differential_groups(fit, responses.values, libraries, responses.images)
        sentences += describe_differences(table)
    return sentences


def _check_library(library: str, implementations: Collection[str]) -> None:
    """Implementations of this library and of others, or there is nothing to set against one another."""
    have = list(dict.fromkeys(name.partition(":")[0] for name in implementations))
    if library not in have:
        raise UnknownName("library", library, have)
    if len(have) < 2:
        raise InvalidInput(f"expected implementations of another library beside --library {library}, got none")


def _rank_layers(
    folder: Path, subjects: Subjects, chosen: dict[str, Any], details: DetailOptions, seed: int
) -> list[Ranked]:
    """As CANARY, a ranking for each kind of attacks."""
    from ..api.rankings import rank_layers

    more = {"propagate": details.propagate, "sensitivity": details.sensitivity, "seed": seed}
    every = []
    for each in rank_layers(folder, subjects.value, chosen, **more):
        which = "" if folder.suffix == ".csv" else f", {each.layer} attacks"
        title = f"{subjects.value} of {folder}{which}: {each.ranking.method}, {each.metrics} metrics"
        every.append(Ranked(title, each.ranking, each.notes, sensitivity=each.without, layer=each.layer))
    return every


def _latex(every: Sequence[Any], folder: Path, style: Any) -> str:
    """A LaTeX table of each ranking."""
    from ..report.text.latex_documents import ranking_latex

    versions = {} if folder.suffix == ".csv" else versions_of(folder)
    return "\n".join(ranking_latex(shown.ranking, shown.title, versions, style) for shown in every)


def _frame(every: Sequence[Any]) -> Any:
    """One table; a column says which attacks where there are two layers."""
    import pandas as pd

    if len(every) == 1:
        return every[0].frame
    return pd.concat([ranked.frame.assign(attacks=ranked.layer) for ranked in every])


def _document(every: Sequence[Any]) -> dict[str, Any]:
    """Everything as one JSON document; a second layer is under its name."""
    first, *others = every
    return first.document | {other.layer: other.document for other in others}


def _print(ranked: Ranked, count: int, console: Any) -> None:
    """Notes first, then tables."""
    from ..report.text.console import print_table

    ranking = ranked.ranking
    for note in ranked.lines:
        console.print(note, highlight=False, markup=False)
    is_mean = ranking.method == "mean"  # one column, then: the score is the mean
    beside = () if is_mean else ("mean", "ranks by bootstrap")
    columns = ("rank", "subject", ranking.score_name, "95 %", "ranks", "P(first)", "group", *beside)
    digits = 3 if is_mean else 2
    rows = [
        (
            int(row["rank"]),
            row["subject"],
            f"{row['score']:.{digits}f}",
            "-" if math.isnan(row["low"]) else f"{row['low']:.{digits}f} to {row['high']:.{digits}f}",
            f"{row['rank_low']} - {row['rank_high']}",
            f"{row['first']:.2f}",
            row["group"],
            *(() if is_mean else (f"{row['mean']:.3f}", f"{row['bootstrap_low']} - {row['bootstrap_high']}")),
        )
        for row in ranking.to_frame().to_dict("records")
    ]
    if console.is_terminal and console.width >= WIDTH + WIDE + max(map(len, ranking.subjects)):
        columns = (*columns, "")
        rows = [(*row, bar) for row, bar in zip(rows, _bars(ranking.to_frame()), strict=True)]
    print_table(ranked.title, columns, rows, console, keys=2)
    for line in (*_closing(ranking), *ranked.sentences):
        console.print(line, highlight=False, markup=False)
    if ranked.items is not None and count:
        columns = tuple(ranked.items.columns)
        for title, part in (("Hardest images", ranked.items.head(count)), ("Easiest images", ranked.items.tail(count))):
            print_table(title, columns, part.to_numpy().tolist(), console)
    if ranked.differential is not None:
        odd = ranked.differential[ranked.differential["p_adjusted"] < 0.05]
        title = (
            f"Images that differ at equal ability: {len(odd)} of {len(ranked.differential)} (5 %, Benjamini-Hochberg)"
        )
        shown = (odd if len(odd) else ranked.differential).head(max(count, 3))
        print_table(title, tuple(shown.columns), shown.to_numpy().tolist(), console)
    if ranked.sensitivity is not None:
        print_table("Ranked without", ("without", "Kendall tau", "ranks moved"), ranked.sensitivity[:10], console)
    if ranked.stability is not None:
        columns = ("images", "subsets", "width of the 95 %", "by the root", "ranks in the 95 %", "pairs told apart")
        print_table("Ranked by fewer images", columns, ranked.stability, console)


def _bars(frame: Any) -> list[str]:
    """The intervals on one scale, a character for each 1 / `WIDE` of it."""
    low, high = frame["low"].min(), frame["high"].max()
    lines = []
    for row in frame[["low", "score", "high"]].to_numpy():
        start, middle, stop = ((row - low) / max(high - low, 1e-9) * (WIDE - 1)).round().astype(int).clip(0, WIDE - 1)
        line = [" "] * WIDE
        line[start : stop + 1] = "-" * (stop + 1 - start)
        line[middle] = "o"
        lines.append("".join(line))
    return lines


def _closing(ranking: Any) -> list[str]:
    """How the ranking stands to others, and how good the fit is."""
    taus = ", ".join(
        f"{name} {'undefined' if math.isnan(tau) else format(tau, '.2f')}" for name, tau in ranking.agreement.items()
    )
    lines = [f"Kendall's tau with {taus}; subjects that share a letter do not differ significantly (95 %, all pairs)"]
    quality = ranking.diagnostics
    if quality is not None:
        draws = f"{quality.chains} chains of {quality.draws} draws ({quality.sampler})"
        ess = f"effective draws {quality.bulk_ess:.0f} (bulk), {quality.tail_ess:.0f} (tail)"
        lines.append(f"{draws}: R-hat {quality.rhat:.4f}, {ess}, {quality.divergences} divergences")
    return lines
