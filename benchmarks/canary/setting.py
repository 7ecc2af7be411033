"""Common setting of CANARY's Tables 4 to 8: the attacks, their names in davylamp, and the meaning of the columns."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from ...adapters import find_attack
from ...engine import AttackChoice
from ...engine.plan.presets import find_preset
from ...engine.searches.kinds import parse_search
from ...engine.statistics.bootstrap import Estimate
from ..shared.paper_numbers import find_beside, find_place, find_value, load_rows
from ..shared.paper_result import PaperLine
from ..shared.paper_table import Options
from ..shared.reproduction import Setting, Size, build_rows, lines_beside, run_setting

NAMES: Mapping[str, str] = {
    "fgsm": "FGSM",
    "jsma": "JSMA",
    "deepfool": "DeepFool",
    "bim": "I-FGSM",
    "cw": "C&W Attack",
    "pgd": "PGD",
    "ead-en": "EAD",
    "mi-fgsm": "MI-FGSM",
    "vmi-fgsm": "VMI-FGSM",
    "ni-fgsm": "NI-FGSM",
    "si-fgsm": "SI-FGSM",
    "ssah": "SSAH",
    "advgan": "AdvGan",
    "tremba": "TREMBA",
    "lsa": "LSA",
    "boundary": "BA",
    "spatial": "SA",
    "spsa": "SPSA",
    "hopskipjump": "HSJA",
    "genattack": "GA",
}
FAMILIES: Mapping[str, str] = {
    "alexnet": "AlexNet",
    "vgg": "VGG",
    "googlenet": "GoogLeNet",
    "inception": "InceptionV3",
    "resnet": "ResNet",
    "densenet": "DenseNet",
    "squeezenet": "SqueezeNet",
    "mobilenet": "MobileNetV3",
    "shufflenet": "ShuffleNetV2",
    "mnasnet": "MNASNet",
    "efficientnet": "EfficientNetV2",
    "vit": "ViT",
    "regnet": "RegNet",
    "swin": "SwinT",
    "convnext": "ConvNeXt",
}
STAND_INS: Mapping[str, str] = {}  # the paper's name -> the attack that is run
TRANSFERABLE = ("mi-fgsm", "vmi-fgsm", "ni-fgsm", "si-fgsm")
PRESET = find_preset("canary")
_DEFAULT = {"steps": 8, "binary_search_steps": 2, "samples": 2, "translations": 2, "rotations": 3, "epochs": 4}
_QUICK = {
    "steps": 3,
    "binary_search_steps": 1,
    "candidates": 3,
    "samples": 1,
    "translations": 2,
    "rotations": 2,
    "epochs": 1,
}
SETTING = Setting(
    PRESET.config,
    default=Size(("demo:*",), 3, _DEFAULT, 60),
    quick=Size(("demo:efficientnet-lite0",), 2, _QUICK, 24),
    data_set="ImageNet",
)
_CHEAP = (AttackChoice("foolbox:fgsm", "linf", 1 / 255),)  # a results folder needs at least one attack
_CLEAN = Setting(
    replace(PRESET.config, attacks=_CHEAP, transfer="no", measures=()),
    default=replace(SETTING.default, images=20),
    quick=replace(SETTING.quick, images=20),
    data_set="ImageNet",
)
READINGS: Mapping[str, str] = {
    "CF": "mean over the classes that occur; the printed sum over images is a mistake",
    "CC": "confidence of the true class, whether predicted or not",
    "AIAC": "after minus before: the signs of the table, not the order of the printed formula",
    "ACAMC_A": "Grad-CAM of the logit at the last convolution",
    "ACAMC_T": "Grad-CAM of the logit at the last convolution",
    "OTR": "over the examples that fool their source model",
    "CTC": "five equal groups by rank of time: the paper gives no limits of its levels",
    "QNC_F": "passes per image, over successes",
    "QNC_B": "passes per image, over successes",
    "APCR": "components that differ after rounding to 8 bits",
    "AED": "root mean square divided by sqrt(3), the only normaliser that fits the table; the printed one differs",
    "FDL": "Haar, root mean square, as in the text; the table contains a Fourier filter of rescaled grey images, its "
    "columns swapped: no difference is given",
    "FDH": "as FDL",
    "ADMS": "DISTS; needs VGG16's weights",
    "ALMS": "MS-GMSD on luma, as in the text; the table contains the chromatic form, so no difference is given",
}
NOT_COMPARABLE = ("FDL", "FDH", "ALMS")


def scale(symbol: str, estimate: Estimate) -> Estimate:
    """Scale our number to the unit of the printed table."""
    if symbol != "AED":
        return estimate
    value, low, high = (number / math.sqrt(3) for number in estimate[:3])
    return Estimate(value, low, high, estimate.n)


def paper_name(implementation: str) -> str:
    """Return CANARY's name of an attack.

    Args:
        implementation: name of an implementation, such as "foolbox:fgsm".
    """
    return NAMES[find_attack(parse_search(implementation.partition(" ")[0]).inside.partition(":")[2]).name]


def run_name(implementation: str) -> str:
    """Return the name of the attack that is actually run under a name of CANARY, if it is a replacement.

    Args:
        implementation: name of an implementation, such as "foolbox:fgsm".
    """
    name = paper_name(implementation)
    return STAND_INS.get(name, name)


def row_of(labels: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels of the corresponding published row: `attack`, and `epsilon` for transferable attacks."""
    name = paper_name(labels["implementation"])
    if name not in [NAMES[attack] for attack in TRANSFERABLE]:
        return {"attack": name}
    return {"attack": name, "epsilon": f"{Fraction(labels['epsilon'] * 255).limit_denominator(100)}/255"}


