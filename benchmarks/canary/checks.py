"""Checks whether the numbers in CANARY's tables and text (Sun et al. 2023) agree with each other. No model is run."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from ..shared.check import PaperCheck
from ..shared.paper_numbers import find_place, load_rows

_TRANSFERABLE = ("MI-FGSM", "VMI-FGSM", "NI-FGSM", "SI-FGSM")
# Only this set of attacks of Tables 4 and 5 has the means of Table 8, "white". For "black" no set has them, and
# this one comes nearest.
TABLE8_WHITE = (
    *((name, "") for name in ("FGSM", "JSMA", "DeepFool", "I-FGSM", "C&W Attack", "PGD", "EAD", "AdvGan")),
    *((name, "1/255") for name in _TRANSFERABLE),
)
TABLE8_BLACK = tuple((name, "") for name in ("LSA", "BA", "SA", "SPSA", "HSJA", "GA", "TREMBA"))
# Half of the last printed digit.
_ROUNDING: Mapping[str, float] = dict.fromkeys(("MR", "AIAC", "ARTC", "ACAMC_A", "ACAMC_T", "APCR"), 5e-4) | {
    **dict.fromkeys(("AED", "FDL", "FDH"), 5e-6),
    **dict.fromkeys(("AMD", "ADMS", "ALMS"), 5e-5),
}
_SWAPPED = "holds up to rounding if A and T of the four transferable attacks at 1/255 are swapped in one table"
_NO_SET = "no set of attacks of Tables 4 and 5 has these means; given is the nearest, all but AdvGan"


def check_canary() -> Iterator[PaperCheck]:
    """Check CANARY's printed numbers, and yield the result of each check."""
    yield from _statements()
    yield from _transfer()
    yield from _table8("white", TABLE8_WHITE)
    yield from _table8("black", TABLE8_BLACK)
    yield from _ranks()
    yield from _frequencies()


def _statements() -> Iterator[PaperCheck]:
    """Check that the mean misclassification rates (MR) in section 5.4.2 follow from Table 8."""
    rows, statements = load_rows("canary_table8"), load_rows("canary_statements")
    for stated in statements:
        kind = stated["kind"]
        known = {row["model"]: row["MR"] for row in rows if row["attack_type"] == kind}
        named = [each["models"] for each in statements if each["kind"] == kind and isinstance(each["models"], list)]
        chosen = stated["models"]
        if chosen == "all":
            models = list(known)
        elif chosen == "others":
            models = [model for model in known if not any(model in group for group in named)]
        else:
            models = chosen
        digits = 5e-4 if chosen == "all" else 5e-3
        text = f"mean MR ({kind}) of {', '.join(models) if isinstance(chosen, list) else f'{chosen}, {len(models)}'}"
        computed = fmean(known[model] for model in models)
        yield PaperCheck("CANARY 5.4.2, Table 8", text, stated["MR"], computed, digits + _ROUNDING["MR"])


def _transfer() -> Iterator[PaperCheck]:
    """Check that the transfer rate (OTR) of each attack is the same in Tables 4 and 6."""
    for row in load_rows("canary_table6"):
        printed = _find("canary_table4", attack=row["attack"], epsilon="16/255")["OTR"]
        yield PaperCheck("CANARY, Tables 4 and 6", f"OTR of {row['attack']}", printed, row["OTR"], 5e-4 + 5e-6)


def _table8(kind: str, attacks: Sequence[tuple[str, str]]) -> Iterator[PaperCheck]:
    """Check that the mean of each metric over attacks (Tables 4 and 5) equals its mean over models (Table 8)."""
    models = [row for row in load_rows("canary_table8") if row["attack_type"] == kind]
    for symbol, rounding in _ROUNDING.items():
        table = "canary_table4" if symbol in load_rows("canary_table4")[0] else "canary_table5"
        values = [
            _find(table, attack=name, **({"epsilon": radius} if radius else {}))[symbol] for name, radius in attacks
        ]
        note = _SWAPPED if kind == "white" and symbol.startswith("ACAMC") else _NO_SET if kind == "black" else ""
        text = f"{symbol}, mean over the {len(models)} models ({kind}) and over {len(attacks)} attacks"
        computed = fmean(values)
        yield PaperCheck(
            "CANARY, Tables 4, 5 and 8", text, fmean(row[symbol] for row in models), computed, 2 * rounding, note
        )


def _ranks() -> Iterator[PaperCheck]:
    """Check that the ranks of CA and MR in Table 9 follow from Tables 7 and 8.

    Rank 1 is the least robust model. Models with equal values may have any order.
    """
    capability = {row["model"]: row["CA"] for row in load_rows("canary_table7")}
    sides = {"CA_rank": capability}
    for kind in ("white", "black"):
        rows = [row for row in load_rows("canary_table8") if row["attack_type"] == kind]
        sides[f"MR_rank_{kind}"] = {row["model"]: -row["MR"] for row in rows}
    for name, values in sides.items():
        wrong = [
            row["model"]
            for row in load_rows("canary_table9")
            if not _rank_fits(row[name], values[row["model"]], list(values.values()))
        ]
        note = f"does not fit: {', '.join(wrong)}" if wrong else ""
        yield PaperCheck(
            "CANARY, Table 9", f"{name}: models whose rank contradicts Table 7 or 8", 0, len(wrong), 0, note
        )


def _rank_fits(rank: int, value: float, values: Sequence[float]) -> bool:
    below, ties = sum(other < value for other in values), values.count(value)
    return below < rank <= below + ties


def _frequencies() -> Iterator[PaperCheck]:
    """Check that the low-frequency part (FDL) of a perturbation is never longer than the perturbation (AED)."""
    rows = load_rows("canary_table5")
    longer = sum(row["FDL"] > row["AED"] for row in rows)
    note = "impossible for an orthogonal wavelet: the columns contain the output of a Fourier filter, and are swapped"
    yield PaperCheck("CANARY, Table 5", "attacks whose low-frequency part FDL is longer than AED", 0, longer, 0, note)


def _find(table: str, **labels: Any) -> dict[str, Any]:
    return load_rows(table)[find_place(table, **labels)]


CHECKS = (check_canary,)
