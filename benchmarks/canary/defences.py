"""CANARY's metrics of defences (Sun et al. 2023, section 3.1.4), for which the paper prints no numbers.

As in the paper, adversarially trained models are attacked directly. Defences that transform the input are evaluated on
examples that are made on the undefended model.
"""

from typing import Any

from ...engine import AttackChoice, Config
from ...engine.tables.defence_table import build_defence
from ..shared.paper_numbers import load_rows
from ..shared.paper_result import PaperLine
from ..shared.paper_table import Options
from ..shared.reproduction import Setting, Size, run_setting
from ..shared.small_models import EPSILON

_TRAINED = ("pgd-training", "mart", "trades", "noise-training")
_PROCESSED = ("jpeg", "bit-depth", "median", "blur")
_MODELS = ("standard", *_TRAINED, *(f"standard+{defence}" for defence in _PROCESSED))
_MADE_ON = {"": "clean", "own": "made on each", "original": "made on the original"}
_ATTACKS = (
    AttackChoice("foolbox:fgsm", "linf", EPSILON),
    AttackChoice("foolbox:pgd", "linf", EPSILON, parameters={"steps": 20}),
)
_SETTING = Setting(
    Config(attacks=_ATTACKS, examples="both", measures=("effect", "distance", "perceptual"), limit=1000),
    default=Size(tuple(f"digits:{name}" for name in _MODELS), 397),
    quick=Size(tuple(f"digits:{name}" for name in ("standard", "pgd-training", "standard+jpeg")), 50, {"steps": 3}),
    data="digits",
)
_READINGS = {
    "CAV": "on clean images; AV in the paper, where AV, FV and CV together are called MCV",
    "CRR": "RR in the paper; CSR is its SR",
    "MRV": "in the paper, MRV and the differences of distances (ANDV) and similarities (AMSV) together are called ACV. "
    "On examples made on the undefended model, only MRV is defined",
    "ARAC": "decrease of each model's confidence in its prediction under attack; AITC is the increase",
}


def compare_measures(published: str, options: Options) -> dict[str, Any]:
    """Measure how each defended model differs from the undefended model, on clean images and under attack.

    The first model is the undefended model.

    Args:
        published: "canary_defences".
        options: options of the command.
    """
    with run_setting(_SETTING, options) as run:
        original, *defended = run.plan.config.models
        lines = []
        for model in defended:
            wanted = "original" if model.startswith(f"{original}+") else "own"
            for row in build_defence(run.folder, original, model).rows:
                if row.labels["made_on"] in ("", wanted):
                    what = row.labels["examples"] if row.labels["made_on"] else ""
                    title = ", ".join(part for part in (model, what, _MADE_ON[row.labels["made_on"]]) if part)
                    lines += [
                        PaperLine(title, symbol, estimate, None, "no numbers are printed")
                        for symbol, estimate in row.metrics.items()
                        if estimate.n
                    ]
        said = [f"{row['measure']} ({row['symbols']}): {row['statement']}" for row in load_rows(published)]
        return run.report(published, lines, readings=_READINGS, left_out={}, notes=said)
