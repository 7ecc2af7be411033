"""The command that ranks: a results folder, or a table of metrics, into scores with their uncertainty."""

import json
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import InvalidInput
from .options import Json


class Subjects(str, Enum):
    """What is ranked."""

    models = "models"
    attacks = "attacks"
    implementations = "implementations"
    defences = "defences"


class Method(str, Enum):
    """How the scores come about."""

    irt = "irt"
    canary = "canary"
    mean = "mean"
    borda = "borda"


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
    nuts = "nuts"


@dataclass(frozen=True)
class Ranked:
    """A ranking and what belongs to it; None: not asked for, or not to be had."""

    title: str
    ranking: Any
    items: Any = None
    differential: Any = None
    sensitivity: Any = None


def rank_subjects(  # noqa: PLR0913, PLR0917 - one argument per option
    folder: Annotated[Path, typer.Argument(help="a results folder, or a CSV table of CANARY's metrics, names first")],
    subjects: Annotated[Subjects, typer.Option(help="what is ranked")] = Subjects.models,
    method: Annotated[Method, typer.Option(help="irt: per image; canary: as published, from metrics")] = Method.irt,
    model: Annotated[Model, typer.Option(help="of the items; auto: 1pl below 10 subjects, else 2pl")] = Model.auto,
    fit: Annotated[Fit, typer.Option(help="nuts: the slow reference, in Pyro")] = Fit.auto,
    norm: Annotated[str | None, typer.Option(help="only the results of this norm")] = None,
    budget: Annotated[str | None, typer.Option(help="largest distance that counts as fooled, as 4/255")] = None,
    library: Annotated[str | None, typer.Option(help="images on which this library differs at equal ability")] = None,
    items: Annotated[int, typer.Option(min=0, help="how many of the hardest and easiest images to show")] = 3,
    sensitivity: Annotated[bool, typer.Option("--sensitivity", help="without each subject, each metric")] = False,
    propagate: Annotated[bool, typer.Option("--propagate", help="canary: both layers' uncertainty")] = False,
    seed: Annotated[int, typer.Option(min=0, help="of every random choice")] = 0,
    as_csv: Annotated[bool, typer.Option("--csv", help="CSV instead of tables")] = False,
    as_json: Json = False,
) -> None:
    """Rank models, attacks or implementations: ability with interval, rank interval, who cannot be told apart."""
    from ..adapters.parameters import parse_number

    if as_csv and as_json:
        raise InvalidInput("expected one format, got --csv and --json")
    if library is not None and (subjects is not Subjects.implementations or method is not Method.irt):
        raise InvalidInput("expected --library with --subjects implementations and --method irt")
    try:
        if method is Method.canary or folder.suffix == ".csv":
            ranked = _rank_metrics(folder, subjects, sensitivity=sensitivity, propagate=propagate, seed=seed)
        else:
            radius = None if budget is None else parse_number(budget, "budget")
            options = {"scoring": method.value, "model": model.value, "method": fit.value, "seed": seed}
            ranked = _rank_folder(folder, subjects, norm, radius, library, sensitivity, options)
    except ValueError as error:
        raise InvalidInput(str(error)) from error
    if as_json:
        print(json.dumps(_document(ranked), indent=1, allow_nan=False))  # noqa: T201 - standard output is the product
    elif as_csv:
        print(_csv(ranked.ranking.to_frame()), end="")  # noqa: T201
    else:
        _print(ranked, items)


def _rank_folder(
    folder: Path,
    subjects: Subjects,
    norm: str | None,
    budget: float | None,
    library: str | None,
    sensitivity: bool,
    options: dict[str, Any],
) -> Ranked:
    """Per image: load, rank, look at the items."""
    import numpy as np

    from ..engine import load
    from ..scoring import build_responses, describe_items, differential_items, drop_each, rank_responses

    results: Any = load(folder)
    if norm is not None:
        results = results[results["norm"] == norm]
    found = build_responses(results, subjects.value, budget)
    ranking = rank_responses(found.values, found.subjects, found.images, **options)
    size = f"{found.values.shape[1]} items, {len(set(found.images))} images"
    title = f"{subjects.value} of {folder}: {ranking.method}, {size}"
    table = differential = dropped = None
    if ranking.fit is not None:
        table = describe_items(ranking.fit, found.values, found.images)
        if library is not None:
            focal = [name.partition(":")[0] == library for name in found.subjects]
            differential = differential_items(ranking.fit, found.values, focal, found.images)
    if sensitivity:
        names = np.array(found.subjects)

        def score(kept: Any) -> Any:
            return rank_responses(found.values[kept], list(names[kept]), found.images, **options).score

        if len(names) < 3:
            raise InvalidInput(f"expected at least 3 {subjects.value} for --sensitivity, got {len(names)}")
        dropped = drop_each(score, found.subjects, axis="subjects")
    return Ranked(title, ranking, table, differential, dropped)


