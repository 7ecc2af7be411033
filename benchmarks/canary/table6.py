"""CANARY, Table 6 (Sun et al. 2023): transfer of four attacks between all models, averaged over pairs of models."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...engine.tables.transfer_table import Over, build_transfer, build_transfer_confidence
from ..shared.paper_numbers import find_value
from ..shared.paper_result import OTHER_READING, PaperLine
from ..shared.paper_table import Options
from ..shared.reproduction import Size, run_setting
from .setting import OTHER_ATTACK, PRESET, READINGS, SETTING, TRANSFERABLE, paper_name, readings_of, run_name

_LARGE = 16 / 255
_ATTACKS = tuple(
    choice
    for choice in PRESET.config.attacks
    if choice.attack.partition(":")[2] in TRANSFERABLE and choice.epsilon == _LARGE
)
_SETTING = replace(
    SETTING,
    config=replace(PRESET.config, attacks=_ATTACKS, transfer="full"),
    default=replace(SETTING.default, images=10),
    quick=Size(("demo:efficientnet-lite0", "demo:efficientnet-lite1"), 4, SETTING.quick.limits, SETTING.quick.queries),
)
_READINGS: Mapping[Over, str] = {"fooled": "among those that fool their own model", "valid": "among all valid images"}
_CONFIDENCE = "on the tested models, over the images that they classify correctly when clean, fooled or not"


def compare_transfer(table: str, options: Options) -> dict[str, Any]:
    """Measure how examples of the transferable attacks transfer to the other models, and compare with Table 6.

    Args:
        table: "canary_table6".
        options: options of the command.
    """
    with run_setting(_SETTING, options) as run:
        lines: list[PaperLine] = []
        notes: list[str] = []
        for over, reading in _READINGS.items():
            rates = build_transfer(run.folder, over=over)
            for part in rates.tables:
                for labels, rate in zip(part.attacks, part.of_attack, strict=True):
                    name, shown = paper_name(labels["implementation"]), run_name(labels["implementation"])
                    published = find_value(table, "OTR", attack=name)
                    beside = "the paper's 15 models"
                    why = "" if name == shown else OTHER_ATTACK
                    why = why or (OTHER_READING if over == "valid" else "")
                    cell = {"attack": name} if over != "valid" else {}
                    lines.append(PaperLine(f"{shown}, {reading}", "OTR", rate, published, beside, why, labels=cell))
            notes += [note for note in rates.notes if note not in notes]
        for row in build_transfer_confidence(run.folder):
            name, shown = paper_name(row.labels["implementation"]), run_name(row.labels["implementation"])
            for symbol, estimate in row.means.items():
                published = find_value(table, symbol, attack=name)
                why = "" if name == shown else OTHER_ATTACK
                beside, cell = "the paper's 15 models", {"attack": name}
                lines.append(PaperLine(shown, symbol, estimate, published, beside, why, labels=cell))
        readings = readings_of(()) | dict.fromkeys(("AIAC", "ARTC"), _CONFIDENCE)
        readings |= {
            "OTR": f"{READINGS['OTR']}; a second line has the mean over all images that are correct when clean"
        }
        return run.report(table, lines, readings=readings, left_out={}, notes=notes)
