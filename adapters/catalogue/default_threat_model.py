"""Chooses the norm and the radius of an attack if the user does not give them."""

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
    """Build a threat model from the norm and the radius that the user gave, or from defaults.

    Args:
        attack: name of the canonical attack.
        rows: the implementations that will be run.
        components: number of components of an image, C x H x W.
        norm: norm of the perturbation. If None, and `epsilon` is None, the norm that most implementations of the attack
            support is chosen. In case of a tie, it is the first of linf, l2, l1, l0, unrestricted. If only `epsilon` is
            given, the norm is linf if the attack has several norms, or else its only norm.
        epsilon: the radius. If None, a fixed-budget attack gets the radius of `default_epsilon`, and a minimum-norm
            attack gets no radius.
        targeted: whether the attack is targeted.

    Raises:
        UnknownName: if the norm does not exist.
        Unsupported: if no implementation supports the norm.
        InvalidInput: if `epsilon` is not allowed in the norm, or the norm of `epsilon` is not clear.
    """
    if norm is not None:
        check_norm(norm)
    shipped = [row for row in rows if not row.variant] or rows
    have: list[Norm] = [candidate for candidate in NORMS if any(candidate in row.classes for row in shipped)]
    if norm is not None and norm not in have:
        raise Unsupported(f"no implementation of {attack} supports the norm {norm}; supported: {', '.join(have)}")
    if norm is None and epsilon is not None:
        norm = _norm_that_follows(rows[0], have, epsilon)
    if norm is None and not rows[0].says_norm:
        name = rows[0].name
        wanted = "`norm='linf'`, or `norm = \"linf\"` on the attack"
        raise InvalidInput(f"{name} declares no norm; give one: {wanted}")
    chosen: Norm = norm if norm in NORMS else _usual_norm(rows[0], have)  # type: ignore[assignment]
    if epsilon is not None and chosen == "unrestricted":
        raise InvalidInput(
            f"the threat model of {attack} is unrestricted, so epsilon={epsilon} has no meaning; omit it"
        )
    if epsilon is None and canonical_attack(rows[0]).kind == "fixed-budget":
        epsilon = declared_epsilon(rows[0]) or default_epsilon(chosen, components)
    return ThreatModel(chosen, epsilon, targeted)


def _norm_that_follows(row: Implementation, have: Sequence[Norm], epsilon: float) -> Norm | None:
    """Return the norm of a radius that the user gave without a norm.

    Returns:
        "linf" if the attack has several norms, and None if it has only one.

    Raises:
        InvalidInput: if the attack has several norms and the radius cannot be meant in linf, because it is above 1 or
            the attack does not support linf. Also for every minimum-norm attack.
    """
    wanted = f"epsilon {format_radius('linf', epsilon)} for {row.attack} needs a norm"
    name_it = f"add `norm={' or '.join(have)}`"
    if canonical_attack(row).kind == "minimum-norm":
        meaning = "an example of this minimum-norm attack counts only if its distance is within the radius"
        raise InvalidInput(f"{wanted}: {meaning}; {name_it}")
    if len(have) > 1 and ("linf" not in have or epsilon > 1):
        raise InvalidInput(f"{wanted}: a radius has no meaning without its norm; {name_it}")
    return "linf" if len(have) > 1 else None


def _usual_norm(row: Implementation, have: Sequence[Norm]) -> Norm:
    if row.given is not None:
        return next(norm for norm in row.classes if norm in have)  # type: ignore[return-value]
    rows = [each for each in IMPLEMENTATIONS.values() if each.attack == row.attack and not each.variant]
    return max(have, key=lambda norm: sum(norm in row.classes for row in rows))


def default_epsilon(norm: Norm, components: int) -> float | None:
    """Return the radius that papers use for images with this number of components. None for "unrestricted".

    The radius is 4/255 for linf. For l2, it is a root mean square change of 2/255 per component (0.43 on CIFAR, 3.0 on
    ImageNet). For l1, it is 12 on CIFAR and grows with the side of the image. For l0, it is 1 % of the components.
    """
    sizes = {
        "linf": 4 / 255,
        "l2": 2 / 255 * math.sqrt(components),
        "l1": 12 * math.sqrt(components / 3072),
        "l0": float(max(1, components // 100)),
    }
    return sizes.get(norm)
