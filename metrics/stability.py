"""Distance of a model from its decision boundary, and stability of its loss under noise."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from .common import (
    at_least_float32,
    check,
    check_choice,
    check_classes,
    check_images,
    check_logits,
    nan_where_undefined,
)
from .registry import Reduction, metric, reduce

INFINITE = float("inf")
Model = Callable[[Tensor], Tensor]
IMAGES = 256  # images per model call


@metric(
    symbol="EBD",
    title="Empirical boundary distance",
    robust_when="higher",
    between=(0, INFINITE),
    unit="grey levels",
    source="AISafety (Liu et al. 2021), eq 20",
    formula="mean of the least a of a grid with F(clip(x + a v / 255)) != y for a random orthogonal v, or the last",
    needs=("boundary",),
)
def empirical_boundary_distance(
    model: Model,
    inputs: Tensor,
    labels: Tensor,
    directions: Tensor,
    magnitudes: Tensor,
    *,
    reduction: Reduction = "mean",
) -> Tensor:
    """Smallest magnitude at which a step along one of several directions changes the model's decision.

    For each magnitude a and direction v, an image x is moved to clip(x + a / 255 v, 0, 1). The value depends on the
    magnitudes and directions, which the AISafety paper does not specify.

    Args:
        model: classifier in evaluation mode, from images (N, C, H, W) to logits (N, K).
        inputs: clean images in [0, 1], shape (N, C, H, W).
        labels: true classes, shape (N,), int64.
        directions: directions with root mean square 1, shape (m, C, H, W), such as those of `orthogonal_directions`.
        magnitudes: root mean square changes in grey levels, increasing, shape (g,), >= 0.
        reduction: "mean" or "sum" over the images, or "none".

    Returns:
        The magnitude in grey levels, as a scalar. For "none", one value for each image, shape (N,). 0 for misclassified
        images. The largest magnitude for images that stay correct after every step.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    sizes = _check_examples(inputs, labels)
    grid = _checked_grid(directions, magnitudes, sizes)
    distance = at_least_float32(inputs).new_full((sizes["N"],), grid[-1])
    right = _right(model, inputs, labels)
    distance[~right] = 0
    left = right.nonzero()[:, 0]
    for magnitude in grid:
        held = _held(model, inputs[left], labels[left], directions, magnitude / 255)
        distance[left[~held]] = magnitude
        left = left[held]
    return reduce(distance, reduction)


