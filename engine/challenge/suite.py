"""Which attacks a defence has to stand, and how much of each: Carlini et al. 2019 and Tramer et al. 2020."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...adapters import IMPLEMENTATIONS
from ...adapters.catalogue.lookup import LIBRARIES
from ...adapters.models.classifier import DRAWS
from ...adapters.threat_model import Norm
from ...errors import InvalidInput, Unsupported
from ..plan.config import AttackChoice

ENOUGH = 4  # classes, for the targeted logit-difference ratio
ON_MARGIN = "apgd-margin"
NORMS: tuple[Norm, ...] = ("linf", "l2")
_ORDER = ("pyautoattack", "foolbox", "torchattacks", "adv-lib", "davylamp", "art")  # the authors' code first


@dataclass(frozen=True)
class ChallengeBudget:
    """How much is spent on each image.

    Args:
        steps: of the attacks by gradients.
        candidates: most likely classes that the targeted one considers, the label among them.
        queries: of each of the black-box attacks.
        eot: answers of a random model whose mean every attack sees.
        draws: answers of it that judge an example.
    """

    steps: int = 50
    candidates: int = 5
    queries: int = 1000
    eot: int = 10
    draws: int = DRAWS


QUICK = ChallengeBudget(10, 2, 100, 5, DRAWS)
QUICK_IMAGES = 10


def gradient_attacks(
    norm: str, epsilon: float, effort: ChallengeBudget, classes: int, *, is_random: bool = False
) -> tuple[AttackChoice, ...]:
    """APGD on the cross-entropy and on the logit-difference ratio, below four classes on the plain margin.

    On a random model PGD, too: it goes on where APGD keeps what a few draws were fooled by.
    """
    names = ("apgd-ce", "apgd-dlr" if classes >= ENOUGH else ON_MARGIN)
    attacks = tuple(choose_row(name, norm, epsilon, {"steps": effort.steps}) for name in names)
    if not is_random:
        return attacks
    steps = {"steps": effort.steps, "step_size": "2.5 epsilon / steps", "random_start": False}
    return (*attacks, choose_row("pgd", norm, epsilon, steps))


def targeted_attacks(norm: str, epsilon: float, effort: ChallengeBudget, classes: int) -> tuple[AttackChoice, ...]:
    """APGD towards each of the likeliest other classes, on the targeted ratio; below four classes FAB, at all."""
    if classes < ENOUGH:
        return (choose_row("fab", norm, epsilon, {"steps": effort.steps}),)
    candidates = min(effort.candidates, classes)
    return (choose_row("apgd-t", norm, epsilon, {"steps": effort.steps, "candidates": candidates}),)


def single_step(norm: str, epsilon: float) -> tuple[AttackChoice, ...]:
    """One step: a defence that it breaks better than many steps has misleading gradients."""
    return (choose_row("fgsm" if norm == "linf" else "fgm", norm, epsilon, {}),)


def black_boxes(norm: str, epsilon: float, effort: ChallengeBudget) -> tuple[AttackChoice, ...]:
    """By scores (Square) and by decisions alone (RayS)."""
    return (
        choose_row("square", norm, epsilon, {"steps": effort.queries}),
        choose_row("rays", norm, epsilon, {"max_queries": effort.queries * effort.eot}),
    )


def check_norm(norm: str) -> Norm:
    """The norm; InvalidInput for one that the attacks do not share."""
    for known in NORMS:
        if norm == known:
            return known
    raise InvalidInput(f"expected norm as {' or '.join(NORMS)}, got {norm}")


def choose_row(attack: str, norm: str, epsilon: float, parameters: Mapping[str, Any]) -> AttackChoice:
    """An attack by the authors' code where it is installed, else by another library, all else at its defaults.

    Raises:
        Unsupported: if no installed library has it in this norm.
    """
    rows = [row for row in IMPLEMENTATIONS.values() if row.attack == attack and not row.variant and not row.broken]
    rows = [row for row in rows if norm in row.classes and LIBRARIES[row.library].is_installed]
    if not rows:
        raise Unsupported(f"no installed library has {attack} in {norm}; run: pip install davylamp[all]")
    row = min(rows, key=lambda row: _ORDER.index(row.library) if row.library in _ORDER else len(_ORDER))
    return AttackChoice(row.name, norm, epsilon, parameters=parameters, defaults=True)  # type: ignore[arg-type]
