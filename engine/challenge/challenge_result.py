"""The result of a challenge: a dataclass, and a JSON document that is stored in the results folder."""

import json
import math
from dataclasses import dataclass
from os import PathLike
from typing import Any

from filelock import FileLock

from ..finding import Finding
from ..store.atomic_files import expand_path, write_atomic
from .attempts import Accuracy, AttackOutcome
from .challenge_verdict import ChallengeVerdict
from .suite import ON_MARGIN

FILE = "challenges.json"
NO_RESULT = "-: no attack gave a result at this radius; the accuracy is at most that at a smaller radius"
_FEW = (
    "a margin ensemble (APGD-CE, APGD on the plain margin, FAB, Square) replaces AutoAttack, whose APGD-DLR "
    "and APGD-T need at least 4 classes"
)
_NAMES = ("model", "norm", "epsilon", "verdict", "sentence", "clean", "worst", "undefended", "radii", "attempts")


@dataclass(frozen=True, eq=False, repr=False)
class ChallengeResult:
    """Result of `challenge`: the verdict on a defended model, and the accuracies that lead to the verdict.

    Args:
        model: name of the defended model.
        original: name of the undefended model; "" if there is none.
        norm: norm of the radii.
        epsilon: radius of the challenge.
        clean: clean accuracy of the defended model.
        worst: accuracy of the defended model at radius `epsilon`, where an image counts as wrong if any attack fools
            the image. NaN if no attack has a valid result.
        clean_undefended: clean accuracy of the undefended model. None if there is no undefended model.
        undefended: worst-case accuracy of the undefended model under gradient attacks. None if there is no undefended
            model, or if no attack on the undefended model has a valid result.
        radii: worst-case accuracy of the defended model at `epsilon` and at each larger radius, as (radius, accuracy)
            by ascending radius. NaN if no attack has a valid result at this radius.
        attempts: results of all attacks.
        ruling: the verdict.
        checks: failure indicators of the model and its runs.
        notes: notes on the images (fewer than requested, or with rounded values), on the accuracy against an attacker
            who tries several samples of a random model, and on an optimisation in the forward pass of the model.
    """

    model: str
    original: str
    norm: str
    epsilon: float
    clean: Accuracy
    worst: Accuracy
    clean_undefended: Accuracy | None
    undefended: Accuracy | None
    radii: tuple[tuple[float, Accuracy], ...]
    attempts: tuple[AttackOutcome, ...]
    ruling: ChallengeVerdict
    checks: tuple[Finding, ...]
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """The verdict: "falls", "masks", "holds" or "unknown", which `docs/challenge.md` explains."""
        return self.ruling.verdict

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON types, as printed by `davylamp challenge --json`."""
        return document_of(self)

    def __repr__(self) -> str:
        few = "".join(f"; {line}" for line in (*lead_of(self.to_dict()), *self.notes))
        return f"Challenge: {self.model}, {self.norm} {self.epsilon:.4g}: {self.ruling.sentence}{few}"


def document_of(challenge: ChallengeResult) -> dict[str, Any]:
    """Convert the result of a challenge to the JSON document that `davylamp challenge --json` prints."""
    counts: dict[str, int] = {}
    for check in challenge.checks:
        counts[check.state] = counts.get(check.state, 0) + 1
    fired = [check for check in challenge.checks if check.state in ("fail", "warn")]
    return {
        "model": challenge.model,
        "original": challenge.original,
        "norm": challenge.norm,
        "epsilon": challenge.epsilon,
        "verdict": challenge.ruling.verdict,
        "sentence": challenge.ruling.sentence,
        "notes": list(challenge.notes),
        "masking": list(challenge.ruling.masking),
        "clean": _share(challenge.clean),
        "worst": _share(challenge.worst),
        "clean_undefended": None if challenge.clean_undefended is None else _share(challenge.clean_undefended),
        "undefended": None if challenge.undefended is None else _share(challenge.undefended),
        "radii": [{"epsilon": radius, **_share(share)} for radius, share in challenge.radii],
        "attempts": [_attempt(attempt) for attempt in challenge.attempts],
        "indicators": counts,
        "fired": [{"indicator": check.title, "state": check.state, "detail": check.detail} for check in fired],
    }


def lead_of(document: dict[str, Any]) -> list[str]:
    """Return a note to print with the verdict if attacks were replaced because the model has fewer than 4 classes."""
    return [_FEW] if any(each["attack"].endswith(f":{ON_MARGIN}") for each in document["attempts"]) else []


def keep_document(folder: str | PathLike[str], document: dict[str, Any]) -> None:
    """Store the result of a challenge in its results folder.

    An earlier challenge with the same model, norm and radius is replaced.

    Raises:
        Unavailable: If the file cannot be written.
    """
    path = expand_path(folder) / FILE
    with FileLock(f"{path}.lock"):
        others = [each for each in read_documents(folder) if _about(each) != _about(document)]
        write_atomic(path, json.dumps([*others, document], indent=2))


def read_documents(folder: str | PathLike[str]) -> list[dict[str, Any]]:
    """Return the challenges that a results folder stores, as JSON documents.

    The list is empty if the folder stores no challenge, or if the file is damaged.
    """
    path = expand_path(folder) / FILE
    try:
        documents = json.loads(path.read_text(encoding="utf-8"))
        return [each for each in documents if set(_NAMES) <= set(each)]
    except (OSError, ValueError, TypeError):
        return []


def _about(document: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(document.get(name) for name in ("model", "norm", "epsilon"))


def _share(share: Accuracy) -> dict[str, Any]:
    return {name: None if math.isnan(value) else value for name, value in share._asdict().items()}


def _attempt(attempt: AttackOutcome) -> dict[str, Any]:
    return {
        "part": attempt.part,
        "attack": attempt.attack,
        "made_on": attempt.made_on,
        "gradients": attempt.gradients,
        "epsilon": attempt.epsilon,
        "accuracy": None if attempt.error else _share(attempt.accuracy),
        "passes": attempt.passes,
        "violations": dict(attempt.violations),
        "error": attempt.error,
    }