@metric(
    symbol="EBD2",
    title="Empirical boundary distance 2",
    robust_when="higher",
    between=(0, INFINITE),
    unit="steps",
    source="AISafety (Liu et al. 2021), EBD-2",
    formula="mean number of steps of BIM (0.0005 each) until F != y, without images that need more than 1000",
    latex=r"\operatorname{mean} \min \{ s \leq 1000 : F(\mathrm{BIM}_s(x)) \neq y \}",
    aliases=("EBD-2",),
    needs=("boundary",),
)
def boundary_steps(
    model: Model,
    inputs: Tensor,
    labels: Tensor,
    step_size: float = 0.0005,
    limit: int = 1000,
    *,
    towards: Literal["any", "each"] = "any",
    reduction: Reduction = "mean",
) -> Tensor:
    """Number of steps of the basic iterative attack until the model misclassifies the image.

    Each step follows the sign of the gradient of the cross-entropy. The image stays in [0, 1], and there is no other
    bound. The text of the AISafety paper describes steps "for each direction j in the k classes". The program of the
    authors steps away from the true class.

    Args:
        model: differentiable classifier in evaluation mode, from images (N, C, H, W) to logits (N, K).
        inputs: clean images in [0, 1], shape (N, C, H, W).
        labels: true classes, shape (N,), int64.
        step_size: change of each value in one step, > 0.
        limit: number of steps after which an image is excluded, at least 1.
        towards: "any" steps away from the true class. "each" steps towards every other class in turn and returns the
            smallest number of steps. This costs up to K - 1 times as much.
        reduction: "mean" or "sum" over the images that count, or "none".

    Returns:
        The number of steps, as a scalar. For "none", one value for each image, shape (N,), and NaN where the limit is
        reached. 0 for misclassified images.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    sizes = _check_examples(inputs, labels)
    if not step_size > 0 or limit < 1:
        raise ValueError(f"expected step_size > 0 and limit >= 1, got {step_size} and {limit}")
    check_choice("towards", towards, ("any", "each"))
    steps = nan_where_undefined(at_least_float32(inputs).new_zeros(sizes["N"]), ~_right(model, inputs, labels))
    right = steps.isnan().nonzero()[:, 0]
    if towards == "any" or not len(right):
        steps[right] = _steps(
            model, inputs[right], labels[right], None, step_size, steps.new_full((len(right),), limit)
        )
        return reduce(steps, reduction)
    with torch.no_grad():
        classes = model(inputs[right[:1]]).shape[1]
    least = steps.new_full((len(right),), limit + 1)
    for offset in range(1, classes):  # each stops where it could not be the least
        targets = (labels[right] + offset) % classes
        least = least.fmin(_steps(model, inputs[right], labels[right], targets, step_size, least - 1))
    steps[right] = nan_where_undefined(least, least <= limit)
    return reduce(steps, reduction)


@metric(
    symbol="ENI",
    title="Empirical noise insensitivity",
    robust_when="lower",
    between=(0, INFINITE),
    unit="nats per pixel range",
    source="AISafety (Liu et al. 2021), eq 21",
    formula="mean over x and noisy m of |loss(x, y) - loss(m, y)| / ||x - m||_inf, 0 < ||x - m||_inf <= epsilon",
    latex=r"\operatorname{mean}_{x, m} \frac{|\ell(x, y) - \ell(m, y)|}{\lVert x - m \rVert_\infty}, "
    r"\quad 0 < \lVert x - m \rVert_\infty \leq \epsilon",
    needs=("consistency", "confidences"),
)
def noise_insensitivity(
    logits: Tensor, noisy_logits: Tensor, inputs: Tensor, noisy_inputs: Tensor, labels: Tensor, epsilon: float
) -> Tensor:
    """Change of the cross-entropy loss per L-infinity change of the image, averaged over noisy versions of the images.

    A noisy version is omitted if it equals the clean image, or if it differs from the clean image by more than epsilon.

    Args:
        logits: logits of the clean images, shape (N, K).
        noisy_logits: logits of m noisy versions of each image, shape (N, m, K).
        inputs: clean images in [0, 1], shape (N, C, H, W).
        noisy_inputs: m noisy versions of each image, in [0, 1], shape (N, m, C, H, W).
        labels: true classes, shape (N,), int64.
        epsilon: largest change of a colour value that counts, > 0.

    Returns:
        A scalar, in nats per full pixel range. NaN if all noisy versions are omitted.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    return noise_ratios(logits, noisy_logits, inputs, noisy_inputs, labels, epsilon).nanmean()