def _rank_metrics(folder: Path, subjects: Subjects, *, sensitivity: bool, propagate: bool, seed: int) -> Ranked:
    """As CANARY: a table of metrics, from a file or made of a results folder."""
    from ..scoring import drop_each, rank_table

    table = _read_metrics(folder, subjects)
    view = "model" if subjects in (Subjects.models, Subjects.defences) else "attack"
    names, metrics = list(table.index), list(table.columns)
    ranking = rank_table(table.to_numpy(), names, metrics, view=view, propagate=propagate, seed=seed)
    dropped = None
    if sensitivity:
        dropped = drop_each(
            lambda kept: (
                rank_table(table.to_numpy()[:, kept], names, [metrics[each] for each in kept], view=view).score
            ),
            metrics,
            axis="items",
        )
    return Ranked(
        f"{subjects.value} of {folder}: {ranking.method}, {len(metrics)} metrics", ranking, sensitivity=dropped
    )


def _read_metrics(folder: Path, subjects: Subjects) -> Any:
    """One row for each subject, a column for each metric that has a rule; those that nobody has are left out."""
    import pandas as pd

    from ..engine.table import build_table
    from ..scoring import RULES

    if folder.suffix == ".csv":
        if not folder.is_file():
            raise InvalidInput(f"expected a CSV file, got {folder}: there is none")
        table: Any = pd.read_csv(folder, index_col=0)
        table.index = table.index.map(str)
        return table
    by = "models" if subjects in (Subjects.models, Subjects.defences) else "attacks"
    frame: Any = build_table(folder, by=by, bootstrap=0).frame()
    if {"QNC_F", "QNC_B"} <= set(frame.columns):
        frame["QN"] = (frame["QNC_F"] + frame["QNC_B"]) / 2
    columns = [name for name in RULES if name in frame.columns]
    return frame.groupby("model" if by == "models" else "implementation", sort=False)[columns].mean().dropna(axis=1)


def _csv(frame: Any) -> str:
    from ..report.tables import to_csv

    return to_csv(list(frame.columns), frame.astype(object).to_numpy().tolist())


def _document(ranked: Ranked) -> dict[str, Any]:
    """Everything as one JSON document."""
    document = {"title": ranked.title, **ranked.ranking.to_dict()}
    for name in ("items", "differential"):
        frame = getattr(ranked, name)
        if frame is not None:
            document[name] = json.loads(frame.to_json(orient="records"))
    if ranked.sensitivity is not None:
        document["sensitivity"] = [record._asdict() for record in ranked.sensitivity]
    return document


def _print(ranked: Ranked, count: int) -> None:
    """Notes first, then tables."""
    from ..report.tables import make_console, print_table

    console = make_console()
    ranking = ranked.ranking
    for note in ranking.notes:
        console.print(note, highlight=False, markup=False)
    columns = ("rank", "subject", "score", "95 %", "ranks", "P(first)", "group", "mean", "ranks by bootstrap")
    rows = [
        (
            int(row["rank"]),
            row["subject"],
            f"{row['score']:.2f}",
            f"{row['low']:.2f} to {row['high']:.2f}",
            f"{row['rank_low']} - {row['rank_high']}",
            f"{row['first']:.2f}",
            row["group"],
            f"{row['mean']:.3f}",
            f"{row['bootstrap_low']} - {row['bootstrap_high']}",
        )
        for row in ranking.to_frame().to_dict("records")
    ]
    print_table(ranked.title, columns, rows, console)
    for line in _closing(ranking):
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


def _closing(ranking: Any) -> list[str]:
    """How the ranking stands to others, and how good the fit is."""
    taus = ", ".join(f"{name} {tau:.2f}" for name, tau in ranking.agreement.items())
    lines = [f"Kendall's tau with {taus}; subjects that share a letter cannot be told apart (95 %)"]
    quality = ranking.diagnostics
    if quality is not None:
        draws = f"{quality.chains} chains of {quality.draws} draws ({quality.sampler})"
        ess = f"effective draws {quality.bulk_ess:.0f} (bulk), {quality.tail_ess:.0f} (tail)"
        lines.append(f"{draws}: R-hat {quality.rhat:.4f}, {ess}, {quality.divergences} divergences")
    return lines
