"""A results folder as the report needs it: read once, with the first images as pictures."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ...adapters.display_text import format_threat_model
from ...engine.checks.check_folder import models_at_chance
from ...engine.checks.standings import ThreatModelRanking, rank_models
from ...engine.store.plan_records import CellState
from ...engine.store.record_validation import order_of
from ...engine.store.results import Results, RunResult, distinguishing_settings, read_outcomes
from ...engine.tables.groups import distinguishing_text, model_names
from ...engine.tables.symbols import shown_symbol


@dataclass(frozen=True)
class ReportData:
    """What a report is about.

    Args:
        path: the results folder.
        outcomes: finished cells as arrays, the first images as pictures.
        states: every cell by key, with its state and what is known of its run.
        titles: a name for each cell that no other cell of its model has.
        models: name of each model by key of its subject.
    """

    path: Path
    outcomes: Results
    states: Mapping[str, CellState]
    titles: Mapping[str, str]
    models: Mapping[str, str]

    @cached_property
    def standings(self) -> list[ThreatModelRanking]:
        """The models under each threat model, the most robust first."""
        return rank_models(self.outcomes, models_at_chance(self.outcomes))

    @property
    def models_in_order(self) -> list[str]:
        """Names of the models, the most robust under the first threat model before the others."""
        return list(dict.fromkeys(place.name for each in self.standings for place in each.places))

    def model(self, outcome: RunResult) -> str:
        """Name of the model that a cell attacks."""
        return self.models[outcome.cell.subject.key]

    def title(self, outcome: RunResult) -> str:
        """Name of a cell beside the others on its model."""
        return self.titles[outcome.cell.key]


def read_folder(path: str | Path) -> ReportData:
    """Read everything that a report shows.

    Raises:
        Unavailable: if there is no such folder, or no cell in it.
        StoreMismatch: if it was written in another format.
    """
    outcomes = read_outcomes(path, ["OTR", shown_symbol("FR@K")], examples=True)
    running = {cell.key: CellState(cell.key, cell, "running", "", {}) for cell in outcomes.running}
    ordered = sorted({**running, **outcomes.states}.values(), key=lambda state: order_of(state.cell))
    states = {state.key: state for state in ordered}
    return ReportData(Path(path), outcomes, states, name_cells(outcomes), model_names(outcomes))


def name_cells(outcomes: Results) -> dict[str, str]:
    """A name for every finished cell: implementation and threat model, and what else tells it from like ones."""
    alike: dict[tuple[str, str], list[RunResult]] = {}
    for outcome in outcomes.done:
        alike.setdefault(
            (outcome.cell.subject.key, f"{outcome.cell.title} {format_threat_model(outcome.cell.threat_model)}"), []
        ).append(outcome)
    names = {}
    for (_, name), cells in alike.items():
        options = [distinguishing_settings(outcome.cell) | {"seed": str(outcome.cell.seed)} for outcome in cells]
        for outcome, text in zip(cells, distinguishing_text(options), strict=True):
            names[outcome.cell.key] = f"{name}, {text}" if text else name
    return names
