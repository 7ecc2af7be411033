"""Success and accuracy as functions of the distortion, and numbers that summarise a curve.

The distance of an image is 0 if the clean image is already misclassified, and infinite if the attack failed.
"""

from collections.abc import Sequence
from math import inf, log, nan
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .common import as_float, at_least_float32, check, check_classes, check_logits, check_success, nan_where_undefined
from .registry import Reading, Reduction, metric, reduce

GRID = 64  # first guesses of the rate of an exponential


class HalfDistortion(NamedTuple):
    """Distortion that halves the accuracy, from an exponential fitted to the accuracy.

    Attributes:
        value: distortion at which the fitted exponential falls to half of the clean accuracy.
        rate: decay rate of the exponential.
        r_squared: coefficient of determination R^2 of the fit.
    """

    value: float
    rate: float
    r_squared: float


def success_curve(distances: Tensor, budgets: Tensor) -> Tensor:
    """Share of all images that are misclassified within each distortion budget.

    Args:
        distances: distance of each image, shape (N,), >= 0. 0 if the clean image is misclassified, infinite if the
            attack failed.
        budgets: distortions at which the share is computed, shape (B,), >= 0.

    Returns:
        Fractions, shape (B,). NaN if there are no images.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    check({"distances": distances}, "N", kind="number", within=(0, inf))
    check({"budgets": budgets}, "B", kind="number", within=(0, inf))
    distances = at_least_float32(distances)
    reached = torch.searchsorted(distances.sort().values, budgets.to(distances), right=True)
    finite = distances.isfinite().sum()
    return as_float(torch.minimum(reached, finite), distances) / len(distances)


def accuracy_curve(distances: Tensor, budgets: Tensor) -> Tensor:
    """Share of all images that remain correctly classified within each distortion budget.

    Args:
        distances: distance of each image, shape (N,), >= 0. 0 if the clean image is misclassified, infinite if the
            attack failed.
        budgets: distortions at which the share is computed, shape (B,), >= 0.

    Returns:
        Fractions, shape (B,). The fraction at budget 0 is the clean accuracy. NaN if there are no images.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    return 1 - success_curve(distances, budgets)