def noise_ratios(
    logits: Tensor, noisy_logits: Tensor, inputs: Tensor, noisy_inputs: Tensor, labels: Tensor, epsilon: float
) -> Tensor:
    """Change of the cross-entropy loss per L-infinity change of the image, for each noisy version of each image.

    Args:
        logits: logits of the clean images, shape (N, K).
        noisy_logits: logits of m noisy versions of each image, shape (N, m, K).
        inputs: clean images in [0, 1], shape (N, C, H, W).
        noisy_inputs: m noisy versions of each image, in [0, 1], shape (N, m, C, H, W).
        labels: true classes, shape (N,), int64.
        epsilon: largest change of a colour value that counts, > 0.

    Returns:
        Ratios, shape (N m,), in nats per full pixel range. The m noisy versions of an image are adjacent. NaN for a
        noisy version that equals the clean image, or differs from it by more than epsilon.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    sizes = check_logits(logits=logits)
    check_classes(sizes, labels=labels)
    sizes = check({"noisy_logits": noisy_logits}, "N m K", sizes=sizes)
    sizes = check({"inputs": inputs}, "N C H W", within=(0, 1), sizes=sizes)
    check({"noisy_inputs": noisy_inputs}, "N m C H W", within=(0, 1), sizes=sizes)
    if not epsilon > 0:
        raise ValueError(f"expected epsilon > 0, got {epsilon}")
    loss = cross_entropy(at_least_float32(logits), labels, reduction="none")
    repeated = labels[:, None].expand(-1, sizes["m"])
    noisy_loss = cross_entropy(at_least_float32(noisy_logits).flatten(0, 1), repeated.flatten(), reduction="none")
    rise = (noisy_loss.unflatten(0, repeated.shape) - loss[:, None]).abs()
    distance = (at_least_float32(noisy_inputs) - at_least_float32(inputs)[:, None]).abs().flatten(2).amax(2)
    rounding = 4 * torch.finfo(distance.dtype).eps
    return nan_where_undefined(rise / distance, (distance > 0) & (distance <= epsilon + rounding)).flatten()


def orthogonal_directions(count: int, like: Tensor, *, seed: int = 0) -> Tensor:
    """Draw random orthogonal directions for `empirical_boundary_distance`.

    Args:
        count: number of directions, at most the number of values in an image.
        like: image of shape (C, H, W). The directions have the shape, precision and device of this image.
        seed: random seed. The random numbers are the same on every device.

    Returns:
        Directions, shape (count, C, H, W). Each direction has root mean square 1.

    Raises:
        ValueError: if `count` exceeds the number of values in an image.
    """
    size = like.numel()
    if not 1 <= count <= size:
        raise ValueError(f"expected count from 1 to {size}, got {count}")
    generator = torch.Generator().manual_seed(seed)
    normal = torch.randn(size, count, generator=generator, dtype=torch.float64, device="cpu")
    basis = torch.linalg.qr(normal).Q * size**0.5
    return basis.T.reshape(count, *like.shape).to(like)


def _check_examples(inputs: Tensor, labels: Tensor) -> dict[str, int]:
    """Check images and labels. Labels are not compared with the number of classes, which is not known."""
    sizes = check_images(inputs=inputs)
    return check({"labels": labels}, "N", kind="int64", within=(0, INFINITE), sizes=sizes)


def _checked_grid(directions: Tensor, magnitudes: Tensor, sizes: dict[str, int]) -> list[float]:
    """Check the directions and magnitudes of `empirical_boundary_distance`, and return the magnitudes as a list."""
    check({"directions": directions}, "m C H W", sizes={name: sizes[name] for name in "CHW"})
    check({"magnitudes": magnitudes}, "g", kind="number", within=(0, INFINITE))
    if not len(magnitudes) or not len(directions) or (magnitudes.diff() <= 0).any():
        raise ValueError("expected at least one direction, and at least one magnitude; magnitudes must increase")
    return [float(magnitude) for magnitude in magnitudes]


def _right(model: Model, images: Tensor, labels: Tensor) -> Tensor:
    """Return whether the model classifies each image correctly, shape (N,), bool.

    An image with non-finite logits counts as wrong, because argmax would select NaN.
    """
    with torch.no_grad():
        logits = torch.cat([model(part) for part in images.split(IMAGES)])
    return (logits.argmax(1) == labels) & logits.isfinite().all(1)


def _held(model: Model, images: Tensor, labels: Tensor, directions: Tensor, length: float) -> Tensor:
    """Return whether each image remains correct after a step along every direction, shape (N,), bool."""
    left, tried = torch.arange(len(images), device=images.device), 0
    while len(left) and tried < len(directions):
        group = directions[tried : tried + max(IMAGES // len(left), 1)]
        moved = (images[left][:, None] + length * group).clamp(0, 1).to(images.dtype).flatten(0, 1)
        right = _right(model, moved, labels[left].repeat_interleave(len(group)))
        left, tried = left[right.unflatten(0, (len(left), len(group))).all(1)], tried + len(group)
    return torch.zeros_like(labels, dtype=torch.bool).index_fill_(0, left, True)


def _steps(
    model: Model, images: Tensor, labels: Tensor, targets: Tensor | None, step_size: float, limits: Tensor
) -> Tensor:
    """Return the number of gradient steps after which the model misclassifies each image, shape (N,).

    Steps go away from the labels, or towards the targets if there are targets. NaN if an image reaches its limit.
    """
    steps = nan_where_undefined(limits, torch.zeros_like(labels, dtype=torch.bool))
    left, moved, step = (limits >= 1).nonzero()[:, 0], images[limits >= 1], 0
    while len(left):
        step += 1
        aims, sign = (labels[left], 1) if targets is None else (targets[left], -1)
        moved = (moved + sign * step_size * _gradient(model, moved, aims).sign()).clamp(0, 1)
        still_right = _right(model, moved, labels[left])
        steps[left[~still_right]] = step
        kept = still_right & (limits[left] > step)
        left, moved = left[kept], moved[kept]
    return steps


def _gradient(model: Model, images: Tensor, labels: Tensor) -> Tensor:
    parts = []
    for part, classes in zip(images.split(IMAGES), labels.split(IMAGES), strict=True):
        with torch.enable_grad():
            leaf = part.detach().requires_grad_()
            loss = cross_entropy(model(leaf), classes, reduction="sum")
            parts.append(torch.autograd.grad(loss, leaf)[0])
    return torch.cat(parts)
