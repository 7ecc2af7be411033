"""The threat model that a comparison uses where the user leaves it open."""

import math
from collections.abc import Sequence

from ...errors import InvalidInput, Unsupported
from ..attack import Implementation
from ..display_text import format_radius
from ..libraries.user.as_implementation import declared_epsilon
from ..threat_model import NORMS, Norm, ThreatModel, check_norm
from .lookup import IMPLEMENTATIONS, canonical_attack

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
        norm: None: the first of linf, l2, l1, l0, unrestricted that these rows have and most rows of the attack have;
            with an epsilon, linf for a fixed-budget attack that has it, if epsilon <= 1, or the only norm there is.
        epsilon: None: `default_epsilon` for a fixed-budget attack, no radius for a minimum-norm one.
        targeted: whether the attack aims at a class.

    Raises:
        UnknownName: if the norm is none of the known ones.
        Unsupported: if no row has it.
        InvalidInput: if epsilon does not fit the norm, or none follows from it.
    """
    if norm is not None:
        check_norm(norm)
    shipped = [row for row in rows if not row.variant] or rows
    have: list[Norm] = [candidate for candidate in NORMS if any(candidate in row.classes for row in shipped)]
    if norm is not None and norm not in have:
        raise Unsupported(f"no implementation of {attack} has norm {norm}; they have: {', '.join(have)}")
    if norm is None and epsilon is not None:
        norm = _norm_that_follows(rows[0], have, epsilon)
    if norm is None and not rows[0].says_norm:
        name = rows[0].name
        raise InvalidInput(f'expected a norm for {name}, which does not say one: --norm linf, or `norm = "linf"` on it')
    chosen: Norm = norm if norm in NORMS else _usual_norm(rows[0], have)  # type: ignore[assignment]
    if epsilon is not None and chosen == "unrestricted":
        raise InvalidInput(f"expected no epsilon for {attack} under an unrestricted threat model, got {epsilon}")
    if epsilon is None and canonical_attack(rows[0]).kind == "fixed-budget":
        epsilon = declared_epsilon(rows[0]) or default_epsilon(chosen, components)
    return ThreatModel(chosen, epsilon, targeted)


def _norm_that_follows(row: Implementation, have: Sequence[Norm], epsilon: float) -> Norm | None:
    """The norm that a radius alone is meant in, for a fixed-budget attack; None: the only one, if the row says it.

    Raises:
        InvalidInput: if it would be read in a norm that nobody named.
    """
    wanted = f"expected a norm beside epsilon {format_radius('linf', epsilon)} for {row.attack}, got none"
    name_it = f"name it: `norm={' or '.join(have)}`"
    if canonical_attack(row).kind == "minimum-norm":
        meaning = "it looks for the smallest change, and counts as fooled what lies within that radius"
        raise InvalidInput(f"{wanted}: {meaning}; {name_it}")
    if len(have) > 1 and ("linf" not in have or epsilon > 1):
        raise InvalidInput(f"{wanted}: a radius means nothing without its norm; {name_it}")
    return "linf" if len(have) > 1 else None


def _usual_norm(row: Implementation, have: Sequence[Norm]) -> Norm:
    """The norm that most libraries have of an attack, among those at hand: the same for one of its rows as for all."""
    if row.given is not None:
        return next(norm for norm in row.classes if norm in have)  # type: ignore[return-value]
    rows = [each for each in IMPLEMENTATIONS.values() if each.attack == row.attack and not each.variant]
    return max(have, key=lambda norm: sum(norm in row.classes for row in rows))


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
