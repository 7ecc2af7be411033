"""Common setting of CANARY's Tables 4 to 8 (Sun et al. 2023): attacks, models, names, and meaning of the columns."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from ...adapters import find_attack
from ...engine import AttackChoice
from ...engine.plan.presets import find_preset
from ...engine.searches.kinds import parse_search
from ...engine.statistics.bootstrap import Estimate
from ...engine.tables.symbols import By
from ...engine.tables.table import Table
from ..shared.counterpart import Counterpart
from ..shared.paper_numbers import find_place, find_value, load_rows
from ..shared.paper_result import PaperLine
from ..shared.paper_table import Options
from ..shared.reproduction import Setting, Size, build_rows, lines_beside, run_setting

# Symbol -> the reading that has the quantity of the paper's tables, where its text has a different one.
PUBLISHED_FORMS_OF: Mapping[str, str] = {"FDL": "FDL@published", "FDH": "FDH@published", "ALMS": "ALMS@chromatic"}
SYMBOLS_OF_FORMS: Mapping[str, str] = {form: symbol for symbol, form in PUBLISHED_FORMS_OF.items()}
PUBLISHED_FORMS = tuple(SYMBOLS_OF_FORMS)
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
OTHER_ATTACK = "another attack"
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
PAPERS = tuple(FAMILIES.values())
_SAME = ("alexnet", "googlenet", "inception_v3")  # the others have several sizes, and the paper does not say which


def recognise(model: str) -> Counterpart:
    """Return the paper's model of the same family as an evaluated model, and whether it is the same model."""
    row = next((paper for part, paper in FAMILIES.items() if part in model.lower()), "")
    return Counterpart(row, model.partition(":")[2].partition(":")[0] in _SAME and model.startswith("torchvision:"))


SETTING = Setting(
    replace(PRESET.config, measures=(*PRESET.config.measures, *PUBLISHED_FORMS)),
    default=Size(("demo:*",), 3, _DEFAULT, 60),
    quick=Size(("demo:efficientnet-lite0",), 2, _QUICK, 24),
    data_set="ImageNet",
    papers=PAPERS,
    recognise=recognise,
)
_CHEAP = (AttackChoice("foolbox:fgsm", "linf", 1 / 255),)  # a results folder needs at least one attack
_CLEAN = replace(
    SETTING,
    config=replace(PRESET.config, attacks=_CHEAP, transfer="no", measures=()),
    default=replace(SETTING.default, images=20),
    quick=replace(SETTING.quick, images=20),
)
READINGS: Mapping[str, str] = {
    "CF": "mean over the classes that occur; the printed sum over images is a mistake",
    "CC": "confidence of the true class, whether predicted or not",
    "AIAC": "after minus before: the signs of the table, not the order of the printed formula",
    "ACAMC_A": "Grad-CAM of the logit at the last convolution",
    "ACAMC_T": "Grad-CAM of the logit at the last convolution",
    "OTR": "over the examples that fool their source model",
    "CTC": "five levels with equal numbers of attacks, by time; the paper does not give the limits of its levels",
    "QNC_F": "passes per image, over successes",
    "QNC_B": "passes per image, over successes",
    "APCR": "components that differ after rounding to 8 bits",
    "AED": "root mean square divided by sqrt(3), the only normaliser that fits the table; the printed one differs",
    "FDL": "the Fourier filter of rescaled grey images that the table contains, columns swapped as there; the text has "
    "wavelets. Images that the filter cannot rescale are omitted",
    "FDH": "as FDL",
    "ADMS": "DISTS; needs VGG16's weights",
    "ALMS": "MS-GMSD with the colour error, as in the table; the text has luma only",
}


def scale(symbol: str, estimate: Estimate) -> Estimate:
    """Convert a number that davylamp computed to the unit of CANARY's tables. Only AED has a different unit."""
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
    """Return the name of the attack that an implementation really runs.

    This is CANARY's name of the attack, or the name of the replacement if the implementation replaces CANARY's attack.

    Args:
        implementation: name of an implementation, such as "foolbox:fgsm".
    """
    name = paper_name(implementation)
    return STAND_INS.get(name, name)


