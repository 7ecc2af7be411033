"""The budget at which an attack is to be evaluated: where its misclassification ratio stops growing (CANARY, 3.2.1)."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...adapters import Classifier, ThreatModel, attack_of, run_attack
from ...adapters.catalogue.customary import default_epsilon
from ...adapters.catalogue.lookup import check_support, row_of
from ...adapters.catalogue.step_size import resolve_step
from ...adapters.models.images import check_images
from ...adapters.threat_model import Norm
from ...errors import InvalidInput, Unsupported

THRESHOLD = 0.01
LEAST_L0 = 3.0  # a pixel in colour: below it some attacks cannot run, JSMA changes two components at a time
DOUBLINGS = range(-4, 5)  # of the customary radius: linf 0.25/255 to 64/255
_ROUNDING = 1e-9  # of the difference of two ratios


class Saturation(NamedTuple):
    """Where the ratio stops growing, None if it was not seen to; the budgets, ascending, and the ratio at each.

    `attacked` is the number of images that the ratios are of; `violations` how many results at each budget prove
    nothing: they count as not fooled.
    """

    epsilon: float | None
    budgets: tuple[float, ...]
    ratios: tuple[float, ...]
    threshold: float
    attacked: int
    violations: tuple[int, ...] = ()


def saturating_budget(  # noqa: PLR0913 - the nouns of run_attack by position, the choices by keyword
    implementation: Any,
    classifier: Classifier,
    inputs: Tensor,
    labels: Tensor,
    norm: Norm,
    *,
    budgets: Sequence[float] | None = None,
    threshold: float = THRESHOLD,
    targets: Tensor | None = None,
    seed: int = 0,
    progress: Callable[[int], object] | None = None,
    **parameters: Any,
) -> Saturation:
    """Run a fixed-budget attack at several budgets, and find the smallest one that loses nothing against the best.

    The paper walks from a first budget: up while the misclassification ratio grows significantly, then down while it
    does not fall significantly. It says neither where to start, nor how long the steps are, nor what is significant.
    Here all budgets are run and the answer is the smallest whose ratio is at most `threshold` below the highest: where
    the walk ends if its ratio only grows, but neither a flat start, where nothing succeeds yet, nor many small losses
    on the way down can mislead it. A ratio counts the images that the classifier gets right when clean, of a model that
    draws random numbers the shares of their draws.

    Args:
        implementation: a fixed-budget row, or its name: "foolbox:pgd".
        classifier: the model under attack.
        inputs: clean images in [0, 1], shape (N, C, H, W).
        labels: ground truth, int64, shape (N,).
        norm: of the budgets.
        budgets: at least two radii; None: the customary one (`default_epsilon`) times 1/16, 1/8, ... 16.
        threshold: difference of ratios from which on it is significant, 0 to 1; below 1 / N none is tolerated.
        targets: target classes, shape (N,): the attack is targeted then.
        seed: random seed.
        progress: called with the number of images done after each library call.
        **parameters: canonical parameters; `step_size` may be relative to the radius, as in `best_effort`.

    Returns:
        The budget; None if nothing succeeds, or the ratio still grows at the largest budget. It cannot beyond 1.

    Raises:
        Unsupported: for a minimum-norm row, which has no budget, or what the row cannot do.
        InvalidInput: if an argument has a wrong value, or the classifier gets no image right.
        AttackFailed: if the library crashed on every image at a budget.
    """
    row = row_of(implementation)
    if attack_of(row).kind != "fixed-budget":
        raise Unsupported(f"{row.name} looks for the smallest change by itself: it has no budget to choose")
    if not 0 <= threshold <= 1:
        raise InvalidInput(f"expected a threshold from 0 to 1, got {threshold}")
    check_images(inputs)
    chosen = default_budgets(norm, inputs[0].numel()) if budgets is None else sorted(set(map(float, budgets)))
    if len(chosen) < 2:
        raise InvalidInput(f"expected at least two different budgets, got {list(budgets or ())}")
    balls = [ThreatModel(norm, budget, targets is not None) for budget in chosen]
    settings = [check_support(row, ball, resolve_step(parameters, ball.epsilon)) for ball in balls]
    shared: dict[str, Any] = {"targets": targets, "seed": seed, "progress": progress}
    ratios, violations, attacked = [], [], 0
    for ball, values in zip(balls, settings, strict=True):
        result = run_attack(row, classifier, inputs, labels, ball, **shared, **values)
        if not result.attacked.any():
            raise InvalidInput("expected at least one image that the classifier gets right, got none")
        attacked = int(result.attacked.sum())
        ratios.append(float(result.fooled_share.sum()) / attacked)
        violations.append(int(result.violated.sum()))
    epsilon = _saturation(chosen, ratios, threshold)
    return Saturation(epsilon, tuple(chosen), tuple(ratios), threshold, attacked, tuple(violations))


def _saturation(budgets: Sequence[float], ratios: Sequence[float], threshold: float) -> float | None:
    """The smallest budget whose ratio is near the highest, if that is reached before the last one or cannot grow."""
    highest = max(ratios)
    near = [budget for budget, ratio in zip(budgets, ratios, strict=True) if is_near(ratio, highest, threshold)]
    seen = highest == 1 or near[0] < budgets[-1]
    return near[0] if highest > 0 and seen else None


def is_near(ratio: float, highest: float, threshold: float = THRESHOLD) -> bool:
    """Whether a ratio is not significantly below the highest one."""
    return ratio >= highest - threshold - _ROUNDING


def default_budgets(norm: Norm, components: int) -> list[float]:
    """The customary radius times 1/16, 1/8, ... 16, ascending; Unsupported for a norm without a ball."""
    customary = default_epsilon(norm, components)
    if customary is None:
        raise Unsupported(f"expected a norm with a ball to choose a budget in, got {norm}")
    largest = components if norm in ("l0", "l1") else torch.inf
    sizes = [min(customary * 2.0**doubling, largest) for doubling in DOUBLINGS]
    return sorted({max(LEAST_L0, float(int(size))) if norm == "l0" else size for size in sizes})
