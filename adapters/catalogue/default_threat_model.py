"""Default threat model of a comparison, for the parts that the user does not give."""

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
    """Complete a threat model: with the norm that most libraries support, and the usual radius if the attack needs one.

    Args:
        attack: the canonical attack.
        rows: its implementations under comparison.
        components: C x H x W of an image.
        norm: None without an epsilon: the norm in `rows` that most implementations of the attack support (the first of
            linf, l2, l1, l0, unrestricted if tied). None with an epsilon, for a fixed-budget attack: its only norm, or
            linf if epsilon <= 1.
        epsilon: if None, `default_epsilon` for a fixed-budget attack, no radius for a minimum-norm attack.
        targeted: whether the attack is targeted.

    Raises:
        UnknownName: if there is no such norm.
        Unsupported: if no implementation supports it.
        InvalidInput: if epsilon does not fit the norm, or determines no norm.
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
        raise InvalidInput(f'{name} declares no norm, so one is needed: --norm linf, or `norm = "linf"` on the attack')
    chosen: Norm = norm if norm in NORMS else _usual_norm(rows[0], have)  # type: ignore[assignment]
    if epsilon is not None and chosen == "unrestricted":
        raise InvalidInput(f"expected no epsilon for {attack} under an unrestricted threat model, got {epsilon}")
    if epsilon is None and canonical_attack(rows[0]).kind == "fixed-budget":
        epsilon = declared_epsilon(rows[0]) or default_epsilon(chosen, components)
    return ThreatModel(chosen, epsilon, targeted)


def _norm_that_follows(row: Implementation, have: Sequence[Norm], epsilon: float) -> Norm | None:
    """Return the norm to which a radius without a norm refers, for a fixed-budget attack; None if no norm follows.

    Raises:
        InvalidInput: if several norms are possible.
    """
    wanted = f"epsilon {format_radius('linf', epsilon)} for {row.attack} needs a norm"
    name_it = f"name it: `norm={' or '.join(have)}`"
    if canonical_attack(row).kind == "minimum-norm":
        meaning = "it is a minimum-norm attack, for which an example within that radius counts as fooled"
        raise InvalidInput(f"{wanted}: {meaning}; {name_it}")
    if len(have) > 1 and ("linf" not in have or epsilon > 1):
        raise InvalidInput(f"{wanted}: a radius has no meaning without its norm; {name_it}")
    return "linf" if len(have) > 1 else None


def _usual_norm(row: Implementation, have: Sequence[Norm]) -> Norm:
    """Return the norm, among `have`, that most implementations of the attack support."""
    if row.given is not None:
        return next(norm for norm in row.classes if norm in have)  # type: ignore[return-value]
    rows = [each for each in IMPLEMENTATIONS.values() if each.attack == row.attack and not each.variant]
    return max(have, key=lambda norm: sum(norm in row.classes for row in rows))


def default_epsilon(norm: Norm, components: int) -> float | None:
    """Return the radius that papers use on images of this size, or None for "unrestricted".

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
