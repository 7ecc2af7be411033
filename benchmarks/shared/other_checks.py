"""What the tables and texts of AISafety, RoBIC, HikDeep-Sec and "Fooling" say about themselves; no model is run."""

import math
from collections.abc import Iterator
from statistics import fmean
from typing import Any

import torch

from ...metrics import fooling_rate_auc, half_distortion, peak_signal_to_noise_ratio
from .check import PaperCheck
from .paper_numbers import find_value, load_published

_COMPONENTS = 3 * 32 * 32  # of an image of CIFAR-10


def check_hikdeepsec() -> Iterator[PaperCheck]:
    """CAV = CRR - CSR, and what ACC and CAV say about the undefended model."""
    for number in (1, 2):
        rows, table = _rows(f"hikdeepsec_table{number}"), f"HikDeep-Sec, Table {number}"
        for row in rows:
            told = f"CAV = CRR - CSR, {row['attack']} {row['epsilon']}"
            difference = row["CRR"] - row["CSR"]
            note = "misprint: one of the three" if abs(difference - row["CAV"]) > 2e-4 else ""
            yield PaperCheck(table, told, row["CAV"], difference, 1.5e-4, note)
        for told, count in _impossible(rows).items():
            yield PaperCheck(table, told, 0, count, 0)


def _impossible(rows: list[dict[str, Any]]) -> dict[str, int]:
    """How many columns say something that cannot be of ACC, CAV, CRR, CSR; the undefended model has ACC - CAV."""
    undefended = [row["ACC"] - row["CAV"] for row in rows]
    pairs = [(a, b) for a, b in zip(range(len(rows)), range(1, len(rows)), strict=False)]
    rising = [undefended[b] > undefended[a] + 2e-4 for a, b in pairs if rows[a]["attack"] == rows[b]["attack"]]
    return {
        "columns with CRR above the error of the undefended model, 1 - (ACC - CAV)": sum(
            row["CRR"] > 1 - own + 2e-4 for row, own in zip(rows, undefended, strict=True)
        ),
        "columns with CSR above its accuracy, ACC - CAV": sum(
            row["CSR"] > own + 2e-4 for row, own in zip(rows, undefended, strict=True)
        ),
        "times that its accuracy, ACC - CAV, rises with epsilon": sum(rising),
        "columns with COS above ln 2": sum(row["COS"] > math.log(2) for row in rows),
    }


def check_aisafety() -> Iterator[PaperCheck]:
    """CAV = CRR - CSR, CAV against Table II, and the radii that Tables VIII and IX amount to."""
    for row in _rows("aisafety_table4"):
        told = f"CAV = CRR - CSR, {row['dataset']} {row['model']}"
        yield PaperCheck("AISafety, Table IV", told, row["CAV"], row["CRR"] - row["CSR"], 1.5e-3)
    for row in _rows("aisafety_table4"):
        name = {"NAT": "SAT"}.get(row["model"], row["model"])
        defended, original = (
            find_value("aisafety_table2", "CA", dataset=row["dataset"], model=model, attack="CLEAN")
            for model in (name, "VANILLA")
        )
        if defended is None or original is None:
            continue  # RAND is not in Table II
        computed = defended - original
        note = "" if abs(computed - row["CAV"]) <= 1.5e-3 else "misprint in Table II or IV; CRR - CSR agrees with IV"
        told = f"CAV = CA - CA(VANILLA), {row['dataset']} {row['model']}"
        yield PaperCheck("AISafety, Tables II and IV", told, row["CAV"], computed, 1.5e-3, note)
    yield from _radii()


