"""Terminal and JSON output of rankings, and of placements of new subjects in a baseline."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from ...scoring import (
    describe_differences,
    describe_projections,
    differential_groups,
    informative_items,
    item_kinds,
    libraries_of,
    project_pairs,
)
from ...scoring.result_rows import NAMED, abbreviate_list
from .console import PlainConsole, print_notes, print_table

_BAR = 24  # characters of an interval on a terminal
_COLUMNS = 95  # characters of the other columns of a ranking, without names


@dataclass(frozen=True)
class RankingOutput:
    """Ranking with optional details. A detail that was not requested or is not available is None.

    Args:
        title: title that states the ranked subjects and the method.
        ranking: result of `davylamp.rank`.
        items: table with one row per image, the hardest first.
        differential: table with one row per image, the largest differential item functioning first.
        sensitivity: effect on the order if a subject or metric is omitted, for each of them.
        layer: name of the kind of attacks that are ranked, if there are several rankings.
        sentences: sentences on the number of images needed to separate neighbours.
        separating: sentences on the items that separate the subjects.
        stability: precision of rankings on fewer images.
    """

    title: str
    ranking: Any
    items: Any = None
    differential: Any = None
    sensitivity: Any = None
    layer: str = ""
    sentences: tuple[str, ...] = ()
    separating: tuple[str, ...] = ()
    stability: Any = None

    @property
    def frame(self) -> Any:
        """Table with one row for each subject."""
        return self.ranking.to_frame()

    @property
    def lines(self) -> tuple[str, ...]:
        """Notes on the ranking."""
        return self.ranking.notes

    @property
    def document(self) -> dict[str, Any]:
        """Ranking and details as one JSON document."""
        document = {"title": self.title, **self.ranking.to_dict()}
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
        if sentences := (*self.sentences, *self.separating):
            document["sentences"] = list(sentences)
        return document

    def reworded(self, rewrite: Callable[[str], str]) -> "RankingOutput":
        """Return a copy whose notes are rewritten by a function."""
        ranking = replace(self.ranking, notes=tuple(map(rewrite, self.ranking.notes)))
        return replace(self, ranking=ranking)

    def print(self, items: int, console: PlainConsole) -> None:
        """Print a sentence about the first-ranked subject, the ranking, the requested details and the notes.

        If the fit has not converged, a warning comes first.

        Args:
            items: number of the hardest and of the easiest images to print.
            console: output console. If verbose, bootstrap ranks, fit diagnostics and separating items are also printed.
        """
        ranking, frame = self.ranking, self.frame
        is_mean = ranking.method == "mean"  # one column, because the score is the mean
        columns = ("rank", "subject", ranking.score_name, "95 %", "ranks", "P(first)", "group")
        bootstrapped = console.verbose and not is_mean
        columns += (() if is_mean else ("mean",)) + (("ranks by bootstrap",) if bootstrapped else ())
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
                *(() if is_mean else (f"{row['mean']:.3f}",)),
                *((f"{row['bootstrap_low']} - {row['bootstrap_high']}",) if bootstrapped else ()),
            )
            for row in frame.to_dict("records")
        ]
        if console.is_terminal and console.width >= _COLUMNS + _BAR + max(map(len, ranking.subjects)):
            columns = (*columns, "")
            rows = [(*row, bar) for row, bar in zip(rows, _bars(frame), strict=True)]
        order = ("rank", "subject", ranking.score_name, "95 %", "ranks", "group", "P(first)")
        problem = ranking.diagnostics.problem if ranking.diagnostics else None
        print_notes([problem] if problem else [], console)  # before the answer, which then does not hold
        console.print(_first(ranking, rows))
        print_table(self.title, columns, rows, console, keys=2, order=order)
        self._print_categories(console)
        for line in _closing(ranking, every=console.verbose):
            console.print(line)
        self._print_details(items, console)
        notes = (*self.lines, *self.sentences, *(self.separating if console.verbose else ()))
        print_notes([note for note in notes if note != problem], console)

    def _print_categories(self, console: PlainConsole) -> None:
        ranking = self.ranking
        if not ranking.categories:
            return
        rows = [
            (name, *(f"{scores[ranking.subjects.index(name)]:.2f}" for scores in ranking.categories.values()))
            for name in self.frame["subject"]
        ]
        title = "Scores by category of metrics (0 worst, 1 best of these subjects)"
        print_table(title, ("subject", *ranking.categories), rows, console, keys=1)

    def _print_details(self, items: int, console: PlainConsole) -> None:
        if self.items is not None and items:
            parts = {"Hardest images": self.items.head(items), "Easiest images": self.items.tail(items)}
            for title, part in parts.items():
                print_table(title, tuple(part.columns), part.to_numpy().tolist(), console)
        if self.differential is not None:
            odd = self.differential[self.differential["p_adjusted"] < 0.05]
            counts = f"{len(odd)} of {len(self.differential)} (5 %, Benjamini-Hochberg)"
            shown = (odd if len(odd) else self.differential).head(max(items, 3))
            title = f"Images that differ at equal ability: {counts}"
            print_table(title, tuple(shown.columns), shown.to_numpy().tolist(), console)
        if self.sensitivity is not None:
            print_table("Ranked without", ("without", "Kendall tau", "ranks moved"), self.sensitivity[:10], console)
        if self.stability is not None:
            columns = ("images", "subsets", "width of the 95 %", "by the root", "ranks in the 95 %", "pairs separated")
            print_table("Ranked by fewer images", columns, self.stability, console)


def rankings_frame(every: Sequence[Any]) -> Any:
    """Return rankings or placements as one table.

    If there are several, the column `attacks` has the kind of attacks.
    """
    if len(every) == 1:
        return every[0].frame
    return pd.concat([ranked.frame.assign(attacks=ranked.layer) for ranked in every])


def rankings_document(every: Sequence[Any]) -> dict[str, Any]:
    """Return several rankings as one JSON document.

    The document is that of the first ranking. Each further ranking is an entry under the name of its kind of attacks.
    """
    first, *others = every
    return first.document | {other.layer: other.document for other in others}


def pair_sentences(ranking: Any, responses: Any) -> list[str]:
    """Return sentences on how many images would be needed to separate neighbours in a ranking."""
    return describe_projections(project_pairs(ranking, len(set(responses.images))))


def separating_sentences(ranking: Any, responses: Any) -> list[str]:
    """Return sentences on the attacks (or models) and images that separate the subjects, and on libraries.

    Empty unless the ranking is based on a converged item response model with binary responses.
    """
    fit = ranking.fit
    if fit is None or fit.model.response != "bernoulli" or fit.diagnostics.problem:
        return []
    sentences = []
    kinds = informative_items(fit, responses.values, item_kinds(responses))
    if len(kinds) > 1:
        shares = [f"{item} {share:.0%}" for item, share in zip(kinds["item"], kinds["share"], strict=True) if share]
        sides = "Models" if responses.kind in ("attacks", "implementations") else "Attacks"
        sentences.append(
            f"{sides} that separate the subjects, by proportion of the information: {abbreviate_list(shares)}."
        )
    images = informative_items(fit, responses.values, responses.images).query("share > 0")["item"].head(NAMED)
    sentences.append(f"Images that separate the subjects best: {', '.join(images)}.")
    libraries = libraries_of(responses.subjects)
    if responses.kind == "implementations" and len(set(libraries)) > 1:
        table = differential_groups(fit, responses.values, libraries, responses.images)
        sentences += describe_differences(table)
    return sentences


def _bars(frame: Any) -> list[str]:
    """Return a text drawing of each subject's interval, on a common scale. A character is 1 / `_BAR` of the scale."""
    low, high = frame["low"].min(), frame["high"].max()
    lines = []
    for row in frame[["low", "score", "high"]].to_numpy():
        start, middle, stop = ((row - low) / max(high - low, 1e-9) * (_BAR - 1)).round().astype(int).clip(0, _BAR - 1)
        line = [" "] * _BAR
        line[start : stop + 1] = "-" * (stop + 1 - start)
        line[middle] = "o"
        lines.append("".join(line))
    return lines


