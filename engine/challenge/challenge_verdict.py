"""What a defence is worth after its attacks: it falls, it masks gradients, or it holds against these attacks."""

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
WITHIN = 0.05  # of the undefended accuracy: five points
LEFT = 0.01  # right images at a radius where all can be made alike: the lower end of their share's interval
FEWEST_DRAWS = 10  # that judge an example of a random model before it is said to hold
_LACKING = {"no-gradient": "zero", "nan-gradient": "not finite"}  # what gradients are, by kind of violation
OF_GRADIENTS = ("gradients", "single-step", "epsilon-growth")  # indicators that speak of masked gradients


class ChallengeVerdict(NamedTuple):
    """The verdict with its reasons, a sentence each."""

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
    """The verdict.

    "falls": not more than five points above the undefended model in the worst case over all attacks, image by image;
    without an undefended model, not more than five points above 0. Not so where the defended model is within five
    points of that when clean and the attacks take no five points from it: nothing was to be defended. Else "masks",
    if there is a sign of masked gradients: what is left was not shown to be robust. Else "unknown", if a kind of
    attacker has no result, too few images or draws judged, nothing was to be defended, or of too many images nothing
    is said. Else "holds": against these attacks, which is all that is known.

    Args:
        clean: accuracy without an attack.
        worst: accuracy under the worst attack on each image, at the radius asked for.
        undefended: the same of the undefended model; None: there is none.
        attempts: all, those at larger radii too.
        checks: failure indicators of the model.
        gone: the smallest radius at which nothing is right any more; None: there is none.
        draws: of a random model, how many judge an example, and how many the attacks see; None: it is not random.
    """
    reasons = tuple(gradient_masking_signs(attempts, checks))
    beside = "" if undefended is None else f", where the undefended model keeps {share_text(undefended)}"
    tried = by_attacker(attempts, *WHITE, *BLACK)
    done = [attempt for attempt in tried if attempt.usable.any()]
    if not done:  # nor is there a worst case
        return ChallengeVerdict("unknown", "not judged: no attack gave a result", reasons)
    least = (0.0 if undefended is None else undefended.value) + WITHIN
    untouched = undefended is not None and clean.value <= least and worst.value >= clean.value - WITHIN
    if worst.value <= least and not untouched:
        also = f"; its gradients are masked: {'; '.join(reasons)}" if reasons else ""
        return ChallengeVerdict("falls", f"falls to {share_text(worst)} from {clean.value:.1%}{beside}{also}", reasons)
    left = f"{share_text(worst)} of {clean.value:.1%} left{beside}"
    left += "" if gone is None else f"; nothing is left at radius {gone:.3g}"
    if reasons:
        return ChallengeVerdict(
            "masks", f"gradient masking: {'; '.join(reasons)}; {left}, which was not shown to be robust", reasons
        )
    gaps = missing_evidence(attempts, draws)
    if untouched:
        gaps.append("the attacks take next to nothing from either model at this radius (try a larger --epsilon)")
    elif worst.low <= least:
        gaps.append(f"{worst.n} images are too few to tell what is left from {least:.1%}")
    if (unknown := _unproved(tried)) and worst.value - unknown / worst.n <= least + 1e-9:
        gaps.append(f"on {unknown} of {worst.n} images no attack by gradients gave an example that keeps the rules")
    if gaps:
        return ChallengeVerdict("unknown", f"not judged: {'; '.join(gaps)}; {left}, which proves nothing", reasons)
    failed = [f"{attempt.title} ({attempt.error})" for attempt in tried if not attempt.usable.any()]
    also = f"; without a result: {', '.join(failed)}" if failed else ""
    return ChallengeVerdict("holds", f"holds against these {len(done)} attacks: {left}{also}", reasons)


def missing_evidence(attempts: Sequence[AttackOutcome], draws: tuple[int, int] | None = None) -> list[str]:
    """Why a defence that is left standing was not judged: kinds of attackers without any result, and too few draws.

    Args:
        attempts: all; those by gradients are looked at for each way that gradients can pass.
        draws: see `rule`.
    """
    kinds: dict[tuple[Part, str], list[AttackOutcome]] = {}
    for attempt in attempts:
        if (attempt.part, attempt.gradients) == ("white-box", OF_PROBABILITIES):  # another loss, not another way
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
        lines.append(f"its draws differ, and {judging} judged each example (--draws {FEWEST_DRAWS} or more)")
    if seen < 2:
        lines.append("it draws random numbers, and the attacks saw one answer at a time (--eot 10)")
    return lines


