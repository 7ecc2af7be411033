"""Chooses the attacks of a challenge and their budgets, after Carlini et al. 2019 and Tramer et al. 2020."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...adapters import IMPLEMENTATIONS
from ...adapters.catalogue.lookup import LIBRARIES
from ...adapters.models.classifier import DRAWS
from ...adapters.threat_model import Norm
from ...errors import InvalidInput, Unsupported
from ..plan.config import AttackChoice

ENOUGH = 4  # fewest classes for the targeted logit-difference ratio
ON_MARGIN = "apgd-margin"
NORMS: tuple[Norm, ...] = ("linf", "l2")
_ORDER = ("pyautoattack", "foolbox", "torchattacks", "adv-lib", "davylamp", "art")  # the authors' code first


@dataclass(frozen=True)
class ChallengeBudget:
    """Budget of the attacks of a challenge, for each image.

    Args:
        steps: number of iterations of the gradient attacks.
        candidates: number of the most likely classes, including the label, from which the targeted attack takes its
            target classes.
        queries: number of queries of each black-box attack.
        eot: number of samples of a randomised model that are averaged for each query of an attack.
        judge_samples: number of samples of a randomised model on which each example is judged.
    """

    steps: int = 50
    candidates: int = 5
    queries: int = 1000
    eot: int = 10
    judge_samples: int = DRAWS


QUICK = ChallengeBudget(10, 2, 100, 5, DRAWS)
QUICK_IMAGES = 10


def gradient_attacks(
    norm: str, epsilon: float, effort: ChallengeBudget, classes: int, *, is_random: bool = False
) -> tuple[AttackChoice, ...]:
    """Return the untargeted gradient attacks: APGD on cross-entropy, and APGD on the logit-difference ratio (DLR).

    For a model with fewer than four classes, APGD on the plain margin replaces APGD on DLR. For a randomised model, PGD
    is added, because APGD may return an example that fooled only a few samples.
    """
    names = ("apgd-ce", "apgd-dlr" if classes >= ENOUGH else ON_MARGIN)
    attacks = tuple(choose_row(name, norm, epsilon, {"steps": effort.steps}) for name in names)
    if not is_random:
        return attacks
    steps = {"steps": effort.steps, "step_size": "2.5 epsilon / steps", "random_start": False}
    return (*attacks, choose_row("pgd", norm, epsilon, steps))


def targeted_attacks(norm: str, epsilon: float, effort: ChallengeBudget, classes: int) -> tuple[AttackChoice, ...]:
    """Return the targeted attack: APGD on the targeted logit-difference ratio, for the most likely other classes.

    For a model with fewer than four classes, FAB is returned instead.
    """
    if classes < ENOUGH:
        return (choose_row("fab", norm, epsilon, {"steps": effort.steps}),)
    candidates = min(effort.candidates, classes)
    return (choose_row("apgd-t", norm, epsilon, {"steps": effort.steps, "candidates": candidates}),)


def single_step(norm: str, epsilon: float) -> tuple[AttackChoice, ...]:
    """Return a single-step gradient attack. If it fools more images than iterative attacks, gradients are masked."""
    return (choose_row("fgsm" if norm == "linf" else "fgm", norm, epsilon, {}),)


def black_boxes(norm: str, epsilon: float, effort: ChallengeBudget) -> tuple[AttackChoice, ...]:
    """Return a score-based attack (Square) and a decision-based attack (RayS)."""
    return (
        choose_row("square", norm, epsilon, {"steps": effort.queries}),
        choose_row("rays", norm, epsilon, {"max_queries": effort.queries * effort.eot}),
    )


def check_norm(norm: str) -> Norm:
    """Check that a norm is "linf" or "l2", and return the norm unchanged. Raises InvalidInput for other norms."""
    for known in NORMS:
        if norm == known:
            return known
    raise InvalidInput(f"expected norm as {' or '.join(NORMS)}, got {norm}")


def choose_row(attack: str, norm: str, epsilon: float, parameters: Mapping[str, Any]) -> AttackChoice:
    """Choose an installed library's implementation of an attack. The code of the attack's authors is preferred.

    Parameters that are not given have the defaults of the library.

    Raises:
        Unsupported: If no installed library implements the attack in this norm.
    """
    rows = [row for row in IMPLEMENTATIONS.values() if row.attack == attack and not row.variant and not row.broken]
    rows = [row for row in rows if norm in row.classes and LIBRARIES[row.library].is_installed]
    if not rows:
        raise Unsupported(f"no installed library has {attack} in {norm}; run: pip install davylamp[all]")
    row = min(rows, key=lambda row: _ORDER.index(row.library) if row.library in _ORDER else len(_ORDER))
    return AttackChoice(row.name, norm, epsilon, parameters=parameters, defaults=True)  # type: ignore[arg-type]