def _closing(ranking: Any, *, every: bool) -> list[str]:
    """Return lines that explain tie groups and, if `every`, agreement with other rankings and the fit."""
    lines = ["subjects with a letter in common do not differ significantly (95 %, all pairs)"]
    if not every:
        return lines
    taus = [f"{name} {'undefined' if math.isnan(tau) else f'{tau:.2f}'}" for name, tau in ranking.agreement.items()]
    lines.append(f"Kendall's tau with {', '.join(taus)}")
    quality = ranking.diagnostics
    if quality is not None:
        draws = f"{quality.chains} chains of {quality.draws} draws ({quality.sampler})"
        ess = f"effective draws {quality.bulk_ess:.0f} (bulk), {quality.tail_ess:.0f} (tail)"
        lines.append(f"{draws}: R-hat {quality.rhat:.4f}, {ess}, {quality.divergences} divergences")
    return lines


def _first(ranking: Any, rows: Sequence[Sequence[Any]]) -> str:
    """Describe the first-ranked subject: score, interval, and subjects that do not differ significantly."""
    rank, name, score, ends, ranks, first, *_ = rows[0]
    others = ranking.apart[ranking.subjects.index(name)]
    tied = [each for each, apart in zip(ranking.subjects, others, strict=True) if not apart and each != name]
    beside = (
        f"does not differ significantly from {abbreviate_list(tied)}"
        if tied
        else "differs significantly from all others"
    )
    interval = "" if ends == "-" else f" ({ends})"
    return f"rank {rank}: {name}, {ranking.score_name} {score}{interval}, ranks {ranks}, P(first) {first}; it {beside}"


