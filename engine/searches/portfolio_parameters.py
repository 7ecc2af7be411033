"""Chooses the parameters of each attack in a portfolio search, from the best radius so far and the available passes."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ...adapters import Implementation, canonical_attack
from ...adapters.catalogue.lookup import accepts_parameter

_GRID = 3.0  # radii are rounded to powers of this for a parameter: images with similar radii share a call
_FINE = 8  # steps are rounded down to this many parts of a power of two, for the same reason
_STEP_SIZES = ("2.5 epsilon / steps", "5 epsilon / steps", "1 epsilon / steps")
_OPENING = {"fab-t": 30}  # passes after which the first radius has the right size; for other attacks:
_USUAL_OPENING = 40
_OPENING_BEFORE_STEP = 32  # if DeepFool's step comes next
# Smallest useful numbers of passes for an attack's schedule, whatever its step size.
_LEAST: Mapping[str, int] = {"pdgd": 110, "pdpgd": 400, "alma": 140}
_FEWEST = 4
_NEAR = 1.0  # first step of an attack that starts at the nearest example, relative to the radius
_MOST_NEAR, _SHARE_NEAR = 33, 5  # passes of such a run: a fifth of all, at most 33
_FEWEST_NEAR: Mapping[str, int] = {"l2": 8, "linf": 30}  # fewer do not help; measured in these norms only
# Attacks from far outside find different examples than attacks from the image: they get this many passes at once.
_EARLY: Mapping[str, int] = {"pdgd": 200, "alma": 300}
# PDGD's dual variable starts 4.6 from 0 and moves by at most 0.1 a step, by ever less towards the end of its
# schedule: in a schedule of fewer steps it arrives only at the end. A schedule of this length, cut off when the
# passes end, finds nearer examples than a whole one that fits them.
_PLANNED = 150
_SHARE_STEP = 8  # DeepFool's step may cost an eighth of all passes: a backward pass for each class


class RoundContext(NamedTuple):
    """State of an image before the next round of an attack on this image.

    Args:
        number: number of earlier rounds of the attack on this image.
        passes: passes available in the round.
        radius: distance of the nearest example, rounded to a power of 3. None if no attack has fooled the image yet.
        norm: norm of the radius.
        components: C x H x W.
        begun: whether the round starts at the nearest example instead of the clean image.
    """

    number: int
    passes: int
    radius: float | None
    norm: str
    components: int
    begun: bool = False

    @property
    def length(self) -> float | None:
        """Largest l2 norm of a change within the radius. None without a radius, or in norms other than linf and l2."""
        scale = {"linf": math.sqrt(self.components), "l2": 1.0}.get(self.norm)
        return None if self.radius is None or scale is None else self.radius * scale


def rounded_radius(radius: float) -> float | None:
    """Return the power of 3 nearest to a radius; None for 0 and infinity."""
    return _GRID ** round(math.log(radius, _GRID)) if 0 < radius < math.inf else None


def steps_within_budget(passes: int) -> int:
    """Return how many steps, each of a forward and a backward pass, fit into `passes`; at least 1.

    The number is rounded down to one of 8 values per octave, so that images with similar budgets share a library call.
    """
    steps = max(1, passes // 2)
    grain = max(1, 2 ** (steps.bit_length() - 1) // _FINE)
    return steps // grain * grain


def opening_passes(row: Implementation, *, before_step: bool) -> int:
    """Return the number of passes of the opening, in which the first attack gives each image its first radius.

    If `before_step`, there are fewer passes, because DeepFool's single step comes next.
    """
    return _OPENING.get(row.attack, _OPENING_BEFORE_STEP if before_step else _USUAL_OPENING)


def early_passes(row: Implementation, classes: int, max_queries: int, *, one_step: bool, cost: int) -> int:
    """Return the number of passes that an attack gets in one block between the opening and the rounds; 0 for none.

    Args:
        row: the attack.
        classes: number of classes.
        max_queries: query budget of the search.
        one_step: whether the attack makes only one step (`is_one_step`).
        cost: number of passes that one call of the model counts: for a random model, the number of averaged samples.
    """
    if one_step:
        step = _passes_of_step(classes, cost)
        return step if step * _SHARE_STEP <= max_queries else 0
    return _EARLY.get(row.attack, 0)


def _passes_of_step(classes: int, cost: int) -> int:
    """Return the passes of DeepFool's step: a forward pass, a backward pass for each other class, and a final check."""
    return (classes + 1) * cost