def same_attack(implementation: str) -> str:
    """Return the reason why results of an implementation cannot be compared with CANARY's; "" if they can."""
    return OTHER_ATTACK if paper_name(implementation) in STAND_INS else ""


def row_of(labels: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels of the published row that corresponds to a computed row.

    Returns:
        The label "attack" and, for the transferable attacks, which have a row for each radius, the label "epsilon".
    """
    name = paper_name(labels["implementation"])
    if name not in [NAMES[attack] for attack in TRANSFERABLE]:
        return {"attack": name}
    return {"attack": name, "epsilon": f"{Fraction(labels['epsilon'] * 255).limit_denominator(100)}/255"}


def readings_of(symbols: Sequence[str]) -> dict[str, str]:
    """Return notes on the columns of a table and on replaced attacks, by symbol of the column or by name."""
    stand_ins = {
        f"{run} for {paper}": "a different attack, so no difference is given" for paper, run in STAND_INS.items()
    }
    return {symbol: READINGS[symbol] for symbol in symbols if symbol in READINGS} | stand_ins


def left_out(table: str) -> dict[str, str]:
    """Return the reason why attacks of a published table are not reproduced, by the paper's name of the attack."""
    names = [row["attack"] for row in load_rows(table) if row["attack"] not in NAMES.values()]
    return dict.fromkeys(names, "not implemented in any library")


def build_forms(folder: Path, symbols: Sequence[str], by: By) -> tuple[Table, list[str]]:
    """Build a table of a results folder, with the variants of the metrics that CANARY's tables contain.

    CANARY's tables contain variants of FDL, FDH and ALMS that differ from the paper's definitions.

    Args:
        folder: results folder.
        symbols: symbols of the metrics in CANARY's table.
        by: what a row stands for: "attacks", "models" or "pairs".

    Returns:
        The table, and notes on metrics without a value.
    """
    results, notes = build_rows(folder, [PUBLISHED_FORMS_OF.get(symbol, symbol) for symbol in symbols], by)
    reasons = {form: f"{symbol} has no value: nothing is fooled, or the images are grey or too small for it"
               for form, symbol in SYMBOLS_OF_FORMS.items()}  # fmt: skip
    return results, [reasons.get(note.partition(" ")[0], note) for note in notes]


def compare_attacks(table: str, options: Options, *, symbols: Sequence[str]) -> dict[str, Any]:
    """Measure CANARY's attacks, averaged over the models, and compare them with a published table.

    Args:
        table: "canary_table4" or "canary_table5".
        options: options of the command.
        symbols: symbols of the metrics in the table.
    """
    with run_setting(SETTING, options) as run:
        results, notes = build_forms(run.folder, symbols, "attacks")
        lines = [
            PaperLine(
                " ".join({**row_of(row.labels), "attack": run_name(row.labels["implementation"])}.values()),
                symbol,
                scale(symbol, row.metrics[form]),
                find_value(table, symbol, **row_of(row.labels)),
                "the paper's 15 models",
                same_attack(row.labels["implementation"]),
                labels=row_of(row.labels),
            )
            for row in sorted(results.rows, key=lambda row: find_place(table, **row_of(row.labels)))
            for form in results.symbols
            for symbol in [SYMBOLS_OF_FORMS.get(form, form)]
        ]
        return run.report(table, lines, readings=readings_of(symbols), left_out=left_out(table), notes=notes)


def compare_clean(table: str, options: Options, *, symbols: Sequence[str]) -> dict[str, Any]:
    """Measure the models on clean images, and compare them with the paper's models of the same family.

    Args:
        table: "canary_table7".
        options: options of the command.
        symbols: symbols of the metrics in the table.
    """
    with run_setting(_CLEAN, options) as run:
        results, notes = build_rows(run.folder, symbols, "models")
        lines = lines_beside(table, [(row, run.labels_of(row.labels["model"])) for row in results.rows])
        readings = {symbol: READINGS[symbol] for symbol in symbols if symbol in READINGS}
        return run.report(table, lines, readings=readings, left_out={}, notes=notes)
