"""Which cells of a plan ask a model for what it does not give; they are left out, with why."""

from collections.abc import Callable, Iterable
from functools import cache

import torch
from torch import Tensor

from ...adapters import Classifier, Implementation
from ...adapters.attack import RunSetting
from ...adapters.catalogue.lookup import why_not_on
from ...adapters.catalogue.step_size import resolve_step
from ...adapters.data.datasets import Data
from ...adapters.running.access import has_gradients, look, why_no_access, why_no_layers
from ...adapters.running.precision import why_not_in
from ...adapters.running.targets import why_no_class, why_no_targets
from ...errors import ModelFailed, Unsupported
from ..attack_shard import precisions_of
from ..cell import Cell

_NAMED = 3  # attacks that are named of those that are refused for one reason
_GIVES = "the model gives"  # in reasons that another kind of attack does not meet


def answerable(
    cells: Iterable[tuple[int, Cell]],
    classifier: Classifier,
    surrogate: Classifier | None,
    data: Data,
    *,
    refused: dict[str, str],
) -> list[tuple[int, Cell]]:
    """The cells that the model can be asked for.

    Args:
        cells: of one model, each with its place in the config.
        classifier: the model.
        surrogate: what their examples are made on; None: on the model itself.
        data: its images, of which one is asked about, and labels.
        refused: where it is noted why the model cannot be asked for the others, by attack and model.
    """
    if surrogate is not None:
        surrogate.answers.expect_labels(data.labels)
    kept: list[tuple[int, Cell]] = []
    known: dict[tuple[object, ...], str] = {}
    classes = cache(lambda asked: asked.num_classes or asked.predict_logits(data.inputs[:1].to(asked.device)).shape[1])
    for place, cell in cells:
        asked = cell.attack, cell.threat_model, cell.target, precisions_of(cell), str(cell.parameters)
        if asked not in known:
            known[asked] = _why_not(cell, classifier, surrogate, data.inputs[:1], classes)
        if known[asked]:
            refused[f"{cell.title} on {cell.subject.model}"] = known[asked]
        else:
            kept.append((place, cell))
    return kept


def left_of(cells: dict[str, Cell], refused: dict[str, str]) -> dict[str, Cell]:
    """The cells, by key; Unsupported if none is left, as models do not give or cannot do what the attacks ask for."""
    if refused and not cells:
        names: dict[str, list[str]] = {}
        for name, why in refused.items():
            names.setdefault(why, []).append(name)
        lines = (f"{', '.join(each[:_NAMED])}{', ...' * (len(each) > _NAMED)}: {why}" for why, each in names.items())
        needs_less = all(_GIVES in why for why in names)
        advice = "; davylamp attacks lists decision-based and score-based ones" if needs_less else ""
        raise Unsupported(f"{'; '.join(lines)}{advice}")
    return cells


def _why_not(
    cell: Cell,
    classifier: Classifier,
    surrogate: Classifier | None,
    image: Tensor,
    classes: Callable[[Classifier], int],
) -> str:
    """Why a cell cannot be run; "" if it can, or if the model fails: then running it says how."""
    learner = surrogate or classifier
    rows = cell.search.rows(cell.row)
    try:
        look(learner, image.to(learner.device))
        if cell.threat_model.targeted:
            why = why_no_targets(learner, cell.target)
            if why := why or why_no_class(learner, cell.target, image.to(learner.device)):
                return why
        if cell.fitted_on is not None and not has_gradients(learner, image.to(learner.device)):
            return "learns by gradients, and the model gives none"
        asked = ((row, classifier if row.learned else learner) for row in rows)
        return next(filter(None, (_why_no_row(cell, row, model, image, classes) for row, model in asked)), "")
    except ModelFailed:
        return ""


def _why_no_row(
    cell: Cell, row: Implementation, asked: Classifier, image: Tensor, classes: Callable[[Classifier], int]
) -> str:
    """Why a row of a cell cannot be run on the model that it asks."""
    if why := why_no_layers(row, asked):
        return why
    if not cell.search.is_portfolio:  # which goes on with its others
        rules = cell.search.first_rules(row, cell.threat_model, image[0].numel())
        parameters = resolve_step(cell.parameters, rules.epsilon)
        setting = RunSetting(asked.model, classes(asked), tuple(image.shape[1:]), rules, parameters)
        if why := why_not_on(row, setting):
            return why
    if cell.fitted_on is not None and not row.learned:
        return ""  # what it has learned is applied without a question
    refusals = [why_no_access(row, asked, image.to(asked.device), aimed=cell.threat_model.targeted)]
    refusals += [why_not_in(precision, asked, row, torch.device(cell.device)) for precision in precisions_of(cell)]
    return next(filter(None, refusals), "")
