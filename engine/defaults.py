"""The threat model that a comparison uses where the user leaves it open."""

import math
from collections.abc import Sequence

from ..adapters import Implementation, ThreatModel, find_attack
from ..adapters.attack import NORMS, Norm
from ..errors import InvalidInput, UnknownName, Unsupported

__all__ = ["choose_threat_model", "default_epsilon"]


def choose_threat_model(
    attack: str,
    rows: Sequence[Implementation],
    components: int,
    *,
    norm: str | None = None,
    epsilon: float | None = None,
    targeted: bool = False,
) -> ThreatModel:
    """Complete a threat model: the norm that most libraries have, the customary radius if the attack needs one.

    Args:
        attack: the canonical attack.
        rows: its implementations under comparison.
        components: C x H x W of an image.
        norm: None: the first norm of linf, l2, l1, l0, unrestricted that most rows as shipped have.
        epsilon: None: `default_epsilon` for a fixed-budget attack, no radius for a minimum-norm one.
        targeted: whether the attack aims at a class.

    Raises:
        UnknownName: if the norm is none of the known ones.
        Unsupported: if no row has it.
        InvalidInput: if epsilon does not fit the norm.
    """
    if norm is not None and norm not in NORMS:
        raise UnknownName("norm", norm, NORMS)
    shipped = [row for row in rows if not row.variant] or rows
    counts = {candidate: sum(candidate in row.classes for row in shipped) for candidate in NORMS}
    chosen: Norm = norm if norm in NORMS else max(NORMS, key=lambda candidate: counts[candidate])  # type: ignore[assignment]
    if not counts[chosen]:
        have = ", ".join(candidate for candidate in NORMS if counts[candidate])
        raise Unsupported(f"no implementation of {attack} has norm {chosen}; they have: {have}")
    if epsilon is not None and chosen == "unrestricted":
        raise InvalidInput(f"expected no epsilon for {attack} under an unrestricted threat model, got {epsilon}")
    if epsilon is None and find_attack(attack).kind == "fixed-budget":
        epsilon = default_epsilon(chosen, components)
    return ThreatModel(chosen, epsilon, targeted)


def default_epsilon(norm: Norm, components: int) -> float | None:
    """The radius that papers use on images of this size: None for "unrestricted".

    linf 4/255; l2 a root mean square change of 2/255 (0.43 on CIFAR, 3.0 on ImageNet); l1 12 on CIFAR, growing with
    the side of the image; l0 one component in a hundred.
    """
    sizes = {
        "linf": 4 / 255,
        "l2": 2 / 255 * math.sqrt(components),
        "l1": 12 * math.sqrt(components / 3072),
        "l0": float(max(1, components // 100)),
    }
    return sizes.get(norm)
