"""What an evaluation notes of each image, by itself or once for all images: passes, seconds, norms, what is left."""

from torch import Tensor

from .common import check, check_success, defined, precise
from .registry import Reduction, metric, reduce

AT_LEAST_ZERO = (0.0, float("inf"))


def recorded_mean(values: Tensor, counting: Tensor, *, reduction: Reduction = "mean") -> Tensor:
    """Mean of recorded values over the images that count.

    Args:
        values: recorded of each image, shape (N,), >= 0.
        counting: which images count, shape (N,), bool.
        reduction: "mean" or "sum" over the images that count, or "none".

    Returns:
        A scalar, or shape (N,) for "none", NaN where the image does not count.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    check_success(check({"values": values}, "N", kind="number", within=AT_LEAST_ZERO), counting=counting)
    return reduce(defined(precise(values), counting), reduction)


metric(
    symbol="RA_mean",
    title="Mean robust accuracy",
    meaning="Mean robust accuracy: RA under each attack alone, averaged over the attacks.",
    robust_when="higher",
    between=(0, 1),
    source="RobustBench (Croce et al. 2021)",
    formula="mean over attacks of mean [F(x) = y, and F(xa) = y]",
    kind="share",
    stored="always",
    invalid="not robust",
    tables={"models": "RA"},
    only=("models",),
    brief=True,
)(recorded_mean)

for symbol, title, unit, facts in (
    ("seconds", "Seconds per attacked image", "seconds", {"tables": {"pairs": "RA"}, "brief": True}),
    ("forwards", "Forward passes per attacked image", "passes", {}),
    ("backwards", "Backward passes per attacked image", "passes", {}),
    ("surrogate_forwards", "Forward passes of the surrogate per attacked image", "passes", {}),
    ("surrogate_backwards", "Backward passes of the surrogate per attacked image", "passes", {}),
):
    metric(
        symbol=symbol,
        title=title,
        meaning=f"{title}.",
        robust_when="higher",
        between=AT_LEAST_ZERO,
        unit=unit,
        source="",
        formula=f"mean over attacked images of {symbol}",
        stored="always",
        over="attacked",
        **facts,
    )(recorded_mean)

for symbol, what in (
    ("fit_forwards", "Forward passes"),
    ("fit_backwards", "Backward passes"),
    ("fit_seconds", "Seconds"),
):
    metric(
        symbol=symbol,
        title=f"{what} of fitting",
        meaning=f"{what} of what an attack learned once before, all images together.",
        robust_when="higher",
        between=AT_LEAST_ZERO,
        unit="seconds" if what == "Seconds" else "passes",
        source="",
        formula=f"{symbol} of the attack",
        stored="always",
    )(recorded_mean)

for symbol, what, formula in (
    ("l0", "Number of changed components", "number of xa != x"),
    ("l1", "l1 norm of the change", "sum |xa - x|"),
    ("l2", "l2 norm of the change", "sqrt(sum (xa - x)^2)"),
    ("linf", "linf norm of the change", "max |xa - x|"),
):
    metric(
        symbol=symbol,
        title=f"{what}, over successes",
        meaning=f"{what}, over successes.",
        robust_when="higher",
        between=AT_LEAST_ZERO,
        unit="components" if symbol == "l0" else "pixel range",
        source="",
        formula=f"mean over successes of {formula}",
        stored="always",
        over="success",
    )(recorded_mean)
