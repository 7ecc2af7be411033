"""What a search by several attacks chooses for each: parameters that fit the radius and the passes."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ...adapters import Implementation, canonical_attack
from ...adapters.catalogue.lookup import accepts_parameter

_GRID = 3.0  # radii are rounded to powers of this for a parameter: images with similar radii share a call
_FINE = 8  # steps are rounded down to so many parts of a power of two, for the same reason
_STEP_SIZES = ("2.5 epsilon / steps", "5 epsilon / steps", "1 epsilon / steps")
_OPENING = {"fab-t": 30}  # passes after which the first radius is of the right size; for the others:
_USUAL_OPENING = 40
_OPENING_BEFORE_STEP = 32  # if DeepFool's step comes next
# Passes below which an attack's schedule does not get it anywhere, however long its steps.
_LEAST: Mapping[str, int] = {"pdgd": 110, "pdpgd": 400, "alma": 140}
_FEWEST = 4
_NEAR = 1.0  # times the radius: the first step of an attack that begins at the nearest example
_MOST_NEAR, _SHARE_NEAR = 33, 5  # passes of such a run: a fifth of all
_FEWEST_NEAR: Mapping[str, int] = {"l2": 8, "linf": 30}  # with fewer it comes no nearer; measured in these norms only
# What comes from far outside finds what the others, who begin at the image, do not: it gets so many passes at once.
_EARLY: Mapping[str, int] = {"pdgd": 200, "alma": 300}
# PDGD's dual variable begins 4.6 from 0 and moves by at most 0.1 a step, by ever less towards the end of its schedule:
# in a schedule of fewer steps it arrives at the end only. One of so many, cut off where the passes end, comes nearer
# than a whole one that fits them.
_PLANNED = 150
_SHARE_STEP = 8  # DeepFool's step may cost an eighth of all passes: a backward pass for each class


class RoundContext(NamedTuple):
    """What is known when an attack gets its turn on an image.

    Args:
        number: how often the attack has had this image before.
        passes: that it may use.
        radius: of the nearest example, rounded; None: nothing has fooled the model yet.
        norm: of the radius.
        components: C x H x W.
        begun: whether the attack begins at the nearest example, not at the image.
    """

    number: int
    passes: int
    radius: float | None
    norm: str
    components: int
    begun: bool = False

    @property
    def length(self) -> float | None:
        """The l2 norm of the largest change within the radius: linf and l2 only."""
        scale = {"linf": math.sqrt(self.components), "l2": 1.0}.get(self.norm)
        return None if self.radius is None or scale is None else self.radius * scale


def rounded_radius(radius: float) -> float | None:
    """The power of 3 nearest to a radius; None for 0 and infinity."""
    return _GRID ** round(math.log(radius, _GRID)) if 0 < radius < math.inf else None


def steps_within_budget(passes: int) -> int:
    """How many steps of a forward and a backward pass fit, at least 1; rounded down to one of 8 in each octave."""
    steps = max(1, passes // 2)
    grain = max(1, 2 ** (steps.bit_length() - 1) // _FINE)
    return steps // grain * grain


def opening_passes(row: Implementation, *, before_step: bool) -> int:
    """How many passes the first attack gets for the first radius; fewer, if another's single step comes next."""
    return _OPENING.get(row.attack, _OPENING_BEFORE_STEP if before_step else _USUAL_OPENING)


def early_passes(row: Implementation, classes: int, max_queries: int, *, one_step: bool, cost: int) -> int:
    """How many passes an attack gets right after the opening, before the rounds begin; 0: none.

    An answer costs `cost` passes, a gradient as many: more than one where the attacks see the mean of several draws.
    """
    if one_step:
        step = _passes_of_step(classes, cost)
        return step if step * _SHARE_STEP <= max_queries else 0
    return _EARLY.get(row.attack, 0)


def _passes_of_step(classes: int, cost: int) -> int:
    """A forward pass, a backward pass for each other class, and a look at where it led."""
    return (classes + 1) * cost


def is_one_step(row: Implementation, norm: str) -> bool:
    """Whether an attack that does not open has one step right after the opening and no other turn: adv-lib's DeepFool.

    In l2 only. It goes to the nearest class by the gradients of all, where the others go to the likeliest; from there
    the others come nearer than its further steps. A second turn would find the same again.
    """
    return norm == "l2" and row.library == "adv-lib" and row.attack == "deepfool"


def starts_from_best(number: int, norm: str) -> bool:
    """Whether an attack that can begin at the nearest example does so in its turn of this number: in linf every other.

    In l2, where FMN comes after DDN, which ends at the same boundary, a turn from the image is worth more.
    """
    return norm == "linf" and number % 2 == 0


def last_passes(max_queries: int, norm: str) -> int:
    """How many of its passes a search keeps for a last run of an attack from the nearest examples; 0: none."""
    passes = min(max_queries // _SHARE_NEAR, _MOST_NEAR)
    return passes if norm in _FEWEST_NEAR and passes >= _FEWEST_NEAR[norm] else 0


def min_useful_queries(row: Implementation, classes: int, *, one_step: bool, cost: int) -> int:
    """With fewer passes than this an attack is not worth its turn; `cost` as for `early_passes`."""
    if one_step:
        return _passes_of_step(classes, cost)
    if row.attack == "fab":  # a backward pass for each class, and three steps
        return 3 * (classes + 1)
    return _LEAST.get(row.attack, _FEWEST)


def round_parameters(row: Implementation, given: Mapping[str, Any], turn: RoundContext) -> dict[str, Any]:
    """The parameters of one turn: those that were given, and for the others what the turn suggests."""
    chosen: dict[str, Any] = {"steps": steps_within_budget(turn.passes), **_OF_ATTACK.get(row.attack, _nothing)(turn)}
    if canonical_attack(row).kind == "fixed-budget" and accepts_parameter(row, "steps"):
        chosen["step_size"] = _STEP_SIZES[turn.number % len(_STEP_SIZES)]
    chosen = {name: value for name, value in chosen.items() if accepts_parameter(row, name)}
    return chosen | {name: value for name, value in given.items() if accepts_parameter(row, name)}


def _nothing(turn: RoundContext) -> dict[str, Any]:
    del turn
    return {}


def _fmn(turn: RoundContext) -> dict[str, Any]:
    """FMN's first step, which shrinks to a hundredth: three times the radius in l2, then once, then ten times.

    From an example that is near already, as long as the radius.
    """
    if turn.begun and turn.length is not None:
        return {"learning_rate": _NEAR * turn.length, "gamma": 0.03}
    gamma = 0.15 if turn.passes < 150 else 0.05
    if turn.length is None:
        return {"gamma": gamma}
    return {"learning_rate": (3.0, 1.0, 10.0)[turn.number % 3] * turn.length, "gamma": gamma}


def _ddn(turn: RoundContext) -> dict[str, Any]:
    """DDN's first sphere has the radius known, and changes faster where there are few steps."""
    gamma = 0.3 if turn.passes < 80 else 0.1 if turn.passes < 150 else 0.05
    return {"gamma": gamma} | ({} if turn.radius is None else {"initial_epsilon": turn.radius})


def _alma(turn: RoundContext) -> dict[str, Any]:
    return {"learning_rate": (0.1, 0.03, 0.3)[turn.number % 3]}


def _deepfool(turn: RoundContext) -> dict[str, Any]:
    """Room for a second step, which looks at where the first led; with two classes three passes have to do."""
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
