"""Results of the attacks of a challenge on each image, and the accuracy under these attacks."""

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
    "transfer": "made on a different model",
    "scores": "by scores alone",
    "decisions": "by decisions alone",
    "larger radius": "by gradients, at a larger radius",
}
WHITE: tuple[Part, ...] = ("white-box", "single step")
BLACK: tuple[Part, ...] = ("transfer", "scores", "decisions")


class Accuracy(NamedTuple):
    """Proportion of images that a model classifies correctly, with the bounds of its 95 % interval.

    Args:
        value: the proportion; NaN if unknown.
        low: lower bound.
        high: upper bound.
        n: number of images.
    """

    value: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, eq=False)
class AttackOutcome:
    """Result of one attack of a challenge.

    Args:
        part: kind of attacker, described in `PARTS`.
        attack: implementation, such as "pyautoattack:apgd-ce".
        made_on: name of the model on which the examples were made. For transfer, the source model.
        gradients: how gradients pass through the defence, such as "straight-through". "" for the defence's default.
        epsilon: radius of the attack.
        attacked: whether each of n images was attacked, because the clean image is classified correctly, (n,) bool.
        fooled: 1 if the image is fooled, else 0, (n,). For a randomised model, the rate of samples that are fooled. 0
            for invalid examples.
        violations: number of images with each invalid reason.
        passes: number of forward and backward passes per attacked image, on average.
        outcome: the finished run with its results. None if the attack failed.
        error: reason why the attack failed, or why all examples are invalid. "" otherwise.
        judged: whether each image was attacked and has a valid example, (n,) bool. None if this holds for all attacked
            images.
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
        """Whether each image has a valid result, (n,) bool. All False if the attack failed."""
        if self.outcome is None:
            return np.zeros(len(self.attacked), bool)
        return self.attacked if self.judged is None else self.judged

    @property
    def accuracy(self) -> Accuracy:
        """Accuracy of the model under this attack."""
        return accuracy_under_attack(self.attacked, self.fooled)

    @property
    def title(self) -> str:
        """Name of the attack with its gradient variant (if not the default) or, for transfer, with the source model."""
        via = f", gradients {self.gradients}" if self.gradients else ""
        return f"{self.attack}{via}" if self.part not in ("transfer",) else f"{self.attack} on {self.made_on}"


def outcome_from_record(part: Part, outcome: RunResult, made_on: str, gradients: str = "") -> AttackOutcome:
    """Convert a finished run to an `AttackOutcome`. The arguments are the attributes of the same name."""
    columns, cell = outcome.columns, outcome.cell
    results = outcome.results
    attacked, undecided = results.attacked, results.undecided_robust
    kinds = [kind for text in columns["violations"] for kind in str(text).split()]
    names = ("forwards", "backwards", "surrogate_forwards", "surrogate_backwards")
    spent = sum(columns[name].astype(float) for name in names if name in columns)
    judged, counts = attacked & ~undecided, Counter(kinds)
    listed = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    error = f"no valid example: {listed}" if attacked.any() and not judged.any() else ""
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
    """Build the `AttackOutcome` of a failed attack, which fools no image."""
    attack, epsilon = choice
    return AttackOutcome(part, attack, made_on, gradients, epsilon, attacked, np.zeros(len(attacked)), error=why)


def accuracy_under_attack(attacked: np.ndarray, fooled: np.ndarray) -> Accuracy:
    """Compute the accuracy under attack, over all n images.

    Args:
        attacked: whether each clean image is classified correctly, (n,) bool.
        fooled: fooled rate of each image, in [0, 1], (n,).
    """
    right = float((attacked * (1 - fooled)).sum())
    return Accuracy(right / len(attacked), *proportion_interval(right, len(attacked)), len(attacked))


def accuracy_shown(attempts: Sequence[AttackOutcome], attacked: np.ndarray, fooled: np.ndarray) -> Accuracy:
    """Compute the accuracy under several attacks, as `accuracy_under_attack`.

    The accuracy is NaN if images were attacked and no attack has a valid result.
    """
    if attacked.any() and not any(attempt.usable.any() for attempt in attempts):
        return Accuracy(np.nan, np.nan, np.nan, len(attacked))
    return accuracy_under_attack(attacked, fooled)


def worst_case(attempts: Iterable[AttackOutcome]) -> np.ndarray:
    """Return the largest fooled rate of each image over all attacks, (n,)."""
    return np.maximum.reduce([attempt.fooled for attempt in attempts])


def by_attacker(attempts: Sequence[AttackOutcome], *parts: Part) -> list[AttackOutcome]:
    """Return the outcomes whose kind of attacker is one of `parts`."""
    return [attempt for attempt in attempts if attempt.part in parts]
