"""AISafety, Table V (Liu, Guo et al.): distance to the decision boundary."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from ...adapters import Classifier
from ...engine.statistics.bootstrap import Estimate, bootstrap_means, interval, resample
from ...metrics import boundary_steps, empirical_boundary_distance, orthogonal_directions
from ..shared.paper_table import Options
from ..shared.reproduction import SettingRun
from .setting import beside_both, compare_parts, missing_rows, setting_of

_GRID = torch.arange(0.0, 128, 2)
_FULL, _DEFAULT, _QUICK = 1000, 100, 20  # directions
_READINGS = {
    "EBD": "over {} random orthogonal directions and the grid 0, 2, ..., 126 grey levels: the paper states "
    "neither; its program has 1000 directions and the same grid. More directions give a smaller distance",
    "EBD2": "steps of 0.0005 of BIM, at most 1000; images that no step fools are omitted, as in the program",
}


def compare_boundary_distances(table: str, options: Options) -> dict[str, Any]:
    """Measure the two distances to the decision boundary (EBD and EBD-2), and compare them with Table V.

    Args:
        table: "aisafety_table5".
        options: options of the command.
    """
    directions = _FULL if options.full else _QUICK if options.quick else _DEFAULT

    def compare(run: SettingRun) -> dict[str, Any]:
        lines = [
            line
            for model, classifier in run.models.items()
            for symbol, estimate in _distances(run, classifier, directions)
            for line in beside_both(run, table, symbol, model, model, estimate)
        ]
        readings = {symbol: text.format(directions) for symbol, text in _READINGS.items()}
        return run.report(table, lines, readings=readings, left_out=missing_rows(table, ()))

    setting = setting_of(("FGSM",), table, images=100, quick=20, measures=())
    return compare_parts(table, setting, options, compare, images=5)  # each is 6400 passes of a ResNet


def _distances(run: SettingRun, classifier: Classifier, count: int) -> Iterator[tuple[str, Estimate]]:
    data = run.plan.data.load(classifier)
    inputs, labels = data.inputs.to(classifier.device), data.labels.to(classifier.device)
    directions = orthogonal_directions(min(count, inputs[0].numel()), inputs[0])
    values = {
        "EBD": empirical_boundary_distance(classifier, inputs, labels, directions, _GRID, reduction="none"),
        "EBD2": boundary_steps(classifier, inputs, labels, reduction="none"),
    }
    counts = resample(len(labels), 1000, 0)
    for symbol, of_images in values.items():
        (drawn,) = bootstrap_means(counts, np.asarray(of_images.double().cpu())[:, None])
        yield symbol, interval(drawn.ratio, drawn.n)
