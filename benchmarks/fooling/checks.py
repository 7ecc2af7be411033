"""Checks whether table and text of "Fooling beyond flipping the label" (Mopuri et al. 2020) agree with each other."""

from collections.abc import Iterator
from statistics import fmean

import torch

from ...metrics import fooling_rate_auc
from ..shared.check import PaperCheck
from ..shared.paper_numbers import load_rows


def check_fooling() -> Iterator[PaperCheck]:
    """Check that Table 1 agrees with the paper's text, such as the order of attacks and models in section 3."""
    logits = torch.arange(1000, 0, -1, dtype=torch.double).repeat(1, 1)
    swapped = logits.clone()
    swapped[:, :2] = logits[:, :2].flip(1)
    note = "3.1: DeepFool only swaps the first two labels; with any K up to 100 this cannot give 0.02"
    area = float(fooling_rate_auc(logits, swapped))
    yield PaperCheck("Fooling, Table 1", "FR_AUC when every first label becomes the second", 0.02, area, 0.005, note)
    means: dict[str, dict[str, list[float]]] = {"model": {}, "attack": {}}
    for row in load_rows("fooling_table1"):
        for kind, values in means.items():
            values.setdefault(row[kind], []).append(row["FR_AUC"])
    order = {kind: sorted(values, key=lambda name, areas=values: fmean(areas[name])) for kind, values in means.items()}
    least = order["model"][:2] == ["ResNet-152", "VGG-19"]
    most = set(order["attack"][-2:]) == {"PGD", "I-FGSM-LL"}
    yield PaperCheck("Fooling, 3.3 and Table 1", "ResNet-152 has the least AuC, then VGG-19 (1: true)", 1, least, 0)
    yield PaperCheck("Fooling, 3.1 and Table 1", "PGD and I-FGSM-LL have the largest AuC (1: true)", 1, most, 0)


CHECKS = (check_fooling,)