def _unproved(attempts: Sequence[AttackOutcome]) -> int:
    """Images right when clean that nothing fools and of which no attack by gradients says anything."""
    proved = np.logical_or.reduce([attempt.usable for attempt in by_attacker(attempts, *WHITE)] or [[False]])
    standing = attempts[0].attacked & (worst_case(attempts) < 0.5)
    return int((standing & ~proved).sum())


def gradient_masking_signs(attempts: Sequence[AttackOutcome], checks: Sequence[Finding]) -> list[str]:
    """Signs that gradients say less than there is to find (Carlini et al. 2019; Athalye et al. 2018)."""
    white = [attempt for attempt in by_attacker(attempts, *WHITE) if _counts(attempt)]
    named = [attempt for attempt in by_attacker(white, "white-box") if not attempt.gradients]
    adapted = [each for each in by_attacker(white, "white-box") if each.gradients not in ("", OF_PROBABILITIES)]
    black = [attempt for attempt in by_attacker(attempts, *BLACK) if attempt.usable.any()]
    reasons = []
    if named:
        reasons += _no_gradients(named)
        reasons += _beaten(named, adapted, "attacks through gradients as its name has them miss what {} fools")
    if white:
        reasons += _beaten(white, black, "{} fools what no attack by gradients does")
    reasons += _unreachable(by_attacker(attempts, "larger radius"))
    failed = {check.title.lower() for check in checks if check.state == "fail" and check.name in OF_GRADIENTS}
    return reasons + [f"the indicator fired: {title}" for title in sorted(failed)]


def share_text(share: Accuracy) -> str:
    """A share with its interval: "12.5% [3.5, 29.0] of 32"."""
    return f"{share.value:.1%} [{100 * share.low:.1f}, {100 * share.high:.1f}] of {share.n}"


def _counts(attempt: AttackOutcome) -> bool:
    """Whether an attack by gradients says something: also that there are none."""
    return bool(attempt.usable.any()) or (attempt.outcome is not None and any(map(attempt.violations.get, _LACKING)))


def _no_gradients(named: Sequence[AttackOutcome]) -> list[str]:
    attacked, lines = int(named[0].attacked.sum()), []
    for kind, lacking in _LACKING.items():
        count = max(attempt.violations[kind] for attempt in named)
        lines += [f"its gradients are {lacking} on {count} of {attacked} images"] if 2 * count > attacked else []
    return lines


def _beaten(attempts: Sequence[AttackOutcome], rivals: Sequence[AttackOutcome], text: str) -> list[str]:
    """A line for the rival that fools most of what all attempts miss, if it is more than chance (sign test)."""
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
    """A line where the largest radius leaves images right although every image could be made uniformly grey there."""
    done = [attempt for attempt in larger if attempt.usable.any()]
    if not done:
        return []
    last = max(done, key=lambda attempt: attempt.epsilon)
    if last.accuracy.low <= LEFT:
        return []
    return [f"at radius {last.epsilon:.3g}, where every image can be made grey, {share_text(last.accuracy)} stay right"]


def cumulative_accuracy(
    larger: Sequence[AttackOutcome], attacked: np.ndarray, fooled: np.ndarray
) -> list[tuple[float, Accuracy]]:
    """By radius, ascending, the accuracy that this radius and smaller ones leave; NaN where nothing proves anything.

    Args:
        larger: attacks at the larger radii.
        attacked: images that are right when clean, (n,) bool.
        fooled: how much of each the radius asked for fools, (n,).
    """
    curve, so_far = [], fooled
    for epsilon in sorted({attempt.epsilon for attempt in larger}):
        there = [attempt for attempt in larger if attempt.epsilon == epsilon]
        so_far = np.maximum(so_far, worst_case(there))
        curve.append((epsilon, accuracy_shown(there, attacked, so_far)))
    return curve
