"""Summarises a finished task: mean accuracy under attack, and metrics of its defences (CAV, CCV, COS, CRR, CSR)."""

import math
import traceback
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ...engine.statistics.bootstrap import Estimate
from ...engine.store.results import Results, read_outcomes
from ...engine.store.shown import robust_when_shown
from ...engine.tables.defence_table import build_defence
from ...engine.tables.estimates import estimate_share
from ...errors import DavylampError
from ..components.validation import engine_name
from ..database.records import ComponentRow, TaskRow
from ..folder import ServerFolder

EFFECTS = ("CAV", "CCV", "COS", "CRR", "CSR")  # HikDeep-Sec's, section 4.2
_LABELS = ("examples", "made_on", "norm", "epsilon", "targeted", "setting", "images", "violations")
Subjects = Mapping[str, tuple[int, int | None]]


class TaskSummary(NamedTuple):
    """Summary of the results of a task.

    Args:
        score: mean accuracy under attack, with its 95 % interval (see `summarise_task`). NaN if there are no results.
        effects: metrics of each defended model under each attack, as a list of dictionaries with these keys:

            - "model", "defence" and "data": numbers of the components;
            - labels of a row of `build_defence`, such as "norm";
            - "knowledge": attacker knowledge, such as "white-box";
            - "metrics": value, lower bound, upper bound and number of images, by symbol of the metric. Undefined values
              are None.
    """

    score: Estimate
    effects: list[dict[str, Any]]


def component_folder(row: ComponentRow) -> str:
    """Return the folder that contains a component's file in a task, relative to the task's folder `room`."""
    return f"{row.creator.name}/{row.kind}-{row.name}-{row.version}"


def model_names(settings: Mapping[str, Any], names: Mapping[int, str]) -> dict[str, tuple[int, int | None]]:
    """Return the component numbers of model and defence for each model that a task evaluates.

    Returns:
        The numbers of model and defence, by the engine's name of the model. The defence is None for an undefended
        model.
    """
    models: dict[str, tuple[int, int | None]] = {}
    for model in settings["models"]:
        if settings["undefended"]:
            models[names[model]] = (model, None)
        for defence in settings["defences"]:
            models[f"{names[model]}+{names[defence]}"] = (model, defence)
    return models


def note_summary(folder: ServerFolder, number: int) -> None:
    """Compute the summary of a finished task, and store the summary in the database.

    If the results cannot be read, an empty summary is stored.
    """
    with folder.database.reading() as session:
        task = session.get(TaskRow, number)
        if task is None or task.state != "done":
            return
        names = {row.id: engine_name(row, component_folder(row)) for row in task.components}
    try:
        score, effects = summarise_task(folder, task, names)
    except Exception as error:  # a user's program may have written anything, and it is not tried again
        if not isinstance(error, DavylampError):
            traceback.print_exc()
        score, effects = Estimate(math.nan, math.nan, math.nan, 0), []
    with folder.database.writing() as session:
        task = session.get(TaskRow, number)
        if task is not None:
            task.score, task.score_low, task.score_high = map(_number, score[:3])
            task.effects = effects


def summarise_task(folder: ServerFolder, task: TaskRow, names: Mapping[int, str]) -> TaskSummary:
    """Compute the summary of a finished task.

    The score is the accuracy under attack, as a mean over data sets and, within a data set, over runs. Runs that differ
    only in the seed are averaged first. Invalid results count as fooled. In the upper bound of the interval, they count
    as robust. If the task has defences, only runs on defended models count.

    Args:
        folder: folder of the server.
        task: database row of the task.
        names: names by which the engine loads the components, by component number.

    Raises:
        DavylampError: If the results cannot be read.
    """
    of_defended = bool(task.settings["defences"])
    outcomes = read_outcomes(folder.task(task.id) / "results", ["OTR"])  # logits are read run by run: they may be large
    subjects = model_names(task.settings, names)
    scores, effects = [], []
    for data in task.settings["data"]:
        chosen = _on_data(outcomes, names[data])
        scores.append(_score(chosen, subjects, of_defended=of_defended))
        for name, (model, defence) in subjects.items():
            if defence is not None and task.settings["undefended"]:
                about = {"model": model, "defence": defence, "data": data}
                effects += [about | row for row in _effects(chosen, names[model], name)]
    known = [each for each in scores if each.n]
    mean, low, high = (sum(each[place] for each in known) / len(known) if known else math.nan for place in range(3))
    return TaskSummary(Estimate(mean, low, high, sum(each.n for each in known)), effects)


def _on_data(outcomes: Results, data: str) -> Results:
    clean = {key: each for key, each in outcomes.clean.items() if each.subject.data == data}
    return replace(outcomes, clean=clean, done=tuple(each for each in outcomes.done if each.cell.subject.data == data))


def _score(outcomes: Results, subjects: Subjects, *, of_defended: bool) -> Estimate:
    judged = {name for name, (_, defence) in subjects.items() if (defence is not None) == of_defended}
    parts: dict[tuple[str, ...], list[Any]] = {}
    for run in outcomes.done:
        cell = run.cell
        about = (cell.title, cell.threat_model.norm, str(cell.threat_model.epsilon), str(cell.spec["parameters"]))
        about += (cell.target,)
        if cell.subject.model in judged:
            parts.setdefault((cell.subject.model, "own", *about), []).append(
                (run.results.robust, run.results.robust_at_most)
            )
        for key in (outcomes.transfers or {}).get(cell.key, {}):
            tested = outcomes.clean.get(key)
            if tested is not None and tested.subject.model in judged:
                shown = robust_when_shown(outcomes, run, key)
                parts.setdefault((tested.subject.model, "original", *about), []).append(shown)
    least, most = ([[each[end] for each in part] for part in parts.values()] for end in (0, 1))
    return estimate_share(least, most)


def _effects(outcomes: Results, original: str, defended: str) -> list[dict[str, Any]]:
    """Return the metrics of a defended model under each attack, as JSON types.

    The list is empty if the undefended or the defended model has no results.
    """
    try:
        table = build_defence(outcomes, original, defended, metrics=EFFECTS)
    except DavylampError:
        return []
    knowledge = {run.cell.title: run.cell.knowledge for run in outcomes.done}
    rows = []
    for row in table.rows:
        labels: dict[str, Any] = {name: row.labels[name] for name in _LABELS}
        labels["epsilon"] = _number(labels["epsilon"])
        labels |= {"knowledge": knowledge.get(labels["examples"], "")}
        metrics = {symbol: [*map(_number, each[:3]), each.n] for symbol, each in row.metrics.items()}
        rows.append({**labels, "metrics": metrics})
    return rows


def _number(value: Any) -> float | None:
    return None if value is None or math.isnan(value) else float(value)
