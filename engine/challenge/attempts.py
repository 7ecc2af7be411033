"""What each attack on a defended model came to, image by image, and what all of them leave."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from ...intervals import share_interval
from ..store.outcomes import Outcome

Part = Literal["undefended", "white-box", "single step", "transfer", "scores", "decisions", "larger radius"]
PARTS: Mapping[str, str] = {
    "undefended": "the undefended model, by gradients",
    "white-box": "by gradients, adapted to the defence",
    "single step": "by gradients, one step",
    "transfer": "made on another model",
    "scores": "by scores alone",
    "decisions": "by decisions alone",
    "larger radius": "by gradients, at a larger radius",
}
WHITE: tuple[Part, ...] = ("white-box", "single step")
BLACK: tuple[Part, ...] = ("transfer", "scores", "decisions")


class Accuracy(NamedTuple):
    """The share of images that are right, with its 95 % interval; n images."""

    value: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, eq=False)
class Attempt:
    """One attack.

    Args:
        part: what kind of attacker it is.
        attack: the implementation.
        made_on: the model that it attacked.
        gradients: how they pass a stand-in of the defence; "": as its name says.
        epsilon: the radius.
        attacked: images that are right when clean, (n,) bool.
        fooled: how much of each is fooled, (n,): 0 or 1, or the share of the draws; 0 where an example proves nothing.
        violations: how many images have each kind.
        passes: forward and backward passes, the mean over the attacked images.
        outcome: its record; None: it failed.
        error: why, or why its examples prove nothing.
        judged: attacked images whose example keeps the rules, (n,) bool; None: all of them.
    """

    part: Part
    attack: str
    made_on: str
    gradients: str
    epsilon: float
    attacked: np.ndarray
    fooled: np.ndarray
    violations: Counter[str] = field(default_factory=Counter)
    passes: float = 0.0
    outcome: Outcome | None = None
    error: str = ""
    judged: np.ndarray | None = None

    @property
    def proved(self) -> np.ndarray:
        """Images that it says something of, (n,) bool: none where it failed, or broke a rule on all."""
        if self.outcome is None:
            return np.zeros(len(self.attacked), bool)
        return self.attacked if self.judged is None else self.judged

    @property
    def accuracy(self) -> Accuracy:
        """Share of all images that are right under this attack."""
        return accuracy_left(self.attacked, self.fooled)

    @property
    def title(self) -> str:
        """The attack, and what it was made on where that is not the model by its name."""
        via = f", gradients {self.gradients}" if self.gradients else ""
        return f"{self.attack}{via}" if self.part not in ("transfer",) else f"{self.attack} on {self.made_on}"


def attempt_of(part: Part, outcome: Outcome, made_on: str, gradients: str = "") -> Attempt:
    """What a finished cell says."""
    columns, cell = outcome.columns, outcome.cell
    results = outcome.results
    attacked, undecided = results.attacked, results.undecided_robust
    kinds = [kind for text in columns["violations"] for kind in str(text).split()]
    names = ("forwards", "backwards", "surrogate_forwards", "surrogate_backwards")
    spent = sum(columns[name].astype(float) for name in names if name in columns)
    judged, counts = attacked & ~undecided, Counter(kinds)
    listed = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    error = f"no example proves anything: {listed}" if attacked.any() and not judged.any() else ""
    return Attempt(
        part,
        cell.attack,
        made_on,
        gradients,
        float(cell.threat_model.epsilon or 0.0),
        attacked,
        np.where(judged, 1 - results.robust, 0.0),
        counts,
        float(np.mean(np.asarray(spent)[attacked])) if attacked.any() else 0.0,
        outcome,
        error,
        judged,
    )


def failed_attempt(
    part: Part, choice: tuple[str, float], made_on: str, gradients: str, attacked: np.ndarray, why: str
) -> Attempt:
    """An attack and its radius without a result: it fools nothing and proves nothing."""
    attack, epsilon = choice
    return Attempt(part, attack, made_on, gradients, epsilon, attacked, np.zeros(len(attacked)), error=why)


def accuracy_left(attacked: np.ndarray, fooled: np.ndarray) -> Accuracy:
    """Share of all images that are right when clean and still under attack, both (n,)."""
    right = float((attacked * (1 - fooled)).sum())
    return Accuracy(right / len(attacked), *share_interval(right, len(attacked)), len(attacked))


def accuracy_shown(attempts: Sequence[Attempt], attacked: np.ndarray, fooled: np.ndarray) -> Accuracy:
    """The same of what some attacks fool; NaN where images were attacked and no attack proves anything."""
    if attacked.any() and not any(attempt.proved.any() for attempt in attempts):
        return Accuracy(np.nan, np.nan, np.nan, len(attacked))
    return accuracy_left(attacked, fooled)


def worst_case(attempts: Iterable[Attempt]) -> np.ndarray:
    """How much of each image the attack that is best on it fools, (n,)."""
    return np.maximum.reduce([attempt.fooled for attempt in attempts])


def of_parts(attempts: Sequence[Attempt], *parts: Part) -> list[Attempt]:
    """Those that are of one of the parts."""
    return [attempt for attempt in attempts if attempt.part in parts]
