"""What a challenge came to, as a record and as JSON types, which are kept beside the records of its folder."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from ...adapters.result import UNSTEADY
from ..finding import Finding
from ..store.atomic_files import expand_path, write_atomic
from .attempts import Accuracy, AttackOutcome
from .challenge_verdict import ChallengeVerdict
from .suite import ON_MARGIN

FILE = "challenges.json"
_FEW = (
    "fewer than 4 classes: a margin ensemble (APGD-CE, APGD on the plain margin, FAB, Square), not AutoAttack, whose "
    "APGD-DLR and APGD-T need 4"
)
_NAMES = ("model", "norm", "epsilon", "verdict", "sentence", "clean", "worst", "undefended", "radii", "attempts")


@dataclass(frozen=True, eq=False, repr=False)
class ChallengeResult:
    """What a defence came to.

    Args:
        model: its name.
        original: name of the undefended model; "": there was none to compare with.
        norm: of the radii.
        epsilon: the radius asked for.
        clean: accuracy without an attack.
        worst: accuracy under the worst attack on each image at that radius; NaN where no attack proves anything.
        clean_undefended: of the undefended model; None: there is none.
        undefended: its accuracy under the worst attack by gradients on each image.
        radii: accuracy at that and larger radii; NaN where no attack proves anything.
        attempts: every attack.
        ruling: the verdict.
        checks: failure indicators of the model and its cells.
        notes: what happened to images that were handed over.
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
        """One of "falls", "masks", "holds", "unknown": see `docs/challenge.md`."""
        return self.ruling.verdict

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON types, as `davylamp challenge --json` prints it."""
        return document_of(self)

    def __repr__(self) -> str:
        lead = [line for line in lead_of(self.to_dict()) if line != UNSTEADY]  # which the sentence says
        few = "".join(f"; {line}" for line in (*lead, *self.notes))
        return f"Challenge: {self.model}, {self.norm} {self.epsilon:.4g}: {self.ruling.sentence}{few}"


def document_of(challenge: ChallengeResult) -> dict[str, Any]:
    """What a challenge says, as JSON types."""
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
    """What a reader must know before any number: that the model is not steady, and which attacks stand for others."""
    lines = [UNSTEADY] if document["sentence"].startswith(UNSTEADY) else []
    if any(each["attack"].endswith(f":{ON_MARGIN}") for each in document["attempts"]):
        lines.append(_FEW)
    return lines


def keep_document(folder: str | Path, document: dict[str, Any]) -> None:
    """Write it beside the records, in place of an earlier one about the same model, norm and radius.

    Raises:
        Unavailable: if the disk is full or not writable.
    """
    path = expand_path(folder) / FILE
    with FileLock(f"{path}.lock"):
        others = [each for each in read_documents(folder) if _about(each) != _about(document)]
        write_atomic(path, json.dumps([*others, document], indent=2))


def read_documents(folder: str | Path) -> list[dict[str, Any]]:
    """The challenges that a results folder keeps; none where there are none, or the file is damaged."""
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
