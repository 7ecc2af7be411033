"""Common setting of RoBIC's Figures 1 and 2 and Table 2 (Maho et al. 2021): attacks, and half-distortion."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...engine import AttackChoice, Config
from ...engine.attack_run import AttackRun
from ...engine.plan.presets import find_preset
from ...engine.statistics.bootstrap import Estimate, interval
from ...engine.store.results import read_outcomes
from ...engine.tables.estimates import GREY_HALF, RunReplicates
from ..shared.counterpart import Counterpart
from ..shared.paper_numbers import load_rows
from ..shared.paper_result import PaperLine
from ..shared.paper_table import Options
from ..shared.reproduction import Setting, SettingRun, Size, run_setting

NAMES: Mapping[str, str] = {
    "best(foolbox:pgd)": "PGD, best effort",
    "davylamp:bp": "BP",
    "foolbox:cw": "CW",
    "davylamp:surfree": "SurFree",
    "davylamp:rays": "RayS",
    "davylamp:qeba": "QEBA",
    "art:geoda": "GeoDA",
}
_CONFIG = replace(find_preset("robic").config, measures=("distance",))
READINGS = {
    "D_half": "distance ln 2 / lambda at which eta(D) = eta(0) exp(-lambda D) has halved. lambda is fitted by least "
    "squares to the steps of the measured curve, on images rounded to 8 bits; the paper describes neither the fit nor "
    "its points. n counts all images. Undefined if no image is fooled"
}


PAPERS = ("EfficientNet",)  # of Figures 1 and 2


def recognise(model: str) -> Counterpart:
    """Return the paper's EfficientNet if an evaluated model is an EfficientNet; otherwise no model of the paper."""
    return Counterpart(PAPERS[0] if "efficientnet" in model.lower() else "")


def choose(attacks: Sequence[str], *changes: Mapping[str, Any]) -> Config:
    """Return the config of RoBIC's preset with some of its attacks.

    Args:
        attacks: names of attacks in the preset.
        *changes: parameters to change, by name. Every attack runs once with each of these changes.
    """
    chosen = [choice for choice in _CONFIG.attacks if choice.attack in attacks]
    return replace(_CONFIG, attacks=tuple(_change(choice, change) for choice in chosen for change in changes or ({},)))


def _change(choice: AttackChoice, change: Mapping[str, Any]) -> AttackChoice:
    return replace(choice, parameters={**choice.parameters, **change})


def half_distortions(run: SettingRun) -> Iterator[tuple[AttackRun, Estimate]]:
    """Yield each finished run with its half-distortion, as root mean square in grey levels."""
    for cell, draws, n in half_draws(run):
        yield cell, interval(draws, n)


def half_draws(run: SettingRun) -> Iterator[tuple[AttackRun, np.ndarray, int]]:
    """Yield each finished run with bootstrap replicates of its half-distortion.

    Yields:
        The run, the half-distortions of the images (first) and of 1000 bootstrap replicates, and the number of images.
    """
    outcomes, drawn = read_outcomes(run.folder), RunReplicates(1000, 0)
    for outcome in outcomes.done:
        halves = drawn.draw(outcome, outcomes, [GREY_HALF])[GREY_HALF]
        yield outcome.cell, halves.ratio, halves.n


def compare_budgets(
    published: str,
    options: Options,
    *,
    figure: str,
    attacks: Sequence[str],
    parameter: str,
    budgets: Mapping[str, Sequence[int]],
    images: int,
) -> dict[str, Any]:
    """Reproduce Figure 1 or 2: half-distortion of each attack at increasing budgets of queries or steps.

    The paper prints the curves without numbers, so results are compared with the paper's text.

    Args:
        published: "robic_figures".
        options: options of the command.
        figure: "1" or "2".
        attacks: names of attacks in the preset.
        parameter: name of the parameter that is the budget.
        budgets: values of the parameter, by size: "quick", "default" or "full".
        images: number of images without options.
    """
    size = "quick" if options.quick else "full" if options.full else "default"
    config = choose(attacks, *({parameter: budget} for budget in budgets[size]))
    models, limits = ("demo:efficientnet-lite0",), {parameter: max(budgets[size])}
    sizes = Size(models, images, limits), Size(models, 2, limits)
    setting = Setting(config, *sizes, data_set="ImageNet", papers=PAPERS, recognise=recognise)
    with run_setting(setting, options) as run:
        halves = sorted(half_distortions(run), key=lambda half: (_row(half[0]), half[0].parameters[parameter]))
        lines = [
            PaperLine(f"{_row(cell)}, {parameter} {cell.parameters[parameter]}", "D_half", estimate, None, "a curve")
            for cell, estimate in halves
        ]
        stated = [row for row in load_rows(published) if row["figure"] == figure]
        notes = [f"the paper's text: {row['statement']}{_paper_value(row)}" for row in stated]
        known = {name for names in NAMES.values() for name in names.replace(",", "").split()}
        missing = sorted({name for row in stated for name in row["attacks"]} - known)
        left_out = dict.fromkeys(missing, "not implemented in any library")
        return run.report(published, lines, readings=READINGS, left_out=left_out, notes=notes)


def _row(cell: AttackRun) -> str:
    return f"{NAMES[cell.attack]} on {cell.subject.model}"


def _paper_value(row: Mapping[str, Any]) -> str:
    return f" at {row['queries']} queries" if "queries" in row else ""
