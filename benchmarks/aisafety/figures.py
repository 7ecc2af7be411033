"""AISafety's Figures 2 to 7 (Liu, Guo et al.). They have no numbers, so results are compared with the paper's text."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ...adapters import Classifier
from ...adapters.data.corruptions.published import BENCHMARK
from ...adapters.data.corruptions.sequences import SEQUENCES
from ...engine import ResultsStore
from ...engine.run.corruptions import CorruptionPlan, measure_corruptions
from ...engine.statistics.bootstrap import Estimate, bootstrap_means, interval, resample
from ...engine.store.results import read_outcomes
from ...engine.tables.corruption_table import build_corruptions
from ...metrics import empirical_boundary_distance, orthogonal_directions
from ..shared.paper_numbers import load_rows
from ..shared.paper_result import PaperLine
from ..shared.paper_table import Options
from ..shared.reproduction import SettingRun, build_rows, run_setting
from .setting import attack_name, setting_of

_SYMBOLS = ("AAW", "ACAC", "ACTC", "NTE")
_RADII: Mapping[str, Sequence[float]] = {"quick": (0.03, 0.1), "default": (0.01, 0.03, 0.06, 0.1)}
_SMALL, _LARGE = 32, 64  # pixels of CIFAR-10-P, and of Tiny ImageNet-P, whose steps are not here
_GRID = torch.arange(0.0, 128, 2)
_MODELS_OF = "aisafety_table5"  # the same models
_DATA_SETS: Mapping[str, tuple[str, ...]] = {"4": ("CIFAR-10",), "5": ("SVHN",), "7": ("CIFAR-10",)}  # the rest: both
_SHARES = (0.1, 0.25, 0.5, 0.75, 0.9)
_ADVERSARIAL = {
    "AAW": "accuracy over all images",
    "ACAC": "mean over the examples that fool the model",
    "ACTC": "mean over the examples that fool the model",
    "NTE": "mean over the examples that fool the model",
}
_BOUNDARY = {
    "EBD of a direction": "mean over the images along one random direction, on the grid 0, 2, ..., 126 grey levels",
    "EBD": "quantiles over the images of the smallest distance over all directions; 126: no step changes the decision",
}
_CORRUPTION = {
    "mCE": "sums of error rates over the severities, mean over the corruptions",
    "RmCE": "these sums minus the error on clean images",
    "mFR": "mean ratio of flip probabilities to those of the first model, along sequences of frames",
}
_NOISE = {"ENI": "10 versions of each image with uniform noise; the paper mixes noise, blur and attacks"}
_NEURONS = {
    "NS": "outputs of convolutions and linear layers, before activation functions; NS@LAYER of one layer, "
    "NS their mean",
    "NU": "variance over the positions of a map, of clean images",
}


def compare_radii(published: str, options: Options) -> dict[str, Any]:
    """Reproduce Figure 2: accuracy, confidences and noise tolerance under FGSM and PGD at increasing radii.

    Args:
        published: "aisafety_figures".
        options: options of the command.
    """
    setting = setting_of(("FGSM", "PGD-linf"), _MODELS_OF, images=397, quick=20, measures=("effect",))
    radii = _RADII["quick" if options.quick else "default"]
    attacks = tuple(replace(choice, epsilon=radius) for choice in setting.config.attacks for radius in radii)
    with run_setting(replace(setting, config=replace(setting.config, attacks=attacks)), options) as run:
        results, notes = build_rows(run.folder, _SYMBOLS, "pairs")
        ordered = sorted(
            results.rows, key=lambda row: (row.labels["model"], row.labels["implementation"], row.labels["epsilon"])
        )
        lines = [
            PaperLine(
                f"{row.labels['model']}, {attack_name(row.labels['implementation'], row.labels['norm'])} "
                f"{row.labels['epsilon']:.3g}",
                symbol,
                row.metrics[symbol],
                None,
                f"a curve of {run.title_of(row.labels['model'])}",
            )
            for row in ordered
            for symbol in results.symbols
        ]
        return _report(run, published, ("2",), lines, _ADVERSARIAL, notes)


def compare_directions(published: str, options: Options, *, figure: str) -> dict[str, Any]:
    """Reproduce Figure 4 or 5: distance to the decision boundary along random directions, and quantiles over images.

    Args:
        published: "aisafety_figures".
        options: options of the command.
        figure: "4" or "5".
    """
    count = 100 if options.full else 5 if options.quick else 20
    with run_setting(setting_of(("FGSM",), _MODELS_OF, images=100, quick=10, measures=()), options) as run:
        lines = [
            PaperLine(f"{model}, {what}", symbol, estimate, None, f"a curve of {run.title_of(model)}")
            for model, classifier in run.models.items()
            for what, symbol, estimate in _boundary(run, classifier, count)
        ]
        return _report(
            run, published, (figure,), lines, _BOUNDARY, [f"{count} directions; the paper does not state the number"]
        )


def _report(
    run: SettingRun,
    published: str,
    figures: Sequence[str],
    lines: list[PaperLine],
    readings: Mapping[str, str],
    notes: Sequence[str],
    left_out: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    stated = [row for row in load_rows(published) if row["figure"] in figures]
    sets = _DATA_SETS.get(figures[0], ("CIFAR-10", "SVHN"))
    shown = run.pairing.data_set if run.pairing.data_set in sets else sets[0]
    lines = [line._replace(data_set=shown) for line in lines]
    said = [f"the paper's text on Figure {row['figure']}: {row['statement']}" for row in stated]
    return run.report(published, lines, readings=readings, left_out=left_out or {}, notes=[*notes, *said])


def _boundary(run: SettingRun, classifier: Classifier, count: int) -> Iterator[tuple[str, str, Estimate]]:
    """Yield the mean distance to the boundary along each direction, and quantiles of the smallest distance.

    Distances are in grey levels. The smallest distance of an image is over all directions.

    Yields:
        Name of the direction or quantile, symbol of the metric, and the distance.
    """
    data = run.plan.data.load(classifier)
    inputs, labels = data.inputs.to(classifier.device), data.labels.to(classifier.device)
    directions = orthogonal_directions(min(count, inputs[0].numel()), inputs[0])
    along = [
        empirical_boundary_distance(classifier, inputs, labels, one[None], _GRID, reduction="none").double().cpu()
        for one in directions
    ]
    counts = resample(len(labels), 1000, 0)
    for place, values in enumerate(along):
        (drawn,) = bootstrap_means(counts, np.asarray(values)[:, None])
        yield f"direction {place + 1}", "EBD of a direction", interval(drawn.ratio, drawn.n)
    least = torch.stack(along).amin(0)  # on a grid, equal to querying all directions together
    for share in _SHARES:
        yield f"quantile {share}", "EBD", Estimate(float(least.quantile(share)), float("nan"), float("nan"), len(least))


def compare_corruptions(published: str, options: Options) -> dict[str, Any]:
    """Reproduce Figure 3: errors on corrupted images, and changes of the prediction along sequences of frames.

    The numbers are relative to the first model, which is the undefended model.

    Args:
        published: "aisafety_figures".
        options: options of the command.
    """
    with run_setting(setting_of(("FGSM",), _MODELS_OF, images=100, quick=10, measures=()), options) as run:
        first = run.plan.config.models[0]
        corruptions = BENCHMARK[:2] if options.quick else BENCHMARK
        images = run.plan.data.load(run.models[first])
        missing = _SMALL < max(images.inputs.shape[2:]) <= _LARGE
        sequences = () if missing else ("gaussian_noise", "translate") if options.quick else tuple(SEQUENCES)
        plan = CorruptionPlan(run.plan.config.data, corruptions, sequences=sequences, images=images, seed=options.seed)
        measure_corruptions(run.models, plan, ResultsStore(run.folder), options.progress)
        table = build_corruptions(run.folder, baseline=first)
        lines = [
            PaperLine(
                row.labels["model"],
                symbol,
                estimate,
                None,
                f"a bar of {run.title_of(row.labels['model'])}",
            )
            for row in table.rows
            for symbol, estimate in row.metrics.items()
        ]
        notes = [f"{len(corruptions)} corruptions at five severities, {len(sequences)} sequences; base: {first}"]
        left_out = {"mFR": f"no sequences for images of {_SMALL + 1} to {_LARGE} pixels"} if missing else {}
        return _report(run, published, ("3",), lines, _CORRUPTION, [*notes, *table.notes], left_out)


def compare_noise(published: str, options: Options) -> dict[str, Any]:
    """Reproduce Figure 6: insensitivity to noise at increasing radii.

    Args:
        published: "aisafety_figures".
        options: options of the command.
    """
    lines: list[PaperLine] = []
    for radius in _RADII["quick" if options.quick else "default"]:
        setting = setting_of(("FGSM",), _MODELS_OF, quick=10, measures=(f"consistency:epsilon={radius},versions=10",))
        with run_setting(setting, options) as run:
            results, notes = build_rows(run.folder, ("ENI",), "pairs")
            lines += [
                PaperLine(
                    f"{row.labels['model']}, epsilon {radius}",
                    "ENI",
                    row.metrics["ENI"],
                    None,
                    f"a curve of {run.title_of(row.labels['model'])}",
                )
                for row in results.rows
            ]
            result = _report(run, published, ("6",), sorted(lines), _NOISE, notes)
    return result


def compare_neurons(published: str, options: Options) -> dict[str, Any]:
    """Reproduce Figure 7: sensitivity of neurons under FGSM and PGD, and uncertainty of neurons, for each layer.

    Args:
        published: "aisafety_figures".
        options: options of the command.
    """
    setting = setting_of(("FGSM", "PGD-linf"), _MODELS_OF, quick=10, measures=("neurons",))
    with run_setting(setting, options) as run:
        columns = read_outcomes(run.folder).done[0].columns
        symbols = [name for name in columns if name.partition("@")[0] in ("NS", "NU")]
        results, notes = build_rows(run.folder, symbols, "pairs")
        lines = [
            PaperLine(
                f"{row.labels['model']}, {attack_name(row.labels['implementation'], row.labels['norm'])}",
                symbol,
                row.metrics[symbol],
                None,
                f"a curve of {run.title_of(row.labels['model'])}",
            )
            for row in results.rows
            for symbol in results.symbols
        ]
        return _report(run, published, ("7",), lines, _NEURONS, notes)
