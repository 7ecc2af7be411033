"""Cost of an attack: running time, and forward and backward passes of the model."""

import torch
from torch import Tensor

from .common import at_least_float32, check, check_success, nan_where_undefined
from .registry import Reduction, metric, reduce

LEVELS = 5
AT_LEAST_ZERO = (0.0, float("inf"))


@metric(
    symbol="CTC",
    title="Calculation time cost",
    robust_when="higher",
    between=(0, LEVELS - 1),
    unit="level",
    source="CANARY (Sun et al. 2023), 3.1.3",
    formula="rank of the mean seconds among the attacks, in five equal groups: 0 is fastest",
    kind="set",
    stored="always",
    tables=("attacks",),
    only=("attacks", "pairs"),
)
def time_cost_levels(seconds: Tensor) -> Tensor:
    """Running time of each attack compared with the other attacks, in five levels from 0 (fastest) to 4 (slowest).

    CANARY's paper does not define the levels. Here the attacks are ranked by time and divided into five equal groups.
    Equal times have the same level. Only the order of the levels has a meaning.

    Args:
        seconds: running time of each attack, shape (A,), >= 0.

    Returns:
        Levels, shape (A,), int64.

    Raises:
        ValueError: if the times are not as described.
    """
    check({"seconds": seconds}, "A", kind="number", within=AT_LEAST_ZERO)
    faster = torch.searchsorted(seconds.sort().values, seconds)
    return faster * LEVELS // max(len(seconds), 1)


@metric(
    symbol="QNC_F",
    title="Forward queries",
    robust_when="higher",
    between=AT_LEAST_ZERO,
    unit="forward passes per image",
    source="CANARY (Sun et al. 2023), 3.1.3",
    formula="mean over successes of the forward passes for the image",
    latex=r"\operatorname{mean}_{\text{successes}} \text{forward}(x)",
    aliases=("QNC",),
    tables=("attacks", "pairs"),
    brief=True,
)
def forward_queries(forwards: Tensor, success: Tensor | None = None, *, reduction: Reduction = "mean") -> Tensor:
    """Number of forward passes of the model per image, averaged over successful attacks.

    Args:
        forwards: forward passes for each image, shape (N,), >= 0. A batch of b images counts as one pass for each
            image.
        success: whether each attack succeeded, shape (N,), bool. Only successes count. None means that all images
            count.
        reduction: "mean" or "sum" over the images that count, or "none".

    Returns:
        Passes per image, as a scalar. For "none", one value for each image, shape (N,), and NaN for images that do not
        count.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    check_success(check({"forwards": forwards}, "N", kind="number", within=AT_LEAST_ZERO), success=success)
    return reduce(nan_where_undefined(at_least_float32(forwards), success), reduction)


@metric(
    symbol="QNC_B",
    title="Backward queries",
    robust_when="higher",
    between=AT_LEAST_ZERO,
    unit="backward passes per image",
    source="CANARY (Sun et al. 2023), 3.1.3",
    formula="mean over successes of the backward passes for the image",
    latex=r"\operatorname{mean}_{\text{successes}} \text{backward}(x)",
    aliases=("QNC",),
    tables=("attacks", "pairs"),
    brief=True,
)
def backward_queries(backwards: Tensor, success: Tensor | None = None, *, reduction: Reduction = "mean") -> Tensor:
    """Number of backward passes of the model per image, averaged over successful attacks.

    The number is 0 for attacks that use no gradients.

    Args:
        backwards: backward passes for each image, shape (N,), >= 0. A batch of b images counts as one pass for each
            image.
        success: whether each attack succeeded, shape (N,), bool. Only successes count. None means that all images
            count.
        reduction: "mean" or "sum" over the images that count, or "none".

    Returns:
        Passes per image, as a scalar. For "none", one value for each image, shape (N,), and NaN for images that do not
        count.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    check_success(check({"backwards": backwards}, "N", kind="number", within=AT_LEAST_ZERO), success=success)
    return reduce(nan_where_undefined(at_least_float32(backwards), success), reduction)
