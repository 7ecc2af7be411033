"""AISafety's Tables VIII and IX (Liu, Guo et al.): visibility of the adversarial test sets."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...engine.attack_run import AttackRun
from ...engine.statistics.bootstrap import Estimate, bootstrap_means, interval, resample
from ...metrics import perturbation_sensitivity_distance
from ..shared.paper_result import PaperLine
from ..shared.paper_table import Options
from ..shared.reproduction import SettingRun, build_rows, run_setting
from .setting import attack_name, beside_both, compare_parts, missing_rows, setting_of

_ATTACKS = ("FGSM", "PGD-l1", "PGD-l2", "PGD-linf")
_READINGS = {
    "ALD": "p = 2, over successes. The published rows of PGD-l1 and PGD-l2 have larger perturbations than the stated "
    "radii allow (`davylamp reproduce checks`)",
    "ASS": "SSIM with an 11 x 11 Gaussian; the paper gives no window",
    "PSD": "change times deviation, as in the program and the table; equation 6 divides by the deviation",
}


def compare_imperceptibility(table: str, options: Options, *, dataset: str) -> dict[str, Any]:
    """Measure how visible each attack's successful examples on each model are, and compare with a published table.

    Args:
        table: "aisafety_table8" or "aisafety_table9".
        options: options of the command.
        dataset: data set of the published table, "CIFAR-10" or "SVHN".
    """
    setting = setting_of(_ATTACKS, table, keep_images=True, measures=("distance", "perceptual"))

    def compare(run: SettingRun) -> dict[str, Any]:
        results, notes = build_rows(run.folder, ("ALD", "ASS"), "pairs")
        lines = []
        for row in results.rows:
            model, name = row.labels["model"], attack_name(row.labels["implementation"], row.labels["norm"])
            lines += [_line(run, table, model, name, symbol, row.metrics[symbol]) for symbol in results.symbols]
        for cell, estimate in _sensitivity(run):
            name = attack_name(cell.attack, cell.threat_model.norm)
            lines.append(_line(run, table, cell.subject.model, name, "PSD", estimate))
        lines.sort(key=lambda line: line.row)
        return run.report(table, lines, readings=_READINGS, left_out=missing_rows(table, _ATTACKS), notes=notes)

    if dataset == "CIFAR-10":
        return compare_parts(table, setting, options, compare)
    with run_setting(setting, options) as run:
        return compare(run)


def _line(run: SettingRun, table: str, model: str, attack: str, symbol: str, estimate: Estimate) -> PaperLine:
    return next(iter(beside_both(run, table, symbol, model, f"{model}, {attack}", estimate, attack=attack)))


def _sensitivity(run: SettingRun) -> Iterator[tuple[AttackRun, Estimate]]:
    """Yield each run with the metric PSD (perturbation sensitivity distance), computed as in AISafety's program."""
    for cell in run.plan.cells:
        classifier = run.models[cell.subject.model]
        data, examples = run.plan.data.load(classifier), run.read_examples(cell)
        success = classifier.predict_logits(examples.to(classifier.device)).argmax(1).cpu() != data.labels
        success &= classifier.predict_logits(data.inputs.to(classifier.device)).argmax(1).cpu() == data.labels
        values = perturbation_sensitivity_distance(
            data.inputs, examples, success, weighting="product", reduction="none"
        )
        (drawn,) = bootstrap_means(resample(len(success), 1000, 0), np.asarray(values.double())[:, None])
        yield cell, interval(drawn.ratio, drawn.n)