def _radii() -> Iterator[PaperCheck]:
    """ALD is |d| / |x|: FGSM at 0.03 gives |x|, and that the length of the other changes."""
    for number, name in ((8, "VIII"), (9, "IX")):
        table = f"aisafety_table{number}"
        for attack, radius in (("PGD-l2", 0.5), ("PGD-l1", 12.0)):
            ratios = [
                row["ALD"] / fgsm * 0.03 * math.sqrt(_COMPONENTS)
                for row in _rows(table)
                if row["attack"] == attack and (fgsm := find_value(table, "ALD", model=row["model"], attack="FGSM"))
            ]
            told = (
                f"l2 length of the changes of {attack}, mean over the models; it is at most the radius of section IV.A"
            )
            note = "longer than the radius allows (an l1 radius bounds the l2 length too): another one was used"
            yield PaperCheck(f"AISafety, Table {name}", told, radius, fmean(ratios), 0.1 * radius, note)


def check_robic() -> Iterator[PaperCheck]:
    """Equations 3 and 4 through `metrics.half_distortion`, the constant of PSNR, and the factors of section 5.3."""
    for rate in (0.02, 0.5, 7.0):
        images = 1000
        distances = -torch.log1p(-torch.arange(1, images, dtype=torch.double) / images) / rate
        found = half_distortion(torch.cat([distances, torch.tensor([math.inf], dtype=torch.double)]))
        told = f"D_half of eta(D) = eta(0) exp(-{rate} D) is ln 2 / {rate}"
        yield PaperCheck("RoBIC, eq. 3 and 4", told, math.log(2) / rate, float(found.value), 1e-6 * math.log(2) / rate)
        yield PaperCheck("RoBIC, eq. 3", f"R^2 of the same, rate {rate}", 1.0, float(found.r_squared), 1e-9)
    grey = torch.zeros(1, 3, 8, 8)
    level = peak_signal_to_noise_ratio(grey, grey + 1 / 255)
    yield PaperCheck("RoBIC, section 3", "PSNR of a change by 1 grey level, dB", 48.13, float(level), 5e-3)
    rows = {row["model"]: row["D_half_black"] / row["D_half_white"] for row in _rows("robic_table2")}
    trained = {"ResNet50 AdvTrain": 4, "EfficientNet AdvProp": 10}
    for model, factor in trained.items():
        note = "" if abs(rows[model] - factor) <= 0.7 else "the text says 10; the table gives 14"
        yield PaperCheck(
            "RoBIC, 5.3 and Table 2", f"black over white D_half of {model}", factor, rows[model], 0.7, note
        )
    note = "the text says 20 on average; no mean over the table gives it"
    for told, values in (
        ("all models", list(rows.values())),
        ("models that are not adversarially trained", [rows[name] for name in rows if name not in trained]),
    ):
        yield PaperCheck(
            "RoBIC, 5.3 and Table 2", f"black over white D_half, mean over {told}", 20, fmean(values), 5, note
        )


def check_fooling() -> Iterator[PaperCheck]:
    """Whether Table 1 can be had from the text, and the orders of section 3."""
    logits = torch.arange(1000, 0, -1, dtype=torch.double).repeat(1, 1)
    swapped = logits.clone()
    swapped[:, :2] = logits[:, :2].flip(1)
    note = "3.1: DeepFool only swaps the first two labels; with any K up to 100 that cannot give 0.02"
    found = float(fooling_rate_auc(logits, swapped))
    yield PaperCheck("Fooling, Table 1", "FR_AUC when every first label becomes the second", 0.02, found, 0.005, note)
    means: dict[str, dict[str, list[float]]] = {"model": {}, "attack": {}}
    for row in _rows("fooling_table1"):
        for kind, values in means.items():
            values.setdefault(row[kind], []).append(row["FR_AUC"])
    order = {kind: sorted(values, key=lambda name, own=values: fmean(own[name])) for kind, values in means.items()}
    least = order["model"][:2] == ["ResNet-152", "VGG-19"]
    most = set(order["attack"][-2:]) == {"PGD", "I-FGSM-LL"}
    yield PaperCheck("Fooling, 3.3 and Table 1", "ResNet-152 has the least AuC, then VGG-19 (1: true)", 1, least, 0)
    yield PaperCheck("Fooling, 3.1 and Table 1", "PGD and I-FGSM-LL have the largest AuC (1: true)", 1, most, 0)


def _rows(table: str) -> list[dict[str, Any]]:
    return load_published(table)["rows"]
