"""Decides the verdict of a challenge: the defence falls, masks gradients, holds, or cannot be judged."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import scipy

from ...adapters.result import UNSTEADY
from ..finding import Finding
from ..statistics.verdict import SIGNIFICANT
from .attempts import BLACK, PARTS, WHITE, Accuracy, AttackOutcome, Part, accuracy_shown, by_attacker, worst_case
from .gradient_variants import OF_PROBABILITIES

Verdict = Literal["falls", "masks", "holds", "unknown"]
WITHIN = 0.05  # margin to the undefended accuracy: five points
LEFT = 0.01  # accuracy at a radius where any image can be made grey: threshold of the interval's lower bound
FEWEST_DRAWS = 10  # fewest samples per example before a randomised model can hold
_LACKING = {"no-gradient": "zero", "nan-gradient": "not finite"}  # state of the gradients, by invalid reason
OF_GRADIENTS = ("gradients", "single-step", "epsilon-growth")  # indicators of gradient masking


class ChallengeVerdict(NamedTuple):
    """Verdict of a challenge.

    Args:
        verdict: "falls", "masks", "holds" or "unknown".
        sentence: the verdict with its reasons, in words.
        masking: signs of gradient masking, in words. They are listed with every verdict.
    """

    verdict: Verdict
    sentence: str
    masking: tuple[str, ...]


def decide_verdict(
    clean: Accuracy,
    worst: Accuracy,
    undefended: Accuracy | None,
    attempts: Sequence[AttackOutcome],
    checks: Sequence[Finding],
    gone: float | None = None,
    draws: tuple[int, int] | None = None,
) -> ChallengeVerdict:
    """Decide whether a defence falls, masks gradients, holds, or cannot be judged.

    The first verdict in this list whose condition is met is returned:

    - "falls": the worst-case accuracy is at most five percentage points above the worst-case accuracy of the undefended
      model. Without an undefended model, it is at most 5 %. This verdict is not given if the attacks hardly change
      anything: the clean accuracy of the defended model is within the same limit, and the attacks lower the accuracy of
      the defended model by at most five points.
    - "masks": there is a sign of gradient masking, so the robustness of the remaining images was not shown.
    - "unknown": a kind of attacker has no result, there are too few images or samples, the attacks hardly change
      anything, or too many images have no valid result.
    - "holds": no other verdict applies. The verdict is only about the attacks of this challenge.

    Args:
        clean: clean accuracy of the defended model.
        worst: worst-case accuracy of the defended model at the radius of the challenge.
        undefended: worst-case accuracy of the undefended model. None if there is no undefended model.
        attempts: results of all attacks on the defended model, including attacks at larger radii.
        checks: failure indicators of the defended model.
        gone: smallest radius at which no image is classified correctly. None if some image is correct at every radius.
        draws: for a randomised model, two numbers of samples: on how many samples an example is judged, and how many
            samples an attack averages. None for a deterministic model.
    """
    reasons = tuple(gradient_masking_signs(attempts, checks))
    beside = "" if undefended is None else f", compared with {share_text(undefended)} for the undefended model"
    tried = by_attacker(attempts, *WHITE, *BLACK)
    done = [attempt for attempt in tried if attempt.usable.any()]
    if not done:  # nor is there a worst case
        return ChallengeVerdict("unknown", "not judged: no attack gave a result", reasons)
    least = (0.0 if undefended is None else undefended.value) + WITHIN
    untouched = undefended is not None and clean.value <= least and worst.value >= clean.value - WITHIN
    if worst.value <= least and not untouched:
        also = f"; its gradients are masked: {'; '.join(reasons)}" if reasons else ""
        return ChallengeVerdict("falls", f"falls to {share_text(worst)} from {clean.value:.1%}{beside}{also}", reasons)
    left = f"{share_text(worst)} of {clean.value:.1%} remains{beside}"
    left += "" if gone is None else f"; no image is correct at radius {gone:.3g}"
    if reasons:
        return ChallengeVerdict(
            "masks", f"gradient masking: {'; '.join(reasons)}; {left}, but robustness was not shown", reasons
        )
    gaps = missing_evidence(attempts, draws)
    if untouched:
        gaps.append("the attacks hardly lower the accuracy of either model at this radius; try a larger --epsilon")
    elif worst.low <= least:
        gaps.append(f"{worst.n} images are too few to distinguish the remaining accuracy from {least:.1%}")
    if (unknown := _unproved(tried)) and worst.value - unknown / worst.n <= least + 1e-9:
        gaps.append(f"no gradient attack produced a valid example for {unknown} of {worst.n} images")
    if gaps:
        return ChallengeVerdict(
            "unknown", f"not judged: {'; '.join(gaps)}; {left}, which does not show robustness", reasons
        )
    failed = [f"{attempt.title} ({attempt.error})" for attempt in tried if not attempt.usable.any()]
    also = f"; without a result: {', '.join(failed)}" if failed else ""
    also += "" if undefended is not None else "; no undefended model was given, so only a loss of all robustness counts"
    return ChallengeVerdict("holds", f"holds against these {len(done)} attacks: {left}{also}", reasons)


def missing_evidence(attempts: Sequence[AttackOutcome], draws: tuple[int, int] | None = None) -> list[str]:
    """Return the reasons why a defence cannot be judged, in words: attackers without a result, and too few samples.

    Args:
        attempts: results of all attacks. Gradient attacks need a result for each gradient variant of the defence.
        draws: for a randomised model, two numbers of samples: on how many samples an example is judged, and how many
            samples an attack averages. None for a deterministic model.
    """
    kinds: dict[tuple[Part, str], list[AttackOutcome]] = {}
    for attempt in attempts:
        if (attempt.part, attempt.gradients) == (
            "white-box",
            OF_PROBABILITIES,
        ):  # a different loss, not a different gradient variant
            continue
        way = attempt.made_on if attempt.part == "white-box" else ""
        kinds.setdefault((attempt.part, way), []).append(attempt)
    lines = [
        f"no result {PARTS[part]}{f' through {way}' if way else ''} ({tried[0].error or 'nothing was attacked'})"
        for (part, way), tried in kinds.items()
        if part != "undefended" and not any(attempt.usable.any() for attempt in tried)
    ]
    lines += [UNSTEADY] if any(attempt.violations["unstable"] for attempt in attempts) else []
    judging, seen = draws or (FEWEST_DRAWS, 2)
    if judging < FEWEST_DRAWS:
        lines.append(
            f"the model is random, but each example was judged on only {judging} samples; use --judge-samples "
            f"{FEWEST_DRAWS} or more"
        )
    if seen < 2:
        lines.append("the model is random, but the attacks used a single sample for each query; use --eot 10")
    return lines


def _unproved(attempts: Sequence[AttackOutcome]) -> int:
    """Return the number of images that no attack fools and on which no gradient attack has a valid result."""
    proved = np.logical_or.reduce([attempt.usable for attempt in by_attacker(attempts, *WHITE)] or [[False]])
    standing = attempts[0].attacked & (worst_case(attempts) < 0.5)
    return int((standing & ~proved).sum())


def gradient_masking_signs(attempts: Sequence[AttackOutcome], checks: Sequence[Finding]) -> list[str]:
    """Return the signs of gradient masking in the results of a challenge, in words.

    The signs are those of Carlini et al. 2019 and Athalye et al. 2018, such as missing gradients, or a black-box attack
    that fools images which no gradient attack fools.
    """
    white = [attempt for attempt in by_attacker(attempts, *WHITE) if _counts(attempt)]
    named = [attempt for attempt in by_attacker(white, "white-box") if not attempt.gradients]
    adapted = [each for each in by_attacker(white, "white-box") if each.gradients not in ("", OF_PROBABILITIES)]
    black = [attempt for attempt in by_attacker(attempts, *BLACK) if attempt.usable.any()]
    reasons = []
    if named:
        reasons += _no_gradients(named)
        reasons += _beaten(named, adapted, "attacks that use the defence's default gradients miss images that {} fools")
    if white:
        reasons += _beaten(white, black, "{} fools images that no gradient attack fools")
    reasons += _unreachable(by_attacker(attempts, "larger radius"))
    failed = {check.title.lower() for check in checks if check.state == "fail" and check.name in OF_GRADIENTS}
    return reasons + [f"the indicator fired: {title}" for title in sorted(failed)]


def share_text(share: Accuracy) -> str:
    """Format an accuracy with its interval and number of images, such as "12.5% [3.5, 29.0] of 32"."""
    return f"{share.value:.1%} [{100 * share.low:.1f}, {100 * share.high:.1f}] of {share.n}"


def _counts(attempt: AttackOutcome) -> bool:
    """Return whether a gradient attack has a valid result, or found that gradients are zero or not finite."""
    return bool(attempt.usable.any()) or (attempt.outcome is not None and any(map(attempt.violations.get, _LACKING)))


def _no_gradients(named: Sequence[AttackOutcome]) -> list[str]:
    attacked, lines = int(named[0].attacked.sum()), []
    for kind, lacking in _LACKING.items():
        count = max(attempt.violations[kind] for attempt in named)
        lines += [f"its gradients are {lacking} on {count} of {attacked} images"] if 2 * count > attacked else []
    return lines


def _beaten(attempts: Sequence[AttackOutcome], rivals: Sequence[AttackOutcome], text: str) -> list[str]:
    """Describe the rival attack that fools most of the images that no attack of `attempts` fools.

    Returns:
        One sentence. [] if no rival fools significantly more images than `attempts` (sign test, Bonferroni).
    """
    if not rivals:
        return []
    reached = worst_case(attempts) >= 0.5
    lines = []
    for rival in rivals:
        hit = rival.fooled >= 0.5
        more, fewer = int((hit & ~reached).sum()), int((reached & ~hit).sum())
        if more and scipy.stats.binomtest(more, more + fewer, alternative="greater").pvalue * len(rivals) < SIGNIFICANT:
            lines.append((more, f"{text.format(rival.title)} ({more} images against {fewer})"))
    return [max(lines)[1]] if lines else []


def _unreachable(larger: Sequence[AttackOutcome]) -> list[str]:
    """Describe the accuracy at the largest radius if it is significantly above 1 %.

    At this radius every image can be made uniformly grey, so an attack that works leaves no image correct.

    Returns:
        One sentence, or [] if there is nothing to report.
    """
    done = [attempt for attempt in larger if attempt.usable.any()]
    if not done:
        return []
    last = max(done, key=lambda attempt: attempt.epsilon)
    if last.accuracy.low <= LEFT:
        return []
    return [
        f"at radius {last.epsilon:.3g}, where any image can be turned grey, {share_text(last.accuracy)} is still "
        "correct"
    ]


def cumulative_accuracy(
    larger: Sequence[AttackOutcome], attacked: np.ndarray, fooled: np.ndarray
) -> list[tuple[float, Accuracy]]:
    """Return the accuracy at each larger radius, as (radius, accuracy) by ascending radius.

    An image that is fooled at a smaller radius counts as fooled at every larger radius. The accuracy is NaN if no
    attack at this radius has a valid result.

    Args:
        larger: results of the attacks at larger radii.
        attacked: whether each clean image is classified correctly, (n,) bool.
        fooled: fooled rate of each image at the radius of the challenge, (n,).
    """
    curve, so_far = [], fooled
    for epsilon in sorted({attempt.epsilon for attempt in larger}):
        there = [attempt for attempt in larger if attempt.epsilon == epsilon]
        so_far = np.maximum(so_far, worst_case(there))
        curve.append((epsilon, accuracy_shown(there, attacked, so_far)))
    return curve