@dataclass(frozen=True)
class PlacementOutput:
    """Placements of new subjects among the subjects of a baseline, for output.

    Args:
        title: title that states the baseline.
        placements: placement of each new subject.
        notes: notes on all placements.
    """

    title: str
    placements: tuple[Any, ...]
    notes: tuple[str, ...] = ()

    @property
    def frame(self) -> Any:
        """Table of all placements, with one row for each new subject and each subject of the baseline."""
        return pd.concat([each.to_frame() for each in self.placements], ignore_index=True)

    @property
    def lines(self) -> tuple[str, ...]:
        """Notes on the placements, without repetitions."""
        return tuple(dict.fromkeys((*self.notes, *(note for each in self.placements for note in each.notes))))

    @property
    def document(self) -> dict[str, Any]:
        """Placements as one JSON document."""
        placements = [each.to_dict() for each in self.placements]
        return {"title": self.title, "notes": list(self.notes), "placements": placements}

    def reworded(self, rewrite: Callable[[str], str]) -> "PlacementOutput":
        """Return a copy whose notes are rewritten by a function."""
        placements = tuple(replace(each, notes=tuple(map(rewrite, each.notes))) for each in self.placements)
        return replace(self, placements=placements, notes=tuple(map(rewrite, self.notes)))

    def print(self, _: int, console: PlainConsole) -> None:
        """Print the rank of each new subject with a table of all ranks, then the notes."""
        for placed in self.placements:
            _print_placement(self.title, placed, console)
        print_notes(self.lines, console)


def _print_placement(title: str, placed: Any, console: PlainConsole) -> None:
    name = placed.ranking.score_name
    columns = ("rank", "subject", name, "95 %", "ranks", "P(new above)", "mean", "ranks by bootstrap")
    rows = [
        (
            int(row["rank"]),
            row["subject"],
            f"{row['score']:.2f}",
            f"{row['low']:.2f} to {row['high']:.2f}",
            f"{row['rank_low']} - {row['rank_high']}",
            "new" if row["subject"] == placed.newcomer else f"{row['beats']:.2f}",
            f"{row['mean']:.3f}",
            f"{row['bootstrap_low']} - {row['bootstrap_high']}",
        )
        for row in placed.to_frame().to_dict("records")
    ]
    low, high = placed.rank_interval
    ranks = f"rank {low}" if low == high else f"ranks {low} to {high}"
    line = f"{placed.newcomer}: {ranks} of {len(rows)} (95 %); means are over its results"
    for each in (line, *(_choice_lines(placed) if placed.choice is not None else ())):
        console.print(each)
    print_table(f"{placed.newcomer} of {title}: {placed.ranking.method}", columns, rows, console, keys=2)


def _choice_lines(placed: Any) -> list[str]:
    """Describe how many images of the new subject would have been enough.

    If all images were too few, the lines name the most informative images without a result.
    """
    choice, last = placed.choice, placed.choice.steps[-1]
    ranks = f"ranks {last.rank_low} to {last.rank_high}, ability {last.low:.2f} to {last.high:.2f}"
    every = len(placed.ranking.subjects)
    if choice.width >= every - 1:
        return [f"cannot choose images: even all {placed.images} images leave every rank possible"]
    asked = f"an interval of {choice.width + 1} rank{'s' * (choice.width > 0)} or fewer"
    if choice.enough:
        return [f"{last.images} of {placed.images} images, chosen batch by batch, give {asked}: {ranks}"]
    lines = [f"all {placed.images} images do not give {asked}: {ranks}"]
    if choice.further:
        lines.append(f"the most informative images without a result: {', '.join(choice.further)}")
    return lines