def is_one_step(row: Implementation, norm: str) -> bool:
    """Whether an attack makes only one step after the opening: adv-lib's DeepFool in l2.

    DeepFool goes to the nearest class by the gradients of all classes, while the other attacks go to the likeliest
    class. After one step of DeepFool, the other attacks find nearer examples than further steps of DeepFool would.
    """
    return norm == "l2" and row.library == "adv-lib" and row.attack == "deepfool"


def starts_from_best(number: int, norm: str) -> bool:
    """Whether a round of an attack starts at the nearest example: in linf, every other round if supported.

    In l2, FMN follows DDN and would end at the same boundary, so a round that starts at the clean image gains more.
    """
    return norm == "linf" and number % 2 == 0


def last_passes(max_queries: int, norm: str) -> int:
    """Return the number of passes reserved for the last run, which starts at the nearest examples.

    0 if there is no such run.
    """
    passes = min(max_queries // _SHARE_NEAR, _MOST_NEAR)
    return passes if norm in _FEWEST_NEAR and passes >= _FEWEST_NEAR[norm] else 0


def min_useful_queries(row: Implementation, classes: int, *, one_step: bool, cost: int) -> int:
    """Return the number of passes that one round of an attack needs at least. With fewer, it changes almost no image.

    Args:
        row: implementation of the attack.
        classes: number of the model's classes.
        one_step: whether the attack makes only one step, see `is_one_step`.
        cost: number of passes that one call of the model counts, see `early_passes`.
    """
    if one_step:
        return _passes_of_step(classes, cost)
    if row.attack == "fab":  # a backward pass for each class, and three steps
        return 3 * (classes + 1)
    return _LEAST.get(row.attack, _FEWEST)


def round_parameters(row: Implementation, given: Mapping[str, Any], turn: RoundContext) -> dict[str, Any]:
    """Return the parameters for one round of an attack: the given ones, and chosen values for all others."""
    chosen: dict[str, Any] = {"steps": steps_within_budget(turn.passes), **_OF_ATTACK.get(row.attack, _nothing)(turn)}
    if canonical_attack(row).kind == "fixed-budget" and accepts_parameter(row, "steps"):
        chosen["step_size"] = _STEP_SIZES[turn.number % len(_STEP_SIZES)]
    chosen = {name: value for name, value in chosen.items() if accepts_parameter(row, name)}
    return chosen | {name: value for name, value in given.items() if accepts_parameter(row, name)}


def _nothing(turn: RoundContext) -> dict[str, Any]:
    del turn
    return {}


def _fmn(turn: RoundContext) -> dict[str, Any]:
    """Return FMN's first step size and the rate at which FMN changes its radius.

    In linf and l2, the first step size is 3, 1 and 10 times `turn.length` in successive rounds. In other norms, the
    default of the library is used. In a round that starts at an example, the step is as long as the radius.
    """
    if turn.begun and turn.length is not None:
        return {"learning_rate": _NEAR * turn.length, "gamma": 0.03}
    gamma = 0.15 if turn.passes < 150 else 0.05
    if turn.length is None:
        return {"gamma": gamma}
    return {"learning_rate": (3.0, 1.0, 10.0)[turn.number % 3] * turn.length, "gamma": gamma}


def _ddn(turn: RoundContext) -> dict[str, Any]:
    """Return the first radius of DDN, and its rate of change.

    The first radius is the best radius so far, if there is one. The rate is larger for few steps.
    """
    gamma = 0.3 if turn.passes < 80 else 0.1 if turn.passes < 150 else 0.05
    return {"gamma": gamma} | ({} if turn.radius is None else {"initial_epsilon": turn.radius})


def _alma(turn: RoundContext) -> dict[str, Any]:
    return {"learning_rate": (0.1, 0.03, 0.3)[turn.number % 3]}


def _deepfool(turn: RoundContext) -> dict[str, Any]:
    """Return at least two steps, because DeepFool tests the result of a step only when the next step begins.

    With two classes, the available passes would allow only one step.
    """
    return {"steps": max(2, steps_within_budget(turn.passes))}


def _pdgd(turn: RoundContext) -> dict[str, Any]:
    return {"learning_rate": (1.0, 0.3, 0.1)[turn.number % 3], "steps": max(_PLANNED, steps_within_budget(turn.passes))}


_OF_ATTACK: Mapping[str, Callable[[RoundContext], dict[str, Any]]] = {
    "fmn": _fmn,
    "ddn": _ddn,
    "alma": _alma,
    "deepfool": _deepfool,
    "pdgd": _pdgd,
}
