"""What each attack on a defended model came to, image by image, and what all of them leave."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from ...intervals import proportion_interval
from ..store.results import RunResult

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
class AttackOutcome:
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
    outcome: RunResult | None = None
    error: str = ""
    judged: np.ndarray | None = None

    @property
    def usable(self) -> np.ndarray:
        """Images that it says something of, (n,) bool: none where it failed, or broke a rule on all."""
        if self.outcome is None:
            return np.zeros(len(self.attacked), bool)
        return self.attacked if self.judged is None else self.judged

    @property
    def accuracy(self) -> Accuracy:
        """Share of all images that are right under this attack."""
        return accuracy_under_attack(self.attacked, self.fooled)

    @property
    def title(self) -> str:
        """The attack, and what it was made on where that is not the model by its name."""
        via = f", gradients {self.gradients}" if self.gradients else ""
        return f"{self.attack}{via}" if self.part not in ("transfer",) else f"{self.attack} on {self.made_on}"


def outcome_from_record(part: Part, outcome: RunResult, made_on: str, gradients: str = "") -> AttackOutcome:
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
    return AttackOutcome(
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
) -> AttackOutcome:
    """An attack and its radius without a result: it fools nothing and proves nothing."""
    attack, epsilon = choice
    return AttackOutcome(part, attack, made_on, gradients, epsilon, attacked, np.zeros(len(attacked)), error=why)


def accuracy_under_attack(attacked: np.ndarray, fooled: np.ndarray) -> Accuracy:
    """Share of all images that are right when clean and still under attack, both (n,)."""
    right = float((attacked * (1 - fooled)).sum())
    return Accuracy(right / len(attacked), *proportion_interval(right, len(attacked)), len(attacked))


def accuracy_shown(attempts: Sequence[AttackOutcome], attacked: np.ndarray, fooled: np.ndarray) -> Accuracy:
    """The same of what some attacks fool; NaN where images were attacked and no attack proves anything."""
    if attacked.any() and not any(attempt.usable.any() for attempt in attempts):
        return Accuracy(np.nan, np.nan, np.nan, len(attacked))
    return accuracy_under_attack(attacked, fooled)


def worst_case(attempts: Iterable[AttackOutcome]) -> np.ndarray:
    """How much of each image the attack that is best on it fools, (n,)."""
    return np.maximum.reduce([attempt.fooled for attempt in attempts])


def by_attacker(attempts: Sequence[AttackOutcome], *parts: Part) -> list[AttackOutcome]:
    """Those that are of one of the parts."""
    return [attempt for attempt in attempts if attempt.part in parts]
