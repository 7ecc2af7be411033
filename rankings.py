"""Rankings and placements of results folders, as `davylamp rank` and `davylamp.rank` make them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pandas as pd

from .adapters.threat_model import NORMS
from .engine.store.data_frames import check_made_alike, choose_examples, load_outcomes
from .errors import InvalidInput, UnknownName, as_invalid_input
from .scoring import Placement, Ranking, Responses, choose_results, place_results, rank_results
from .scoring.result_rows import Choices, Per, Subjects, Unequal


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
