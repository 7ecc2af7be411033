"""Data of a report: the results of a folder, which are read once, with thumbnails of the first images."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
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
    """Data from which all sections of a report are built.

    Args:
        path: path of the results folder.
        outcomes: finished runs as arrays, with thumbnails of the first images.
        states: state and metadata of every run, by key.
        titles: name of each finished run, by key. Two runs on the same model have different names.
        models: name of each model, by the key of its `ModelOnData`.
    """

    path: Path
    outcomes: Results
    states: Mapping[str, CellState]
    titles: Mapping[str, str]
    models: Mapping[str, str]

    @cached_property
    def standings(self) -> list[ThreatModelRanking]:
        """Ranking of the models under each threat model, the most robust model first."""
        return rank_models(self.outcomes, models_at_chance(self.outcomes))

    @property
    def models_in_order(self) -> list[str]:
        """Names of the models. Models under the first threat model come first, by robustness."""
        return list(dict.fromkeys(place.name for each in self.standings for place in each.places))

    def model(self, outcome: RunResult) -> str:
        """Return the name of the model that a run attacks."""
        return self.models[outcome.cell.subject.key]

    def title(self, outcome: RunResult) -> str:
        """Return the name of a run. Two runs on the same model have different names."""
        return self.titles[outcome.cell.key]


def read_folder(path: str | PathLike[str]) -> ReportData:
    """Read a results folder for a report.

    Raises:
        Unavailable: If there is no such folder, or it contains no run.
        StoreMismatch: If the folder has an unsupported format.
    """
    outcomes = read_outcomes(path, ["OTR", shown_symbol("FR@K")], examples=True)
    running = {cell.key: CellState(cell.key, cell, "running", "", {}) for cell in outcomes.running}
    ordered = sorted({**running, **outcomes.states}.values(), key=lambda state: order_of(state.cell))
    states = {state.key: state for state in ordered}
    return ReportData(Path(path), outcomes, states, name_cells(outcomes), model_names(outcomes))


def name_cells(outcomes: Results) -> dict[str, str]:
    """Return a name for every finished run, by key: implementation, threat model and, if needed, further settings.

    Further settings are added if two runs on the same model would otherwise have the same name.
    """
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
