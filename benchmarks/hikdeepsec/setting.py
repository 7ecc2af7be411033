"""HikDeep-Sec's Tables 1 and 2 (Zhang et al. 2023): an adversarially trained model compared with an undefended model.

The paper uses ResNet34 on CIFAR-10 and SVHN, and publishes no weights. Two small models of digits replace the paper's
models in both tables: an undefended model, and a model that is adversarially trained as in the paper.
"""

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

from ...engine import ResultsStore, build_defence, proportion_interval
from ...engine.plan.presets import find_preset
from ...engine.statistics.bootstrap import Estimate
from ...engine.store.transfers import read_shown
from ..shared.counterpart import Counterpart
from ..shared.paper_numbers import find_value
from ..shared.paper_result import PaperLine
from ..shared.paper_table import Options
from ..shared.reproduction import Setting, SettingRun, Size, run_setting

_NAMES: Mapping[str, str] = {"fgsm": "FGSM", "pgd": "PGD", "bim": "BIM"}
_SYMBOLS = ("CAV", "CCV", "COS", "CRR", "CSR")
_MODELS = ("digits:standard", "digits:pgd-training")
_SETTING = Setting(
    replace(find_preset("hikdeepsec").config, examples="original", measures=("effect",)),
    default=Size(_MODELS, 397),
    quick=Size(_MODELS, 50),
    data="digits",
    papers=("undefended", "defended"),
)
_READINGS = {
    "ACC": "accuracy of the defended model; Clopper and Pearson's interval",
    "CAV": "both models on the same examples, made on the undefended one: the paper does not state which set its "
    "tables are about, but CAV > 0 only fits adversarial examples",
    "CCV": "mean absolute difference of the true class's probability if both are correct",
    "COS": "divergence in nats, if both are correct; the paper gives no base",
}


def compare_defence(table: str, options: Options, *, dataset: str) -> dict[str, Any]:
    """Measure how the defended model differs from the undefended model, and compare with a published table.

    Both models classify the same examples, which are made on the undefended model.

    Args:
        table: "hikdeepsec_table1" or "hikdeepsec_table2".
        options: options of the command. Of the user's models, the first is the undefended model and the last is the
            defended model. Other models are ignored.
        dataset: data set of the published table, "CIFAR-10" or "SVHN".
    """
    with run_setting(replace(_SETTING, recognise=_recognise), options) as run:
        models = run.plan.config.models
        first = next((name for name in models if run.row_of(name) == "undefended"), models[0])
        last = next((name for name in models if run.row_of(name) == "defended"), models[-1])
        built = build_defence(run.folder, first, last, metrics=_SYMBOLS)
        lines = []
        for row in (row for row in built.rows if row.labels["made_on"] == "original"):
            epsilon = f"{Fraction(row.labels['epsilon'] * 255).limit_denominator(100)}/255"
            name = _NAMES[row.labels["examples"].rpartition(":")[2]]
            labels = {"attack": name, "epsilon": epsilon}
            for symbol, estimate in {"ACC": _accuracy(run, last, row.labels), **row.metrics}.items():
                beside = find_value(table, symbol, **labels), f"{dataset} ResNet34"
                lines.append(PaperLine(f"{name} {epsilon}", symbol, estimate, *beside, data_set=dataset, labels=labels))
        lines.sort(key=lambda line: tuple(_NAMES.values()).index(line.row.split()[0]))
        return run.report(table, lines, readings=_READINGS, left_out={})


def _recognise(model: str) -> Counterpart:
    return Counterpart({"digits:standard": "undefended", "digits:pgd-training": "defended"}.get(model, ""))


def _accuracy(run: SettingRun, name: str, labels: Mapping[str, Any]) -> Estimate:
    plan = run.plan
    tested = next(subject for subject, _ in plan.subjects if subject.model == name)
    wanted = labels["examples"], labels["epsilon"]
    cell = next(cell for _, cell in plan.transfers if (cell.attack, cell.threat_model.epsilon) == wanted)
    shown = read_shown(ResultsStore(run.folder, create=False), cell.key, tested.key)
    assert shown is not None
    right = shown.logits.argmax(1) == plan.data.load(run.models[name]).labels
    return Estimate(float(right.double().mean()), *proportion_interval(int(right.sum()), len(right)), len(right))
