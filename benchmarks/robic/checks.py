"""Checks whether RoBIC's equations, table and text (Maho et al. 2021) agree with each other. No model is run."""

import math
from collections.abc import Iterator
from statistics import correlation, fmean

import torch

from ...metrics import half_distortion, peak_signal_to_noise_ratio
from ..shared.check import PaperCheck
from ..shared.paper_numbers import load_rows


def check_robic() -> Iterator[PaperCheck]:
    """Check RoBIC's equations and printed numbers.

    The checks are: `metrics.half_distortion` against equations 3 and 4, the constant in the definition of PSNR, and the
    factors and the correlation in section 5.3 against Table 2.
    """
    for rate in (0.02, 0.5, 7.0):
        images = 1000
        distances = -torch.log1p(-torch.arange(1, images, dtype=torch.double) / images) / rate
        half = half_distortion(torch.cat([distances, torch.tensor([math.inf], dtype=torch.double)]))
        statement = f"D_half of eta(D) = eta(0) exp(-{rate} D) is ln 2 / {rate}"
        yield PaperCheck(
            "RoBIC, eq. 3 and 4", statement, math.log(2) / rate, float(half.value), 1e-6 * math.log(2) / rate
        )
        yield PaperCheck("RoBIC, eq. 3", f"R^2 of the same, rate {rate}", 1.0, float(half.r_squared), 1e-9)
    grey = torch.zeros(1, 3, 8, 8)
    level = peak_signal_to_noise_ratio(grey, grey + 1 / 255)
    yield PaperCheck("RoBIC, section 3", "PSNR of a change by 1 grey level, dB", 48.13, float(level), 5e-3)
    rows = {row["model"]: row["D_half_black"] / row["D_half_white"] for row in load_rows("robic_table2")}
    trained = {"ResNet50 AdvTrain": 4, "EfficientNet AdvProp": 10}
    for model, factor in trained.items():
        note = "" if abs(rows[model] - factor) <= 0.7 else "the text says 10; the table gives 14"
        yield PaperCheck(
            "RoBIC, 5.3 and Table 2", f"black over white D_half of {model}", factor, rows[model], 0.7, note
        )
    note = "the text says 20 on average; no mean over the table gives it"
    for statement, values in (
        ("all models", list(rows.values())),
        ("models that are not adversarially trained", [rows[name] for name in rows if name not in trained]),
    ):
        yield PaperCheck(
            "RoBIC, 5.3 and Table 2", f"black over white D_half, mean over {statement}", 20, fmean(values), 5, note
        )
    yield from _correlations()


def _correlations() -> Iterator[PaperCheck]:
    """Check that the correlation in Figure 3 is negative, as the text says. Table 2 has the points of the figure."""
    rows = load_rows("robic_table2")
    sides = [[row[name] for row in rows] for name in ("D_half_white", "D_half_black")]
    r = correlation(*sides)
    note = f"r is {r:+.2f} over the 16 models: ResNet50 AdvTrain has the largest of both"
    statement = "sign of the correlation of white- and black-box D_half"
    yield PaperCheck("RoBIC, 5.3, Figure 3 and Table 2", statement, -1, math.copysign(1, r), 0, note)


CHECKS = (check_robic,)
