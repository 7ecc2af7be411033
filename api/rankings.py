"""Rankings and placements of results folders, as `davylamp rank` and `davylamp.rank` make them."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, overload

import pandas as pd

from ..adapters.threat_model import NORMS
from ..engine.store.data_frames import check_made_alike, choose_examples, load_outcomes
from ..engine.tables.metric_matrix import build_layers
from ..errors import InvalidInput, UnknownName, as_invalid_input
from ..scoring import Placement, Ranking, Responses, choose_results, place_results, rank_results
from ..scoring.result_rows import Choices, Per, Subjects, Unequal


@dataclass(frozen=True)
class RankedResults:
    """Which results are ranked, and what counts once.

    Args:
        subjects: see `build_responses`.
        budget: see there.
        per: see there.
        unequal: see there.
        original: see there.
        norm: only attacks in this norm; None: in any.
        knowledge: only attacks that know this much; None: all.
        examples: for "defences" of folders: made on each defended model or on its original; None: own if there are any.

    Raises:
        InvalidInput: for examples of other subjects, or with a budget.
        UnknownName: for a norm that does not exist.
    """

    subjects: Subjects = "models"
    budget: float | None = None
    per: Per = "attack"
    unequal: Unequal = "common"
    original: str | None = None
    norm: str | None = None
    knowledge: str | None = None
    examples: Literal["own", "original"] | None = None

    def __post_init__(self) -> None:
        if self.norm not in (None, *NORMS):
            raise UnknownName("norm", str(self.norm), NORMS)
        if self.examples is not None and self.subjects != "defences":
            raise InvalidInput(f"expected examples with subjects='defences', got {self.subjects}")
        if self.examples is not None and self.budget is not None:
            raise InvalidInput("expected `budget` without `examples`: the distances are those that fool the original")

    def read(self, source: str | Path | pd.DataFrame) -> tuple[pd.DataFrame, tuple[str, ...]]:
        """A row for each image, of defended models on examples that were made in one way; and notes.

        Args:
            source: a results folder, or a frame of one.
        """
        if isinstance(source, pd.DataFrame):
            if self.examples is not None:
                raise InvalidInput("expected a results folder with examples, got a frame, whose examples nobody knows")
            return choose_results(source, self.norm, self.knowledge), ()
        results = load_outcomes(source)
        failed = len(results.attrs["failed"])
        notes = (f"{failed} cells failed: their responses are missing",) if failed else ()
        results = choose_results(results, self.norm, self.knowledge)
        if self.subjects != "defences":
            return results, notes
        results, way = choose_examples(source, results, self.original, self.examples)
        return results, (*notes, way) if way else notes

    @property
    def of_responses(self) -> dict[str, Any]:
        """The choices that are made from the rows, by their names in `build_responses`."""
        return {name: getattr(self, name) for name in Choices._fields}


class ImageRanking(NamedTuple):
    """A ranking by images, the responses that it is of, and notes on the folder."""

    ranking: Ranking
    responses: Responses
    notes: tuple[str, ...]


@as_invalid_input()
def rank_images(source: str | Path | pd.DataFrame, chosen: RankedResults, **options: Any) -> ImageRanking:
    """Rank by the responses to each image.

    Args:
        source: a results folder, or a frame of one.
        chosen: which results.
        **options: of `rank_responses`: scoring, model, method, seed.

    Raises:
        InvalidInput: if they cannot be ranked.
    """
    results, notes = chosen.read(source)
    return ImageRanking(*rank_results(results, **chosen.of_responses, **options), notes)


@as_invalid_input()
def place_images(
    source: str | Path | pd.DataFrame, baseline: str | Path | pd.DataFrame, chosen: RankedResults, **options: Any
) -> tuple[tuple[Placement, ...], tuple[str, ...]]:
    """Place every subject that a baseline lacks among its subjects, by the responses to each image.

    Args:
        source: a results folder, or a frame of one, with the new subjects.
        baseline: a results folder, or a frame of one.
        chosen: which results, of both.
        **options: of `place_results`: scoring, model, method, seed, adaptive, width, batch.

    Returns:
        The placements, and notes on the folder of the new subjects.

    Raises:
        InvalidInput: if they cannot be placed.
    """
    if options.pop("scoring", "irt") != "irt":
        raise InvalidInput("expected scoring='irt' with a baseline: means over different images are no ranking")
    (new, notes), (known, _) = chosen.read(source), chosen.read(baseline)
    check_made_alike(known, new)
    return place_results(known, new, **chosen.of_responses, **options), notes


@overload
def rank(
    results: str | Path | pd.DataFrame,
    subjects: Literal["models", "attacks", "implementations", "defences"] = "models",
    *,
    against: None = None,
    **options: Any,
) -> Ranking: ...


@overload
def rank(
    results: str | Path | pd.DataFrame,
    subjects: Literal["models", "attacks", "implementations", "defences"] = "models",
    *,
    against: str | Path | pd.DataFrame,
    **options: Any,
) -> tuple[Placement, ...]: ...


def rank(
    results: str | Path | pd.DataFrame,
    subjects: Literal["models", "attacks", "implementations", "defences"] = "models",
    *,
    against: str | Path | pd.DataFrame | None = None,
    budget: float | None = None,
    per: Literal["attack", "implementation"] = "attack",
    norm: str | None = None,
    knowledge: Literal["white-box", "black-box", "score", "decision", "transfer"] | None = None,
    unequal: Literal["common", "keep"] = "common",
    original: str | None = None,
    examples: Literal["own", "original"] | None = None,
    **options: Any,
) -> Ranking | tuple[Placement, ...]:
    """Rank models, attacks or defences by item response theory on every image, with uncertainty.

    Args:
        results: a results folder, or the frame that `load` makes of one, perhaps filtered.
        subjects: what is ranked.
        against: results of a baseline: each subject that it lacks is placed among its subjects, one at a time, by the
            responses that both have; the abilities and items of the baseline stay as they are.
        budget: a radius at which smallest changes count.
        per: what counts once: an attack, by the strongest of its libraries on each image, or every implementation.
        norm: only attacks in this one.
        knowledge: only these attacks.
        unequal: what not every subject met is left out, or kept as missing.
        original: for "defences": the model that all others are defences of, where their names do not say it.
        examples: for "defences" of folders: made on each defended model, or on its original; None: own if there are
            any. With those of the original no budget: their distances are those that fool the original.
        **options: of `davylamp.scoring.rank_responses`: scoring, model, method, seed; without scoring for a baseline.
            Or `scoring="canary"`, as published from means of metrics, with propagate and seed: it needs the folder, or
            a CSV table of metrics, and ranks by one kind of attack: without `knowledge` by white-box ones where there
            are any.

    Returns:
        The ranking; with a baseline a placement for each newcomer.

    Raises:
        InvalidInput: with fewer than two subjects, or a choice that leaves nothing or would be ignored.
    """
    kind: dict[str, Any] = {"norm": norm, "knowledge": knowledge, "per": per, "original": original}
    chosen = RankedResults(subjects, budget, unequal=unequal, examples=examples, **kind)
    if options.get("scoring") == "canary" or _is_csv(results):
        given = {"against": against is not None, "budget": budget is not None, "unequal": unequal != "common"}
        return _rank_layers(results, subjects, {**kind, "examples": examples}, given, options)
    if against is not None:
        return place_images(results, against, chosen, **options)[0]
    return rank_images(results, chosen, **options).ranking


def _is_csv(results: str | Path | pd.DataFrame) -> bool:
    return not isinstance(results, pd.DataFrame) and Path(results).suffix == ".csv"


def _rank_layers(
    results: Any, subjects: Any, kind: dict[str, Any], given: dict[str, bool], options: dict[str, Any]
) -> Ranking:
    """By means of metrics; InvalidInput for what would be ignored."""
    ignored = dict(given)
    if _is_csv(results):
        ignored |= {name: kind[name] is not None for name in ("norm", "knowledge", "original", "examples")}
        ignored |= {"per": kind["per"] != "attack", "scoring": options.get("scoring", "canary") != "canary"}
    used = ("scoring", "propagate", "seed")
    ignored |= {name: name not in used for name in options if name != "scoring"}
    wrong = [name for name, is_given in ignored.items() if is_given]
    if wrong:
        raise InvalidInput(f"expected no {', '.join(wrong)}: means of metrics are ranked, with CANARY's model")
    return _rank_metrics(results, subjects, kind, **{k: v for k, v in options.items() if k != "scoring"})


def _rank_metrics(
    results: Any, subjects: Any, chosen: dict[str, Any], *, propagate: bool = False, seed: int = 0
) -> Ranking:
    """As CANARY, by the first layer of attacks that there is."""
    from ..scoring import VIEWS, metrics_of, rank_metrics

    if isinstance(results, pd.DataFrame):
        raise InvalidInput("expected a results folder or a CSV table of metrics with scoring='canary', got a frame")
    if subjects not in VIEWS:
        raise UnknownName("subjects", str(subjects), list(VIEWS))
    layers = build_layers(results, subjects, metrics_of(VIEWS[subjects]), **chosen)
    first, *others = layers
    try:
        ranking = rank_metrics(layers[first].frame, subjects, propagate=propagate, seed=seed)
    except ValueError as error:
        raise InvalidInput(str(error)) from error
    apart = tuple(f"by {first} attacks; knowledge={other!r} ranks by the others" for other in others)
    return replace(ranking, notes=(*ranking.notes, *layers[first].notes, *apart))
