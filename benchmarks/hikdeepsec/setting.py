"""HikDeep-Sec's Tables 1 and 2 (Zhang et al. 2023): an adversarially trained model against the same one undefended.

The paper has ResNet34 on CIFAR-10 and SVHN, and gives no weights. Both tables are run on the same small models.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from ...engine import share_interval
from ...engine.cell import Cell
from ...engine.plan.presets import find_preset
from ...engine.statistics.bootstrap import Estimate, draw_means, interval, resample
from ...engine.statistics.paired_tests import difference_interval
from ...metrics import METRICS
from ..shared.paper_numbers import find_value
from ..shared.paper_table import Options
from ..shared.reproduction import PaperLine, Setting, SettingRun, Size, run_setting

_NAMES: Mapping[str, str] = {"fgsm": "FGSM", "pgd": "PGD", "bim": "BIM"}
_SYMBOLS = ("CAV", "CCV", "COS", "CRR", "CSR")
_MODELS = ("digits:standard", "digits:pgd-training")
_SETTING = Setting(
    replace(find_preset("hikdeepsec").config, keep_images=True, measures=("effect",)),
    default=Size(_MODELS, 397),
    quick=Size(_MODELS, 50),
    data="digits",
)
_READINGS = {
    "ACC": "accuracy of the defended model; Wilson interval",
    "CAV": "both models on the same examples, made on the undefended one: the paper does not say which set its tables "
    "are about, but CAV > 0 only fits adversarial examples",
    "CCV": "mean absolute difference of the true class's probability where both are right",
    "COS": "divergence in nats, where both are right; the paper gives no base",
}


def compare_defence(table: str, options: Options, *, dataset: str) -> dict[str, Any]:
    """The last model, defended, against the first, on the examples made on the first, beside a published table.

    Args:
        table: "hikdeepsec_table1" or "hikdeepsec_table2".
        options: of the command; of more than two models only the first and the last are compared.
        dataset: that it is about.
    """
    with run_setting(_SETTING, options) as run:
        lines = []
        for cell in (cell for cell in run.plan.cells if cell.subject.model == run.plan.config.models[0]):
            epsilon = f"{Fraction((cell.threat_model.epsilon or 0) * 255).limit_denominator(100)}/255"
            name = _NAMES[cell.row.attack]
            for symbol, estimate in _measure(run, cell):
                published = find_value(table, symbol, attack=name, epsilon=epsilon)
                lines.append(PaperLine(f"{name} {epsilon}", symbol, estimate, published, f"{dataset} ResNet34"))
        lines.sort(key=lambda line: tuple(_NAMES.values()).index(line.row.split()[0]))
        return run.report(table, lines, readings=_READINGS, left_out={})


def _measure(run: SettingRun, cell: Cell) -> Iterator[tuple[str, Estimate]]:
    original, defended = (run.models[run.plan.config.models[place]] for place in (0, -1))
    labels, examples = run.plan.data.load(original).labels, run.read_examples(cell)
    logits = [classifier.predict_logits(examples.to(classifier.device)).cpu() for classifier in (original, defended)]
    right = int((logits[1].argmax(1) == labels).sum())
    yield "ACC", Estimate(right / len(labels), *share_interval(right, len(labels)), len(labels))
    counts = resample(len(labels), 1000, 0)
    for symbol in _SYMBOLS:
        values = METRICS[symbol].function(*logits, labels, reduction="none")
        (drawn,) = draw_means(counts, np.asarray(values.double())[:, None])
        estimate, count = interval(drawn.ratio, drawn.n), len(values)
        if symbol in {"CRR", "CSR"}:
            low, high = share_interval(int(values.sum()), count)
            estimate = estimate._replace(low=low, high=high)
        elif symbol == "CAV":
            ends = difference_interval(int((values > 0).sum()), int((values < 0).sum()), count, level=0.95)
            estimate = estimate._replace(low=ends.low, high=ends.high)
        yield symbol, estimate
