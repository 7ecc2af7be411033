"""Quantities that every evaluation records: queries, seconds and norms per image, and the cost of fitting an attack."""

from typing import Any

from torch import Tensor

from .common import at_least_float32, check, check_success, nan_where_undefined
from .registry import Reduction, metric, reduce

AT_LEAST_ZERO = (0.0, float("inf"))


def recorded_mean(values: Tensor, counting: Tensor, *, reduction: Reduction = "mean") -> Tensor:
    """Mean of a quantity that an evaluation recorded for each image, over the images that count.

    Args:
        values: recorded value of each image, shape (N,), >= 0.
        counting: whether each image counts, shape (N,), bool.
        reduction: "mean" or "sum" over the images that count, or "none".

    Returns:
        A scalar. For "none", one value for each image, shape (N,), and NaN for images that do not count.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    check_success(check({"values": values}, "N", kind="number", within=AT_LEAST_ZERO), counting=counting)
    return reduce(nan_where_undefined(at_least_float32(values), counting), reduction)


def _record(*, symbol: str, title: str, formula: str, **facts: Any) -> None:
    """Register a recorded quantity as a metric.

    By default, no paper defines the quantity, every result has it, and higher values mean a more robust model.
    """
    shared = {"robust_when": "higher", "between": AT_LEAST_ZERO, "source": "", "stored": "always"}
    metric(**{"symbol": symbol, "title": title, "meaning": f"{title}.", "formula": formula, **shared, **facts})(
        recorded_mean
    )


def _per_image(*, what: str, **facts: Any) -> None:
    formula, unit = f"mean over attacked images of the {what}", "seconds" if what == "seconds" else "passes"
    _record(title=f"{_capital(what)} per attacked image", formula=formula, unit=unit, over="attacked", **facts)


def _of_fit(*, what: str, **facts: Any) -> None:
    meaning = f"{_capital(what)} of fitting the attack once before it runs, all images together."
    unit = "seconds" if what == "seconds" else "passes"
    _record(title=f"{_capital(what)} of fitting", meaning=meaning, formula=f"{what} of the fit", unit=unit, **facts)


def _of_change(*, what: str, formula: str, latex: str, **facts: Any) -> None:
    title, formula = f"{_capital(what)}, over successes", f"mean over successes of {formula}"
    latex = rf"\operatorname{{mean}}_{{\text{{successes}}}} {latex}"
    _record(title=title, formula=formula, latex=latex, over="success", **{"unit": "pixel range", **facts})


def _capital(text: str) -> str:
    return text if text[0] == "l" else text[0].upper() + text[1:]


_record(
    symbol="RA_mean",
    title="Mean robust accuracy",
    meaning="Mean robust accuracy: RA under each attack alone, averaged over the attacks.",
    between=(0, 1),
    source="RobustBench (Croce et al. 2021)",
    formula="mean over attacks of mean [F(x) = y, and F(xa) = y]",
    latex=r"\frac{1}{A} \sum_{a} \operatorname{mean} [F(x) = y \text{ and } F(x_a) = y]",
    kind="share",
    invalid="not robust",
    tables={"models": "RA"},
    only=("models",),
    brief=True,
)
_record(
    symbol="RA_union",
    title="Robust accuracy over the union of threat models",
    meaning="Share of all images that are right when clean and that no attack of any threat model fools.",
    between=(0, 1),
    source="Tramer and Boneh 2019; Maini et al. 2020",
    formula="mean [F(x) = y, and F(xa) = y for the xa of every attack of every threat model]",
    latex=r"\operatorname{mean} [F(x) = y \text{ and } F(x_a) = y \text{ for every attack } a "
    r"\text{ of every threat model}]",
    aliases=("union accuracy",),
    kind="share",
    across="union",
    invalid="not robust",
    tables={"models": "RA"},
    only=("models",),
)
_SECONDS, _FORWARDS, _BACKWARDS = "seconds", "forward passes", "backward passes"
_per_image(symbol="seconds", what=_SECONDS, tables={"pairs": "RA"}, brief=True)
_per_image(symbol="forwards", what=_FORWARDS)
_per_image(symbol="backwards", what=_BACKWARDS)
_per_image(symbol="surrogate_forwards", what=f"{_FORWARDS} of the surrogate")
_per_image(symbol="surrogate_backwards", what=f"{_BACKWARDS} of the surrogate")
_of_fit(symbol="fit_forwards", what=_FORWARDS)
_of_fit(symbol="fit_backwards", what=_BACKWARDS)
_of_fit(symbol="fit_seconds", what=_SECONDS)
_of_change(
    symbol="l0",
    what="number of changed components",
    formula="number of xa != x",
    latex=r"|\{j : x_{a,j} \neq x_j\}|",
    unit="components",
)
_of_change(symbol="l1", what="l1 norm of the change", formula="sum |xa - x|", latex=r"\sum_j |x_{a,j} - x_j|")
_of_change(
    symbol="l2", what="l2 norm of the change", formula="sqrt(sum (xa - x)^2)", latex=r"\sqrt{\sum_j (x_{a,j} - x_j)^2}"
)
_of_change(symbol="linf", what="linf norm of the change", formula="max |xa - x|", latex=r"\max_j |x_{a,j} - x_j|")
