"""What an evaluation notes of each image, by itself or once for all images: passes, seconds, norms, what is left."""

from typing import Any

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


def _record(*, symbol: str, title: str, formula: str, **facts: Any) -> None:
    """Record what has no paper: of every result, the more the better for the model."""
    shared = {"robust_when": "higher", "between": AT_LEAST_ZERO, "source": "", "stored": "always"}
    metric(**{"symbol": symbol, "title": title, "meaning": f"{title}.", "formula": formula, **shared, **facts})(
        recorded_mean
    )


_record(
    symbol="RA_mean",
    title="Mean robust accuracy",
    meaning="Mean robust accuracy: RA under each attack alone, averaged over the attacks.",
    between=(0, 1),
    source="RobustBench (Croce et al. 2021)",
    formula="mean over attacks of mean [F(x) = y, and F(xa) = y]",
    kind="share",
    invalid="not robust",
    tables={"models": "RA"},
    only=("models",),
    brief=True,
)
_record(
    symbol="seconds",
    title="Seconds per attacked image",
    formula="mean over attacked images of the seconds of the attack",
    unit="seconds",
    over="attacked",
    tables={"pairs": "RA"},
    brief=True,
)
_record(
    symbol="forwards",
    title="Forward passes per attacked image",
    formula="mean over attacked images of the forward passes",
    unit="passes",
    over="attacked",
)
_record(
    symbol="backwards",
    title="Backward passes per attacked image",
    formula="mean over attacked images of the backward passes",
    unit="passes",
    over="attacked",
)
_record(
    symbol="surrogate_forwards",
    title="Forward passes of the surrogate per attacked image",
    formula="mean over attacked images of the forward passes of the surrogate",
    unit="passes",
    over="attacked",
)
_record(
    symbol="surrogate_backwards",
    title="Backward passes of the surrogate per attacked image",
    formula="mean over attacked images of the backward passes of the surrogate",
    unit="passes",
    over="attacked",
)
_record(
    symbol="fit_forwards",
    title="Forward passes of fitting",
    meaning="Forward passes of what an attack learned once before, all images together.",
    formula="forward passes of the fit, once for all images",
    unit="passes",
)
_record(
    symbol="fit_backwards",
    title="Backward passes of fitting",
    meaning="Backward passes of what an attack learned once before, all images together.",
    formula="backward passes of the fit, once for all images",
    unit="passes",
)
_record(
    symbol="fit_seconds",
    title="Seconds of fitting",
    meaning="Seconds of what an attack learned once before, all images together.",
    formula="seconds of the fit, once for all images",
    unit="seconds",
)
_record(
    symbol="l0",
    title="Number of changed components, over successes",
    formula="mean over successes of number of xa != x",
    unit="components",
    over="success",
)
_record(
    symbol="l1",
    title="l1 norm of the change, over successes",
    formula="mean over successes of sum |xa - x|",
    unit="pixel range",
    over="success",
)
_record(
    symbol="l2",
    title="l2 norm of the change, over successes",
    formula="mean over successes of sqrt(sum (xa - x)^2)",
    unit="pixel range",
    over="success",
)
_record(
    symbol="linf",
    title="linf norm of the change, over successes",
    formula="mean over successes of max |xa - x|",
    unit="pixel range",
    over="success",
)