@metric(
    symbol="D_half",
    title="Half distortion",
    robust_when="higher",
    between=(0, inf),
    unit="unit of the distances (grey levels in the paper)",
    source="RoBIC (Maho et al. 2021), eq 4",
    formula="ln 2 / lambda, by least squares on the accuracy eta(D) = eta(0) exp(-lambda D) at distance D",
    latex=r"\frac{\ln 2}{\lambda}, \quad \eta(d) = \eta(0) \, e^{-\lambda d} \text{ by least squares}",
    aliases=("D_1/2", "half distortion"),
    readings={"grey": Reading({}, "in the paper's unit, grey levels (for l2, the root mean square)")},
    kind="set",
    stored="always",
    needs=("minimum norm",),
)
def half_distortion(distances: Tensor) -> HalfDistortion:
    """Distortion that halves the accuracy, according to an exponential fitted to the accuracy.

    The decay rate is fitted by least squares to the accuracy at 0 and just after each distance. RoBIC's paper does not
    specify how to fit.

    Args:
        distances: distance of each image, shape (N,), >= 0.

    Returns:
        The distortion ln 2 / rate, the rate and R^2. If the attack always fails, the three values are infinity, 0 and
        NaN. If no image is classified correctly, all three are NaN. If all correctly classified images are fooled at
        the same distance, all three are NaN, because no exponential fits such a step.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    check({"distances": distances}, "N", kind="number", within=(0, inf))
    values = distances.detach().cpu().double().numpy()
    right = int(np.count_nonzero(values))
    steps, counts = np.unique(values[(values > 0) & np.isfinite(values)], return_counts=True)
    if not right:
        return HalfDistortion(nan, nan, nan)
    if not len(steps):
        return HalfDistortion(inf, 0.0, nan)
    remaining = (right - np.cumsum(counts)) / right
    if not remaining[0]:
        return HalfDistortion(nan, nan, nan)
    rate = _decay_rate(steps, remaining)
    observed, fitted = np.append(remaining, 1), np.append(np.exp(-rate * steps), 1)
    r_squared = 1 - np.sum((observed - fitted) ** 2) / np.sum((observed - observed.mean()) ** 2)
    return HalfDistortion(log(2) / rate, rate, float(r_squared))


def empirical_half_distortion(distances: Tensor) -> float:
    """Smallest distortion at which the accuracy is at most half of the clean accuracy.

    Args:
        distances: distance of each image, shape (N,), >= 0.

    Returns:
        The distortion, in the unit of the distances. Infinite if the accuracy never falls to half of the clean
        accuracy. NaN if no image is classified correctly.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    check({"distances": distances}, "N", kind="number", within=(0, inf))
    right = distances[distances > 0].sort().values
    return float(right[(len(right) + 1) // 2 - 1]) if len(right) else nan


def best_distances(distances: Sequence[Tensor]) -> Tensor:
    """Smallest distance of each image over several attacks, or over several settings of one attack.

    Args:
        distances: for each attack, the distance of each image, shape (N,), >= 0.

    Returns:
        Distances, shape (N,). Infinite if all attacks fail.

    Raises:
        ValueError: if shapes, types or values are not as described, or there is no attack.
    """
    if not len(distances):
        raise ValueError("expected the distances of at least one attack, got none")
    check({f"distances[{index}]": each for index, each in enumerate(distances)}, "N", kind="number", within=(0, inf))
    return torch.stack(list(distances)).amin(0)


@metric(
    symbol="OPT",
    title="Local optimality",
    robust_when="lower",
    between=(-inf, 1),
    source="AttackBench (Cinà et al. 2025)",
    formula="1 - (A - A*) / (CA e - A*), A, A*: areas under the accuracy of this and of the best attacks up to e",
    latex=r"1 - \frac{A - A^*}{\mathrm{CA} \, e - A^*}",
    kind="set",
    stored="always",
)
def local_optimality(distances: Tensor, best_distances: Tensor) -> Tensor:
    """Closeness of an attack to the best of all attacks, by the areas under their accuracy curves.

    The value is 1 - (A - A*) / (r e - A*). A is the area under the accuracy curve of the attack, up to the largest best
    distance e. A* is the area under the accuracy curve of the best distances. r is the clean accuracy.

    Args:
        distances: distance of each image, shape (N,), not below the best distance.
        best_distances: smallest distance of each image over all attacks, shape (N,), from the function
            `best_distances`.

    Returns:
        A scalar. 1 if the attack is the best attack on every image, and 0 if the attack never succeeds. NaN if a best
        distance is infinite, or if all best distances are equal.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    check({"distances": distances, "best_distances": best_distances}, "N", kind="number", within=(0, inf))
    if (distances < best_distances).any():
        raise ValueError("expected each distance to be at least the best distance of the image, got a smaller distance")
    attack, best = at_least_float32(distances), at_least_float32(best_distances)
    if not len(best) or best.isinf().any():
        return best.new_tensor(nan)
    largest = best.max()
    area, least_area = attack.minimum(largest).mean(), best.mean()
    return 1 - (area - least_area) / (as_float(best > 0, best).mean() * largest - least_area)


@metric(
    symbol="R8",
    title="Success after rounding to 8 bits",
    robust_when="lower",
    between=(0, 1),
    source="RoBIC (Maho et al. 2021), section 4.3",
    formula="mean over successes of [F(r(xa)) != y], r the image rounded to 8 bits",
    latex=r"\operatorname{mean}_{\text{successes}} [F(r(x_a)) \neq y]",
    kind="share",
    brief=True,
)
def quantised_success(
    logits: Tensor, adv_logits: Tensor, labels: Tensor, success: Tensor, *, reduction: Reduction = "mean"
) -> Tensor:
    """Share of the successful adversarial images that still fool the model after rounding to 8 bits.

    Args:
        logits: logits of the clean images, shape (N, K).
        adv_logits: logits of the adversarial images after rounding to 8 bits, shape (N, K).
        labels: true classes, shape (N,), int64.
        success: whether each image fooled the model before rounding, shape (N,), bool.
        reduction: "mean" or "sum" over the images that count, or "none".

    Returns:
        A fraction, as a scalar. For "none", one value for each image, shape (N,), and NaN where the attack failed or
        the clean image is misclassified.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    sizes = check_logits(logits=logits, adv_logits=adv_logits)
    check_classes(sizes, labels=labels)
    check_success(sizes, success=success)
    survives = as_float(adv_logits.argmax(1) != labels, adv_logits)
    return reduce(nan_where_undefined(survives, success & (logits.argmax(1) == labels)), reduction)


def _decay_rate(distances: np.ndarray, shares: np.ndarray) -> float:
    from scipy.optimize import least_squares

    scale = float(distances.mean())
    scaled = distances / scale

    def errors(rate: np.ndarray) -> np.ndarray:
        return np.exp(-rate * scaled) - shares

    guesses = np.geomspace(1e-6, 1e3, GRID)
    start = min(guesses, key=lambda rate: float(np.square(errors(rate)).sum()))
    fit = least_squares(
        errors,
        start,
        jac="3-point",
        bounds=(0, inf),
        x_scale=start,
        xtol=1e-15,
        ftol=1e-15,
        gtol=1e-15,
    )
    return float(fit.x[0]) / scale
