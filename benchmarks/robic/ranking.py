"""RoBIC's ranking of attacks by half-distortion (Maho et al. 2021, section 5.1)."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...engine.attack_run import AttackRun
from ...engine.statistics.bootstrap import FEWEST, Estimate, interval, interval_bands
from ..shared.paper_result import PaperLine
from ..shared.paper_table import Options
from ..shared.reproduction import DIGITS, Setting, Size, run_setting
from .setting import NAMES, PAPERS, READINGS, choose, half_draws, recognise

# Order of attacks stated in the paper's text, nearest first; attacks that it does not separate are grouped.
ORDERS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "black-box": (("SurFree",), ("RayS", "GeoDA", "QEBA")),
    "white-box": (("PGD, best effort", "BP", "CW"),),
}
_SETTING = Setting(
    choose(tuple(NAMES)),
    default=Size(DIGITS[:2], 24, {}),
    quick=Size(DIGITS[:1], 6, {"steps": 5, "max_queries": 60}),
    data="digits",
    data_set="ImageNet",
    papers=PAPERS,
    recognise=recognise,
)
_RANK = (
    "rank by D_half among the attacks of the group. Rank 1 has the smallest D_half, and ties get their mean rank. The "
    "95 % interval is over the images, for at least 5 images. An attack whose results are all invalid has no rank. "
    "Published: the order in section 5.1, which has no numbers"
)


def rank_attacks(published: str, options: Options) -> dict[str, Any]:
    """Rank the black-box and the white-box attacks by half-distortion, and compare the ranks with the paper's text.

    Args:
        published: "robic_figures".
        options: options of the command.
    """
    with run_setting(_SETTING, options) as run:
        cells = [(cell, draws, n) for cell, draws, n in half_draws(run)]
        lines, notes = [], []
        for model in run.models:
            for group, order in ORDERS.items():
                mine = [
                    each for each in cells if each[0].subject.model == model and NAMES[each[0].attack] in sum(order, ())
                ]
                more, note = _rank(group, order, mine)
                lines += more
                notes += [f"{model}, {group}: {note}"] if note else []
        readings = {**READINGS, "rank": _RANK}
        return run.report(published, lines, readings=readings, left_out={}, notes=notes)


def rank_replicates(halves: np.ndarray) -> np.ndarray:
    """Return the ranks of A attacks in each of R bootstrap replicates, shape (R, A).

    Rank 1 has the smallest half-distortion. Ties get their mean rank. NaN is last.
    """
    known = np.where(np.isnan(halves), math.inf, halves)
    below = (known[:, None, :] < known[:, :, None]).sum(2)
    same = (known[:, None, :] == known[:, :, None]).sum(2)
    return below + (same + 1) / 2


def _rank(
    group: str, order: tuple[tuple[str, ...], ...], cells: Sequence[tuple[AttackRun, np.ndarray, int]]
) -> tuple[list[PaperLine], str]:
    """Rank a group of attacks on one model.

    Returns:
        Lines with half-distortion and rank of each attack, in the order of the ranks. Then a note with the proportion
        of replicates in which each attack has rank 1.
    """
    if not cells:
        return [], ""
    places = rank_replicates(np.stack([draws for _, draws, _ in cells], axis=1))
    low, high = interval_bands(places)
    lines, firsts = [], []
    for column in np.argsort(places[0], kind="stable"):
        cell, draws, n = cells[column]
        name, row = NAMES[cell.attack], f"{NAMES[cell.attack]} on {cell.subject.model}"
        ends = (float(low[column]), float(high[column])) if n >= FEWEST else (math.nan, math.nan)
        beside = f"section 5.1, {group}"
        lines.append(PaperLine(row, "D_half", interval(draws, n), None, "a curve"))
        lines.append(
            PaperLine(
                row,
                "rank",
                Estimate(float(places[0, column]) if n else math.nan, *ends, n),
                _published(order, name),
                beside,
                model=cell.subject.model,
            )
        )
        firsts.append(f"{name} {float((places[1:, column] == places[1:].min(1)).mean()):.2f}")
    return lines, f"proportion of 1000 bootstrap replicates in which it is first: {', '.join(firsts)}"


def _published(order: tuple[tuple[str, ...], ...], name: str) -> float:
    """Return the rank of an attack in the paper's text. Attacks in the same group of `order` get their mean rank."""
    before = 0
    for together in order:
        if name in together:
            return before + (len(together) + 1) / 2
        before += len(together)
    return math.nan