def readings_of(symbols: Sequence[str]) -> dict[str, str]:
    """Describe how the columns and replacements of a table are interpreted."""
    stand_ins = {
        f"{run} for {paper}": "a different attack, so no difference is given" for paper, run in STAND_INS.items()
    }
    return {symbol: READINGS[symbol] for symbol in symbols if symbol in READINGS} | stand_ins


def left_out(table: str) -> dict[str, str]:
    """Return the published attacks that have no implementation."""
    names = [row["attack"] for row in load_rows(table) if row["attack"] not in NAMES.values()]
    return dict.fromkeys(names, "not implemented in any library")


def family_of(model: str) -> str:
    """Return the paper's model of the same family; "" without one."""
    return next((paper for part, paper in FAMILIES.items() if part in model.lower()), "")


def compare_attacks(table: str, options: Options, *, symbols: Sequence[str]) -> dict[str, Any]:
    """Compare every attack's means over the models with a published table.

    Args:
        table: "canary_table4" or "canary_table5".
        options: options of the command.
        symbols: columns.
    """
    with run_setting(SETTING, options) as run:
        results, notes = build_rows(run.folder, symbols, "attacks")
        lines = [
            PaperLine(
                " ".join({**row_of(row.labels), "attack": run_name(row.labels["implementation"])}.values()),
                symbol,
                scale(symbol, row.metrics[symbol]),
                find_value(table, symbol, **row_of(row.labels)),
                "the paper's 15 models",
                symbol not in NOT_COMPARABLE and paper_name(row.labels["implementation"]) not in STAND_INS,
            )
            for row in sorted(results.rows, key=lambda row: find_place(table, **row_of(row.labels)))
            for symbol in results.symbols
        ]
        return run.report(table, lines, readings=readings_of(symbols), left_out=left_out(table), notes=notes)


def compare_clean(table: str, options: Options, *, symbols: Sequence[str]) -> dict[str, Any]:
    """Compare the models on clean images with the paper's models of the same family.

    Args:
        table: "canary_table7".
        options: options of the command.
        symbols: columns.
    """
    with run_setting(_CLEAN, options) as run:
        results, notes = build_rows(run.folder, symbols, "models")
        lines = lines_beside(table, [(row, labels_of(row.labels["model"])) for row in results.rows])
        readings = {symbol: READINGS[symbol] for symbol in symbols if symbol in READINGS}
        return run.report(table, lines, readings=readings, left_out={}, notes=notes)


def beside(table: str, symbol: str, model: str, **labels: Any) -> tuple[float | None, str]:
    """Return the published number for a model and its origin: its family, or the mean over all models.

    Args:
        table: table with a row for each model.
        symbol: symbol of the metric.
        model: name of our model.
        **labels: additional labels of the row.
    """
    return find_beside(table, symbol, **labels_of(model), **labels)


def labels_of(model: str) -> dict[str, str]:
    """Return the labels of the published rows of a model's family; empty if there is none."""
    family = family_of(model)
    return {"model": family} if family else {}
