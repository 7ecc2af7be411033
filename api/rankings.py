"""Ranks the models, attacks or defences in a results folder, and places new ones in the ranking of a baseline."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal, NamedTuple, overload

import pandas as pd

from ..adapters.coercion import type_error
from ..adapters.parameters import parse_number
from ..adapters.threat_model import NORMS
from ..deprecation import takes_old_names
from ..engine import ResultsStore
from ..engine.store.data_frames import check_made_alike, choose_examples, load_outcomes
from ..engine.store.imported import published_note
from ..engine.store.notes import omit_undeclared, sequence_notes, version_notes
from ..engine.store.results import as_results
from ..engine.tables.metric_matrix import build_layers
from ..errors import InvalidInput, UnknownName, as_invalid_input
from ..report.text.ranking import PlacementOutput, RankingOutput, pair_sentences, separating_sentences
from ..scoring import (
    VIEWS,
    Placement,
    Ranking,
    Responses,
    choose_results,
    describe_items,
    differential_items,
    leave_one_out,
    metrics_of,
    of_subjects,
    place_results,
    place_row,
    rank_matrix,
    rank_metrics,
    rank_results,
    rank_subsamples,
)
from ..scoring.response_model import Curve
from ..scoring.result_rows import Choices, Per, Subjects, Unequal

PUBLISHED = "published:"  # prefix of a table bundled with davylamp
_OPTIONS = (
    "scoring",
    "model",
    "method",
    "seed",
    "curve",
    "uncapped",
    "propagate",
    "adaptive",
    "max_rank_width",
    "batch_images",
)  # of `rank`, in addition to its named keywords
_MEANT = {"epsilon": "budget", "fit": "method", "item_model": "model"}  # the command's names
_USUAL = {"subjects": "models", "per": "attack", "unequal": "common", "propagate": False, "adaptive": False}
_USUAL |= {"curve": "intercept", "uncapped": False}
_OF_LAYERS = ("curve", "uncapped", "propagate")  # options of CANARY's method


@dataclass(frozen=True)
class RankedResults:
    """Options that select the results to rank. They are the named options of `rank`.

    Args:
        subjects: see `build_responses`.
        budget: see `build_responses`.
        per: see `build_responses`.
        unequal: see `build_responses`.
        original: see `build_responses`.
        norm: norm of the attacks. None for any norm.
        knowledge: attacker knowledge of the attacks. None for any attacker knowledge.
        examples: for subjects "defences" of a results folder, the examples on which defended models are compared.
            "defended" stands for examples made on each defended model, and "original" for examples made on the
            undefended model. None for "defended" if such examples exist, and otherwise for "original".

    Raises:
        InvalidInput: if `examples` is given for subjects other than "defences", or together with `budget`.
        UnknownName: if the norm does not exist.
    """

    subjects: Subjects = "models"
    budget: float | None = None
    per: Per = "attack"
    unequal: Unequal = "common"
    original: str | None = None
    norm: str | None = None
    knowledge: str | None = None
    examples: Literal["defended", "original"] | None = None

    def __post_init__(self) -> None:
        if self.norm not in (None, *NORMS):
            raise UnknownName("norm", str(self.norm), NORMS)
        if self.examples is not None and self.subjects != "defences":
            raise InvalidInput(f"`examples` needs subjects='defences', got {self.subjects}")
        if self.examples is not None and self.budget is not None:
            raise InvalidInput(
                "`budget` and `examples` cannot be combined: distances of examples made on the undefended model "
                "say nothing about defended models"
            )

    def read(self, source: str | PathLike[str] | pd.DataFrame) -> tuple[pd.DataFrame, tuple[str, ...]]:
        """Read the selected results.

        Args:
            source: a results folder, or a frame loaded from a results folder.

        Returns:
            A frame with one row per run and image, and notes for the reader.
        """
        if isinstance(source, pd.DataFrame):
            if self.examples is not None:
                raise InvalidInput("`examples` needs a results folder: a frame does not say how its examples were made")
            return choose_results(source, self.norm, self.knowledge), ()
        outcomes, undeclared = omit_undeclared(as_results(source))
        results, failed = load_outcomes(outcomes), len(outcomes.failed)
        notes = (f"{failed} runs failed: their responses are missing",) if failed else ()
        notes += undeclared + tuple(map(str, (*version_notes(outcomes), *sequence_notes(outcomes))))
        results = choose_results(results, self.norm, self.knowledge)
        if self.subjects != "defences":
            return results, notes
        results, way = choose_examples(source, results, self.original, self.examples)
        return results, (*notes, way) if way else notes

    @property
    def of_responses(self) -> dict[str, Any]:
        """The options that `build_responses` accepts, as keywords."""
        return {name: getattr(self, name) for name in Choices._fields}


class ImageRanking(NamedTuple):
    """A ranking by the responses to each image, with the responses. The last notes are about the results folder."""

    ranking: Ranking
    responses: Responses


@as_invalid_input()
def rank_images(source: str | PathLike[str] | pd.DataFrame, chosen: RankedResults, **options: Any) -> ImageRanking:
    """Rank subjects (models, attacks, implementations or defences) by the responses to each image.

    Args:
        source: a results folder, or a frame loaded from a results folder.
        chosen: selection of the results.
        **options: options of `rank_responses`: scoring, model, method, seed.

    Raises:
        InvalidInput: if the results cannot be ranked.
    """
    results, notes = chosen.read(source)
    if chosen.subjects == "models" and not isinstance(source, pd.DataFrame):
        notes += tuple(published_note(ResultsStore(source, create=False)))
    ranking, responses = rank_results(results, **chosen.of_responses, **options)
    return ImageRanking(replace(ranking, notes=(*ranking.notes, *notes)), responses)


@as_invalid_input()
def place_images(
    source: str | PathLike[str] | pd.DataFrame,
    baseline: str | Path | pd.DataFrame,
    chosen: RankedResults,
    **options: Any,
) -> tuple[tuple[Placement, ...], tuple[str, ...]]:
    """Rank each new subject among the subjects of a baseline, by the responses to each image.

    A subject is a model, attack, implementation or defence. It is new if the baseline does not contain it.

    Args:
        source: a results folder with the new subjects, or a frame loaded from a results folder.
        baseline: a results folder, or a frame loaded from a results folder.
        chosen: selection of the results. It applies to `source` and `baseline`.
        **options: options of `place_results`: scoring, model, method, seed, adaptive, max_rank_width, batch_images.

    Returns:
        The placements, and notes on the folder of the new subjects.

    Raises:
        InvalidInput: if the subjects cannot be placed.
    """
    options.pop("scoring", None)
    (new, notes), (known, _) = chosen.read(source), chosen.read(baseline)
    check_made_alike(known, new)
    return place_results(known, new, **chosen.of_responses, **options), notes


@overload
def rank(
    results: str | PathLike[str] | pd.DataFrame,
    subjects: Literal["models", "attacks", "implementations", "defences"] = "models",
    *,
    against: None = None,
    **options: Any,
) -> Ranking: ...


@overload
def rank(
    results: str | PathLike[str] | pd.DataFrame,
    subjects: Literal["models", "attacks", "implementations", "defences"] = "models",
    *,
    against: str | PathLike[str] | pd.DataFrame,
    **options: Any,
) -> tuple[Placement, ...]: ...


@takes_old_names("max_rank_width", "batch_images")
def rank(
    results: str | PathLike[str] | pd.DataFrame,
    subjects: Literal["models", "attacks", "implementations", "defences"] = "models",
    *,
    against: str | PathLike[str] | pd.DataFrame | None = None,
    budget: float | None = None,
    per: Literal["attack", "implementation"] = "attack",
    norm: str | None = None,
    knowledge: Literal["white-box", "black-box", "score", "decision", "transfer"] | None = None,
    unequal: Literal["common", "keep"] = "common",
    original: str | None = None,
    examples: Literal["defended", "original"] | None = None,
    **options: Any,
) -> Ranking | tuple[Placement, ...]:
    """Rank models, attacks, implementations or defences by item response theory, with intervals for the ranks.

    The ranked objects are called subjects. An item is an image under an attack. The response says whether the attack
    fooled the model on this image.

    Args:
        results: a results folder, or a frame from `load`, possibly filtered.
        subjects: what to rank: "models", "attacks", "implementations" or "defences".
        against: results folder or frame of a baseline. Each subject of `results` that is not in the baseline is ranked
            among the baseline's subjects, separately from the other new subjects. The estimates for the baseline do not
            change. None to rank the subjects of `results`.
        budget: largest distance at which an example counts as fooling the model. None for any distance.
        per: "attack" to count each attack once, by its strongest library on each image. "implementation" to count each
            library's version of an attack separately.
        norm: norm of the attacks. None for any norm.
        knowledge: attacker knowledge of the attacks. None for any attacker knowledge.
        unequal: what to do with an item for which a subject has no response. "common" omits the item. "keep" keeps the
            item, with a missing response.
        original: for "defences", name of the undefended model. None if the name is part of the other models' names.
        examples: for "defences", the examples on which defended models are compared. "defended" stands for examples
            made on each defended model, and "original" for examples made on the undefended model. None for "defended"
            if such examples exist, and otherwise for "original". `examples` cannot be combined with `budget`.
        **options: options of `davylamp.scoring.rank_responses`: scoring, model, method, seed. `scoring="canary"` ranks
            by means of metrics, and has the options curve, uncapped, propagate and seed. It needs a results folder or a
            CSV table of metrics. Unless `knowledge` is given, it ranks by white-box attacks if there are any.

    Returns:
        The ranking. With `against`, one placement (rank and its interval) for each new subject.

    Raises:
        InvalidInput: if there are fewer than two subjects, no results are selected, or an argument would have no
            effect.
        UnknownName: for an unknown keyword.
    """
    for name in options:
        if name not in _OPTIONS:
            known = ("against", *(each.name for each in fields(RankedResults)), *_OPTIONS)
            raise UnknownName("keyword", name, known, meant=_MEANT.get(name, ""))
    for each in (results, against):
        if not (isinstance(each, (str, PathLike, pd.DataFrame)) or each is against is None):
            raise type_error("a results folder, a CSV table of metrics or a frame of `load`", each)
    choices = {"against": against, "budget": budget, "per": per, "norm": norm, "knowledge": knowledge}
    choices |= {"subjects": subjects, "unequal": unequal, "original": original, "examples": examples, **options}
    stated = {name: value for name, value in choices.items() if value is not None}
    asked = _settle(
        results,
        {name: value for name, value in stated.items() if _is_frame(value) or value != _USUAL.get(name)},
    )
    if against is not None:
        placements, notes = asked.place()
        return tuple(replace(each, notes=(*notes, *each.notes)) for each in placements)
    if not asked.of_metrics:
        return asked.rank().ranking
    first, *others = asked.rank_layers()
    apart = tuple(f"ranked by {first.layer} attacks; knowledge={other.layer!r} ranks by the others" for other in others)
    return replace(first.ranking, notes=(*first.ranking.notes, *apart))


class LayerRanking(NamedTuple):
    """A ranking by means of metrics (CANARY's method), computed from the white-box or from the black-box attacks.

    Attributes:
        layer: kind of the attacks: "white-box" or "black-box". "all" for a ranking of a CSV table.
        ranking: the ranking. The last notes are about the table of metrics.
        metrics: number of metrics.
        without: how the ranking changes if one metric is omitted, for each metric. None if not requested.
    """

    layer: str
    ranking: Ranking
    metrics: int
    without: Any = None


class _RankRequest(NamedTuple):
    """Checked arguments of a ranking.

    Args:
        results: a results folder, a frame loaded from a results folder, or a CSV table of metrics.
        against: the baseline. None for a ranking without a baseline.
        chosen: selection of the results.
        options: options of the ranking: scoring, model, method, seed. With a baseline also adaptive, max_rank_width and
            batch_images.
        of_metrics: whether the ranking is by means of metrics.
        of_layers: options of a ranking by means of metrics: curve, uncapped, propagate.
    """

    results: Any
    against: Any
    chosen: RankedResults
    options: dict[str, Any]
    of_metrics: bool
    of_layers: dict[str, Any]

    @property
    def layers(self) -> dict[str, Any]:
        """The options in `chosen` that `build_layers` accepts, as keywords."""
        return {name: getattr(self.chosen, name) for name in ("norm", "knowledge", "per", "original", "examples")}

    def rank(self) -> ImageRanking:
        return rank_images(self.results, self.chosen, **self.options)

    def rank_layers(self, *, sensitivity: bool = False) -> list[LayerRanking]:
        more = {**self.of_layers, "sensitivity": sensitivity, "seed": self.options.get("seed", 0)}
        return rank_layers(self.results, self.chosen.subjects, self.layers, **more)

    def place(self) -> tuple[tuple[Placement, ...], tuple[str, ...]]:
        if not self.of_metrics:
            return place_images(self.results, self.against, self.chosen, **self.options)
        more = {**self.of_layers, "seed": self.options.get("seed", 0)}
        return place_metrics(self.results, self.against, self.chosen.subjects, self.layers, **more)


def rank_in_detail(
    results: str | PathLike[str] | pd.DataFrame,
    given: Mapping[str, Any],
    *,
    library: str | None = None,
    sensitivity: bool = False,
    stability: bool = False,
    items: int | None = None,
) -> list[Any]:
    """Compute the rankings that `davylamp rank` prints, with optional details.

    Args:
        results: see `rank`.
        given: keywords of `rank` that the user gave, with their values. A keyword without effect raises an error.
        library: name of a library whose implementations are compared with those of other libraries (differential item
            functioning). The result lists images on which the library's implementations succeed more or less often than
            equally strong implementations of other libraries. None for no comparison.
        sensitivity: whether to repeat the ranking without each subject, or without each metric.
        stability: whether to repeat the ranking with parts of the images.
        items: number of images to show. If the ranking does not use single images, a number raises an error.

    Returns:
        A list with one `PlacementOutput` if `given` has `against`. Otherwise a list of `RankingOutput`s: a single one,
        or one for each kind of attacks if the ranking is by means of metrics.

    Raises:
        DavylampError: see `rank`.
    """
    details = {"library": library, "sensitivity": sensitivity, "stability": stability}
    named = [name for name, value in details.items() if value] + ([] if items is None else ["items"])
    asked = _settle(results, given, named)
    subjects, against = asked.chosen.subjects, given.get("against")
    if against is not None:
        return [PlacementOutput(f"{results} against {against}", *asked.place())]
    if asked.of_metrics:
        layers = []
        for each in asked.rank_layers(sensitivity=sensitivity):
            which = "" if is_csv(results) else f", {each.layer} attacks"
            title = f"{subjects} of {results}{which}: {each.ranking.method}, {each.metrics} metrics"
            layers.append(RankingOutput(title, each.ranking, sensitivity=each.without, layer=each.layer))
        return layers
    with as_invalid_input():
        return [_describe(asked, asked.rank(), library=library, sensitivity=sensitivity, stability=stability)]


def _settle(results: Any, given: Mapping[str, Any], details: Collection[str] = ()) -> _RankRequest:
    """Check the keywords of a ranking, and convert them to a `_RankRequest`.

    Raises:
        InvalidInput: for a keyword that would have no effect.
    """
    rest = dict(given)
    subjects, against, scoring = rest.get("subjects", "models"), rest.pop("against", None), rest.get("scoring", "irt")
    rows = {name: rest.pop(name) for name in (each.name for each in fields(RankedResults)) if name in rest}
    if isinstance(rows.get("budget"), str):
        rows["budget"] = parse_number(rows["budget"], "`budget`")
    chosen = RankedResults(**rows)
    refuse_ignored([*given, *details], results, subjects, scoring, against)
    of_layers = {name: rest.pop(name) for name in _OF_LAYERS if name in rest}
    return _RankRequest(results, against, chosen, rest, is_of_metrics(results, scoring, against), of_layers)


def _describe(
    asked: _RankRequest, ranked: ImageRanking, *, library: str | None, sensitivity: bool, stability: bool
) -> RankingOutput:
    """Build the output for a ranking by responses to images, with the requested details."""
    (ranking, responses), chosen, options = ranked, asked.chosen, asked.options
    names = responses.subjects
    size = f"{responses.values.shape[1]} items, {len(set(responses.images))} images"
    table = differential = dropped = None
    if library is not None:
        _check_library(library, names)
    if ranking.fit is not None:
        table = describe_items(ranking.fit, responses.values, responses.images)
        if library is not None:
            focal = [name.partition(":")[0] == library for name in names]
            differential = differential_items(ranking.fit, responses.values, focal, responses.images)
    if sensitivity:
        if len(names) < 3:
            raise InvalidInput(f"expected at least 3 {chosen.subjects} for `sensitivity`, got {len(names)}")
        dropped = leave_one_out(
            lambda kept: rank_matrix(of_subjects(responses, kept), **options).score, names, axis="subjects"
        )
    return RankingOutput(
        f"{chosen.subjects} of {asked.results}: {ranking.method}, {size}",
        ranking,
        table,
        differential,
        dropped,
        sentences=tuple(pair_sentences(ranking, responses)),
        separating=tuple(separating_sentences(ranking, responses)),
        stability=rank_subsamples(responses, ranking, **options) if stability else None,
    )


def _check_library(library: str, implementations: Collection[str]) -> None:
    """Raise an error unless the library has an implementation, and at least one other library has one."""
    have = list(dict.fromkeys(name.partition(":")[0] for name in implementations))
    if library not in have:
        raise UnknownName("library", library, have)
    if len(have) < 2:
        raise InvalidInput(f"`library={library}` needs implementations of at least two libraries")


def _is_frame(value: Any) -> bool:
    return isinstance(value, pd.DataFrame)


def is_csv(results: Any) -> bool:
    """Whether the results are given as a CSV table of metrics."""
    return isinstance(results, (str, PathLike)) and Path(results).suffix == ".csv"


def is_of_metrics(results: Any, scoring: str, against: Any = None) -> bool:
    """Whether a ranking uses means of metrics (CANARY's method) instead of responses to single images."""
    published = isinstance(against, str) and against.startswith(PUBLISHED)
    return scoring == "canary" or is_csv(results) or is_csv(against) or published


def refuse_ignored(
    given: Collection[str], results: Any, subjects: str, scoring: str = "irt", against: Any = None
) -> None:
    """Raise an error for arguments that would have no effect, before the results are read.

    Args:
        given: names of the arguments that the user gave.
        results: see `rank`.
        subjects: see `rank`.
        scoring: see `rank`.
        against: see `rank`.

    Raises:
        InvalidInput: for the first argument without effect.
    """
    of_metrics, of_defences = is_of_metrics(results, scoring, against), subjects == "defences"
    is_file = is_csv(results) and (against is None or is_csv(against))
    by_mean = scoring in ("mean", "borda")

    def listed(*names: str) -> str:
        return ", ".join(f"`{name}`" for name in names if name in given)

    def refuse(names: str, line: str, *, unless: bool = False) -> None:
        if names and not unless:
            raise InvalidInput(line)

    adaptive = listed("adaptive", "max_rank_width", "batch_images")
    is_placed = against is not None
    line = f"{adaptive} needs `against`, and cannot be used with tables of metrics or scoring='canary'"
    refuse(adaptive, line, unless=is_placed and not of_metrics)
    refuse(adaptive, f"{adaptive} cannot be used without `adaptive`", unless="adaptive" in given)
    if is_placed:
        line = f"`against` and scoring='{scoring}' cannot be combined: the images of the two folders may differ"
        refuse("scoring" if by_mean else "", line)
        ignored = listed("library", "items", "sensitivity", "stability", "propagate")
        refuse(ignored, f"`against` cannot be combined with {ignored}, which needs a ranking without a baseline")
    if of_metrics:
        names = ["budget", "library", "unequal", "model", "method", "items", "stability"]
        names += ["norm", "knowledge", "per", "original"] if is_file else []
        ignored = listed(*names, *(["scoring"] if by_mean else []))
        what = "a CSV table" if is_file else "scoring='canary'" if scoring == "canary" else "a table of metrics"
        refuse(ignored, f"{what} cannot be combined with {ignored}: CANARY's model for metrics has no such option")
        line = "`per` has no effect with scoring='canary' and subjects='defences', which averages over libraries"
        refuse(listed("per"), line, unless=not of_defences)
    else:
        refuse(listed("propagate"), "`propagate` needs scoring='canary', the only scoring with two layers")
        ignored = listed("curve", "uncapped")
        refuse(ignored, f"{ignored} needs scoring='canary'")
        ignored = listed("model", "method", "items")
        refuse(ignored, f"{ignored} needs scoring='irt', got scoring='{scoring}'", unless=scoring == "irt")
    of_implementations = subjects == "implementations"
    line = "`library` needs subjects='implementations' and scoring='irt'"
    refuse(listed("library"), line, unless=of_implementations and scoring == "irt")
    line = "`per` has no effect with subjects='implementations', because every implementation is ranked"
    refuse(listed("per"), line, unless=not of_implementations)
    line = "`examples` needs subjects='defences' of a results folder"
    refuse(listed("examples"), line, unless=of_defences and not is_csv(results))
    line = (
        "`examples` cannot be used with a table of metrics as baseline: the table does not say how examples were made"
    )
    refuse(listed("examples"), line, unless=not is_placed or not of_metrics)
    refuse(listed("original"), "`original` needs subjects='defences'", unless=of_defences)


def rank_layers(
    results: Any,
    subjects: Any,
    chosen: dict[str, Any],
    *,
    curve: Curve = "intercept",
    uncapped: bool = False,
    propagate: bool = False,
    sensitivity: bool = False,
    seed: int = 0,
) -> list[LayerRanking]:
    """Rank by means of metrics (CANARY's method). A folder's white-box and black-box attacks are ranked separately.

    Args:
        results: a results folder or a CSV table of metrics.
        subjects: see `rank`.
        chosen: options of `build_layers`: norm, knowledge, per, original, examples.
        curve: see `davylamp.scoring.rank_table`.
        uncapped: see `davylamp.scoring.rank_table`.
        propagate: whether the intervals include the uncertainty of both layers of CANARY's model.
        sensitivity: whether to repeat the ranking without each metric.
        seed: random seed.

    Raises:
        InvalidInput: if no table can be ranked.
    """
    if isinstance(results, pd.DataFrame):
        raise InvalidInput("expected a results folder or a CSV table of metrics with scoring='canary', got a frame")
    if subjects not in VIEWS:
        raise UnknownName("subjects", str(subjects), list(VIEWS))
    options: dict[str, Any] = {"curve": curve, "uncapped": uncapped, "seed": seed}
    every: list[LayerRanking] = []
    wrong: dict[str, ValueError] = {}
    for layer, matrix in build_layers(results, subjects, metrics_of(VIEWS[subjects]), **chosen).items():

        def score(kept: Any, frame: pd.DataFrame = matrix.frame) -> Any:
            return rank_metrics(frame.iloc[:, kept], subjects, **options).score

        try:
            ranking = rank_metrics(matrix.frame, subjects, propagate=propagate, **options)
        except ValueError as error:
            wrong[layer] = error
            continue
        columns = list(matrix.frame.columns)
        without = leave_one_out(score, columns, axis="items") if sensitivity else None
        ranking = replace(ranking, notes=(*ranking.notes, *matrix.notes))
        every.append(LayerRanking(layer, ranking, len(columns), without))
    if not every:
        raise InvalidInput(" ".join(str(next(iter(wrong.values()))).split()))
    notes = tuple(f"no ranking by {layer} attacks: {error}" for layer, error in wrong.items())
    return [each._replace(ranking=replace(each.ranking, notes=(*each.ranking.notes, *notes))) for each in every]


def place_metrics(
    folder: Any, against: Any, subjects: Any, chosen: dict[str, Any], **more: Any
) -> tuple[tuple[Placement, ...], tuple[str, ...]]:
    """Rank each new subject among the subjects of a baseline by means of metrics (CANARY's method).

    Args:
        folder: results folder or CSV table of metrics with the new subjects.
        against: results folder or CSV table of the baseline, or the name of a published table, "published:NAME".
        subjects: what to rank, see `rank`.
        chosen: options of `build_layers`: norm, knowledge, per, original.
        **more: options of `davylamp.scoring.place_row`: curve, uncapped, seed.

    Returns:
        The placements, and notes on the tables.

    Raises:
        InvalidInput: if the baseline already contains all subjects, or the subjects do not fit a published table.
    """
    from ..benchmarks.canary.table9 import PUBLISHED as TABLES
    from ..benchmarks.canary.table9 import published_baseline

    for each in (folder, against):
        if isinstance(each, pd.DataFrame):
            raise InvalidInput("expected folders or CSV tables of metrics with scoring='canary', got a frame")
    new = _read_layer(folder, subjects, chosen, least=1)
    notes: list[str] = [*new.notes]
    if str(against).startswith(PUBLISHED):
        name = str(against).removeprefix(PUBLISHED)
        values, names, metrics = published_baseline(name, chosen["knowledge"])
        if subjects != TABLES[name]:
            raise InvalidInput(f"expected subjects='{TABLES[name]}' with {against}, got {subjects}")
        notes.append(
            f"{against} was measured on the paper's images and attacks; with others, the means are not comparable"
        )
    else:
        matrix = _read_layer(against, subjects, chosen)
        values, names, metrics = matrix.frame.to_numpy(), list(matrix.frame.index), list(matrix.frame.columns)
        notes += [note for note in matrix.notes if note not in notes]
    unknown = [symbol for symbol in new.frame.columns if symbol not in metrics]
    notes += [f"omitted: {', '.join(unknown)}: not in the baseline"] if unknown else []
    both = [name for name in new.frame.index if name in names]
    notes += [f"omitted: {', '.join(both)}: already in the baseline"] if both else []
    rows = new.frame.drop(index=both).reindex(columns=metrics)
    if rows.empty:
        raise InvalidInput(f"{fspath(against)} already has all {subjects}, so there is nothing to place")
    options = {"view": VIEWS[subjects], **more}
    answers = dict(zip(map(str, rows.index), rows.to_numpy(dtype=float), strict=True))
    placements = [place_row(values, names, metrics, row, name, **options) for name, row in answers.items()]
    return tuple(placements), tuple(notes)


def _read_layer(folder: Any, subjects: Any, chosen: dict[str, Any], least: int = 2) -> Any:
    """Return the table of metrics for the white-box attacks, or for the black-box attacks if there are no others.

    If there are both kinds of attacks, a note says how to rank by the other kind.
    """
    layers = build_layers(folder, subjects, metrics_of(VIEWS[subjects]), least=least, **chosen)
    layer, matrix = next(iter(layers.items()))
    if len(layers) == 1:
        return matrix
    note = f"ranked by {layer} attacks; set `knowledge` for {', '.join(name for name in layers if name != layer)}"
    return matrix._replace(notes=(*matrix.notes, note))
