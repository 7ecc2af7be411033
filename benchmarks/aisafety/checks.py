"""Checks whether the numbers in AISafety's tables (Liu, Guo et al.) agree with each other. No model is run."""

import math
from collections.abc import Iterator
from statistics import fmean

from ..shared.check import PaperCheck
from ..shared.paper_numbers import find_value, load_rows
from .setting import SAME

_COMPONENTS = 3 * 32 * 32  # components of a CIFAR-10 image


def check_aisafety() -> Iterator[PaperCheck]:
    """Check AISafety's printed numbers.

    The checks are: CAV = CRR - CSR in Table IV, CAV in Table IV against the accuracies in Table II, and the radii that
    follow from Tables VIII and IX against the stated radii.
    """
    for row in load_rows("aisafety_table4"):
        statement = f"CAV = CRR - CSR, {row['dataset']} {row['model']}"
        yield PaperCheck("AISafety, Table IV", statement, row["CAV"], row["CRR"] - row["CSR"], 1.5e-3)
    for row in load_rows("aisafety_table4"):
        name = SAME.get(row["model"], row["model"])
        defended, original = (
            find_value("aisafety_table2", "CA", dataset=row["dataset"], model=model, attack="CLEAN")
            for model in (name, "VANILLA")
        )
        if defended is None or original is None:
            continue  # RAND is not in Table II
        computed = defended - original
        note = "" if abs(computed - row["CAV"]) <= 1.5e-3 else "misprint in Table II or IV; CRR - CSR agrees with IV"
        statement = f"CAV = CA - CA(VANILLA), {row['dataset']} {row['model']}"
        yield PaperCheck("AISafety, Tables II and IV", statement, row["CAV"], computed, 1.5e-3, note)
    yield from _radii()


def _radii() -> Iterator[PaperCheck]:
    """Check that the perturbations of PGD in Tables VIII and IX are within the stated radii.

    The metric ALD is |d| / |x|, for a perturbation d of an image x. For FGSM, |d| follows from the radius 0.03. This
    gives |x|, and then |d| for PGD.
    """
    for number, name in ((8, "VIII"), (9, "IX")):
        table = f"aisafety_table{number}"
        for attack, radius in (("PGD-l2", 0.5), ("PGD-l1", 12.0)):
            ratios = [
                row["ALD"] / fgsm * 0.03 * math.sqrt(_COMPONENTS)
                for row in load_rows(table)
                if row["attack"] == attack and (fgsm := find_value(table, "ALD", model=row["model"], attack="FGSM"))
            ]
            statement = (
                f"l2 length of the changes of {attack}, mean over the models; it is at most the radius of section IV.A"
            )
            note = (
                "longer than the radius allows (an l1 radius also bounds the l2 length), so a different radius was used"
            )
            yield PaperCheck(f"AISafety, Table {name}", statement, radius, fmean(ratios), 0.1 * radius, note)


CHECKS = (check_aisafety,)
