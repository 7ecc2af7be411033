"""Compares two implementations image by image, and decides the verdict by `RULE`."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from ...adapters.result import Fault, fault_of
from ...intervals import UNKNOWN, Interval, difference_interval, ratio_interval
from .paired_tests import mcnemar, min_images_for_significance, signed_rank_sum, wilcoxon

Verdict = Literal["identical", "equivalent", "weaker", "broken", "no difference found", "undecided"]

SIGNIFICANT = 0.05
TOO_MANY_VIOLATIONS = 0.1  # rate of invalid results above which an implementation is broken
SAME_IMAGE = 1e-6  # float32 rounding of a step: largest difference between identical examples
_FAR = 1.005  # ratio of distances that differs from 1 if rounded
SAME_DISTANCE = 1e-5  # float32 rounding of a distance, relative: distances this close are tied in the tests
UNEQUAL_COST = 2.0  # ratio of queries from which a verdict mentions the unequal cost
MARGIN = 0.05  # equivalence: success rates at most 5 points apart
DISTANCE_MARGIN = 0.05  # equivalence of minimum-norm attacks: median ratio of distances at most 5 % from 1

RULE: Mapping[str, str] = {  # condition of each verdict; the first that holds gives the verdict
    "broken": "An implementation failed, or more than a tenth of its results are invalid because of its library.",
    "identical": "On every compared image, success, prediction, largest change and a random projection agree up to "
    "float32 rounding (1e-6). At least one image was changed.",
    "weaker": "One implementation fools significantly fewer images (exact McNemar test). For minimum-norm attacks "
    "also: its distances are significantly larger on the images that both fool (Wilcoxon's test; distances that agree "
    "up to rounding, 1e-5 of the distance, count as equal).",
    "undecided": "There are too few images: no outcome could be significant. Or the difference is significant, but the "
    "omitted images (invalid results) could undo it.",
    "equivalent": "The success rates differ by at most 5 points: both bounds of the interval of the paired difference "
    "are within 5 points. For minimum-norm attacks also: the median ratio of distances is within 5 % of 1.",
    "no difference found": "No other condition holds.",
}
RULE_NOTES = (
    "A comparison is one attack on one model and its images, under one threat model. At most 5 % of comparisons "
    "contain a false difference. For this, a p-value is significant only below 5 % divided by the number of pairs "
    "(Bonferroni), and by 2 if a pair has both tests. The p-values themselves are not corrected. Intervals have the "
    "corrected level, so an interval that excludes 0 is a significant difference.",
    "If the library caused an invalid result, it counts as a failure of the attack. If the model caused it, or the "
    "cause is unknown, the image is omitted from the tests and counted. The interval covers both possible outcomes of "
    "such an image.",
)


class PairedOutcomes(NamedTuple):
    """Outcomes of one implementation on n images, as one side of a comparison.

    Args:
        name: name of the implementation.
        attacked: whether each image was attacked, (n,) bool.
        success: whether the attack succeeded, (n,) bool.
        distance: distance to the clean image in the norm of the threat model, (n,). Used only for images on which both
            implementations succeed.
        violations: invalid reasons of each image, n tuples; a tuple is empty if the result is valid.
        success_8bit: whether the example still succeeds after rounding to 8 bits, (n,) bool. None if unknown.
        queries: forward plus backward passes of each image, (n,). None if unknown.
    """

    name: str
    attacked: np.ndarray
    success: np.ndarray
    distance: np.ndarray
    violations: tuple[tuple[str, ...], ...]
    success_8bit: np.ndarray | None = None
    queries: np.ndarray | None = None

    def invalid_by(self, *faults: Fault) -> np.ndarray:
        """Return whether the result of each attacked image is invalid through one of these faults, (n,) bool.

        Without `faults`, every invalid result is included.
        """
        known = {kinds: bool(kinds) and (not faults or fault_of(kinds) in faults) for kinds in set(self.violations)}
        return self.attacked & np.array([known[kinds] for kinds in self.violations], bool)

    @property
    def valid_success(self) -> np.ndarray:
        """Whether the attack succeeded with a valid result, (n,) bool."""
        return self.success & ~self.invalid_by()

    @property
    def is_broken(self) -> bool:
        """Whether more than a tenth of the results on attacked images are invalid through the library's fault."""
        guilty = int(self.invalid_by("library").sum())
        return guilty > TOO_MANY_VIOLATIONS * max(1, int(self.attacked.sum()))

    @property
    def invalid_summary(self) -> str:
        """Numbers of images by invalid reason, such as "no-gradient: 8 of 8 images"; empty if all results are valid."""
        if not any(self.violations):
            return ""
        kinds = [kind for names, hit in zip(self.violations, self.attacked, strict=True) if hit for kind in set(names)]
        total = int(self.attacked.sum())
        return ", ".join(f"{kind}: {kinds.count(kind)} of {total} images" for kind in sorted(set(kinds)))


@dataclass(frozen=True)
class PairVerdict:
    """The verdict on two implementations, called the first and the second, with the numbers from which it follows.

    Args:
        verdict: the verdict, see `RULE`.
        weaker: name of the weaker or broken implementation; "A and B" if both are broken; "" for other verdicts.
        images: number of images that were compared.
        left_out: number of attacked images that were omitted. An image is omitted if a result is invalid, and the fault
            is not that of the library.
        p_success: p-value of the exact McNemar test on success.
        p_distance: p-value of Wilcoxon's test on the distances of images on which both implementations succeed.
        only_a: number of images that only the first implementation fools.
        only_b: number of images that only the second implementation fools.
        difference: success rate of the first implementation minus that of the second, with an interval at 1 - `level`.
            The interval covers every possible outcome of omitted images. It excludes 0 if and only if the difference is
            significant.
        ratio: median ratio of the first implementation's distance to the second's, on images on which both succeed,
            with an interval at 1 - `level`.
        detectable: smallest number of images, all in favour of one implementation, that would have been significant.
        needed: smallest number of images with which an outcome can be significant.
        pairs: number of pairs of implementations in the same comparison, for the correction of the level.
        tests: number of tests of this pair, for the correction of the level.
        reason: the reason why there is no comparison; otherwise empty.
        queries: mean queries of the weaker implementation divided by those of the other. If neither is weaker, mean
            queries of the first divided by those of the second. NaN if unknown.
        fades: whether the difference disappears when examples are rounded to 8 bits.
        farther: if only the distances differ significantly, median ratio of the weaker implementation's distance to the
            other's. Otherwise NaN.
    """

    verdict: Verdict
    weaker: str = ""
    images: int = 0
    left_out: int = 0
    p_success: float = math.nan
    p_distance: float = math.nan
    only_a: int = 0
    only_b: int = 0
    difference: Interval = UNKNOWN
    ratio: Interval = UNKNOWN
    detectable: int = 0
    needed: int = 0
    pairs: int = 1
    tests: int = 1
    reason: str = ""
    queries: float = math.nan
    fades: bool = False
    farther: float = math.nan

    @property
    def p(self) -> float:
        """p-value of the decisive test: the test of success, or the test of distances if only the distances differ."""
        by_distance = self.verdict == "weaker" and not self.is_apart
        return self.p_distance if by_distance else self.p_success

    @property
    def is_apart(self) -> bool:
        """Whether the success rates differ significantly for all possible outcomes of the omitted images."""
        return self.difference.low > 0 or self.difference.high < 0

    @property
    def effect(self) -> tuple[float, float]:
        """Absolute difference of the success rates, and of the logarithms of the median distances; 0 if unknown."""
        rate, ratio = self.difference.value, self.ratio.value
        return 0.0 if math.isnan(rate) else abs(rate), abs(math.log(ratio)) if 0 < ratio < math.inf else 0.0

    @property
    def costs(self) -> str:
        """Details of a verdict: larger distances, unequal queries, and a difference that rounding to 8 bits removes.

        Empty if there are none, or for other verdicts than "weaker" and "equivalent".
        """
        if self.verdict not in ("weaker", "equivalent"):
            return ""
        unequal = not math.isnan(self.queries) and not 1 / UNEQUAL_COST <= self.queries <= UNEQUAL_COST
        times = self.queries if self.weaker else max(self.queries, 1 / self.queries)  # without an order: of either
        differ = f"with {times:.2g} times the queries" if self.weaker else f"their queries differ {times:.2g}-fold"
        far = f"distances {self.farther:.3g} times as large" if self.farther >= _FAR else "larger distances"
        parts = [] if math.isnan(self.farther) else [far]
        parts += [differ] * unequal
        return ", ".join([*parts, *(["not after rounding to 8 bits"] if self.fades else [])])

    @property
    def text(self) -> str:
        """The verdict with its caveats, such as "weaker: art:pgd" or "undecided: 3 more images needed"."""
        costs = f" ({self.costs})" if self.costs else ""
        if self.weaker:
            return f"{self.verdict}: {self.weaker}{costs}"
        if self.verdict in ("identical", "equivalent") and self.left_out:
            return f"{self.verdict} on {self.images} of {self.images + self.left_out} images{costs}"
        if self.verdict == "undecided" and not self.reason:
            return f"undecided: {self.needed - self.images} more images needed"
        return f"{self.verdict}{costs}"

    @property
    def level(self) -> float:
        """Significance level of each test: 5 %, corrected for the number of tests."""
        return corrected_level(self.pairs * self.tests)

    @property
    def correction(self) -> str:
        """The significance level with its correction, as text. The p-values are not corrected."""
        parts = [f"{self.pairs} pairs"] * (self.pairs > 1) + [f"{self.tests} tests each"] * (self.tests > 1)
        if not parts:
            return f"{SIGNIFICANT}"
        return f"{SIGNIFICANT} / {self.pairs * self.tests} = {self.level:.2g} (Bonferroni: {', '.join(parts)})"

    @property
    def p_alone(self) -> float:
        """p-value that would be significant if these two were compared alone, but is not for all pairs; else NaN."""
        level = corrected_level(self.tests)
        apart = _bounded_difference(self.only_a, self.only_b, self.images, self.left_out, level)
        known = [self.p_success] * (apart.low > 0 or apart.high < 0) + [self.p_distance] * (self.tests > 1)
        least = min((p for p in known if self.level <= p < level), default=math.nan)
        return math.nan if self.weaker or self.verdict == "identical" else least

    @property
    def can_be_significant(self) -> bool:
        """Whether some outcome on this number of images would be significant."""
        return not self.reason and self.images >= self.needed

    @property
    def power(self) -> str:
        """The smallest difference that can be detected with this number of images, as a sentence."""
        if self.reason:
            return f"not compared: {self.reason}"
        if self.images < self.needed:
            return (
                f"with {_images(self.images)}, no outcome can be significant: at least {self.needed} are needed, "
                f"{self.needed - self.images} more"
            )
        return f"with {self.images} images, only differences of at least {self.detectable} images can be detected"


def corrected_level(tests: int) -> float:
    """Return the significance level of each of several tests, such that all of them together have 5 % (Bonferroni)."""
    return SIGNIFICANT / max(1, tests)


def decide_verdict(
    a: PairedOutcomes,
    b: PairedOutcomes,
    *,
    minimum_norm: bool,
    same: np.ndarray,
    moved: np.ndarray | None = None,
    pairs: int = 1,
) -> PairVerdict:
    """Compare two implementations image by image, and decide the verdict by `RULE`.

    Args:
        a: outcomes of the first implementation.
        b: outcomes of the second implementation, on the same images.
        minimum_norm: whether the implementations are minimum-norm attacks. Then distances are also tested, and each of
            the two tests has half the level.
        same: whether both implementations returned the same example, (n,) bool.
        moved: whether at least one of the two implementations changed the image, (n,) bool. None if this holds for all
            images. The verdict is "identical" only if some image was changed.
        pairs: number of pairs of implementations in the same comparison, including this pair. In at most 5 % of such
            comparisons, a difference is found although there is none.
    """
    both = a.attacked & b.attacked
    paired = both & ~a.invalid_by("model", "unknown") & ~b.invalid_by("model", "unknown")
    left_out, tests = int((both & ~paired).sum()), 2 if minimum_norm else 1
    first, second = (each.valid_success[paired] for each in (a, b))
    hit = first & second
    near, far = a.distance[paired][hit], b.distance[paired][hit]
    tied = near, np.where(np.isclose(near, far, rtol=SAME_DISTANCE, atol=0), near, far)
    only_a, only_b, images = int((first & ~second).sum()), int((second & ~first).sum()), int(paired.sum())
    level = corrected_level(pairs * tests)
    least = min_images_for_significance(level)
    broken = " and ".join(side.name for side in (a, b) if side.is_broken)
    numbers = PairVerdict(
        "no difference found",
        images=images,
        left_out=left_out,
        p_success=mcnemar(first, second) if images else math.nan,
        p_distance=wilcoxon(*tied),
        only_a=only_a,
        only_b=only_b,
        difference=_bounded_difference(only_a, only_b, images, left_out, level),
        ratio=ratio_interval(near, far, 1 - level),
        detectable=least,
        needed=least,
        pairs=pairs,
        tests=tests,
        reason="" if images else _why_nothing(a, b),
    )
    verdict, weaker = _decide(numbers, (a.name, b.name), minimum_norm, signed_rank_sum(*tied))
    costs: dict[str, Any] = {"queries": _ratio_of_queries(*((b, a) if weaker == b.name else (a, b)), both)}
    if verdict == "weaker":
        ratio = numbers.ratio.value
        costs["farther"] = math.nan if numbers.is_apart else ratio if weaker == a.name else 1 / ratio
        costs["fades"] = _fades(*((a, b) if weaker == b.name else (b, a)), paired, level if numbers.is_apart else 0.0)
    elif verdict == "undecided" and numbers.p_success < numbers.level:
        costs["reason"] = f"the verdict depends on {_images(left_out)} omitted as invalid"
    if broken:
        verdict, weaker = "broken", broken
    elif images and same[paired].all() and (moved is None or moved[paired].any()):
        verdict, weaker = "identical", ""
    return PairVerdict(**{**vars(numbers), **costs, "verdict": verdict, "weaker": weaker})


def compare_rates(
    names: tuple[str, str], first: np.ndarray, second: np.ndarray, *, undecided: np.ndarray | None = None
) -> PairVerdict:
    """Compare two rates on the same images, such as the robust accuracy of two models, by `RULE`.

    Args:
        names: names of the two models or implementations.
        first: outcome of each image for the first name, (n,) bool.
        second: outcome of each image for the second name, (n,) bool.
        undecided: whether an outcome is unknown, (n,) bool. The interval covers both possible outcomes of such an
            image. None if all outcomes are known.
    """
    nothing, every = np.zeros(len(first)), np.ones(len(first), bool)
    unknown = np.zeros(len(first), bool) if undecided is None else undecided
    reasons = tuple(("unknown",) if each else () for each in unknown)
    a, b = (
        PairedOutcomes(name, every, success, nothing, reasons)
        for name, success in zip(names, (first, second), strict=True)
    )
    return decide_verdict(a, b, minimum_norm=False, same=~every)


def not_compared(broken: str, reason: str) -> PairVerdict:
    """Return the verdict on a pair of which at least one implementation has no results.

    The verdict is "broken" if a library crashed, otherwise "undecided".

    Args:
        broken: names of the implementations whose library crashed. Empty if the model or the request is the cause.
        reason: the reason why a result is missing.
    """
    return PairVerdict("broken" if broken else "undecided", broken, reason=reason)


def _decide(numbers: PairVerdict, names: tuple[str, str], minimum_norm: bool, ranks: float) -> tuple[Verdict, str]:
    """Return the verdict that follows from the tests, and the name of the weaker implementation.

    `ranks` is the signed-rank sum of the distances, positive if the first implementation's distances are larger.
    """
    if numbers.is_apart:
        return "weaker", names[0] if numbers.only_a < numbers.only_b else names[1]
    if minimum_norm and numbers.p_distance < numbers.level:
        return "weaker", names[0] if ranks > 0 else names[1]
    if numbers.images < numbers.needed or numbers.p_success < numbers.level:
        return "undecided", ""
    alike = numbers.difference.low > -MARGIN and numbers.difference.high < MARGIN
    if minimum_norm:
        alike &= numbers.ratio.low > 1 / (1 + DISTANCE_MARGIN) and numbers.ratio.high < 1 + DISTANCE_MARGIN
    return ("equivalent", "") if alike else ("no difference found", "")


def _bounded_difference(only_a: int, only_b: int, images: int, left_out: int, level: float) -> Interval:
    """Return the difference of two success rates, with an interval that agrees with McNemar's exact test.

    The interval excludes 0 only if the test is significant. It covers every possible outcome of the omitted images
    (Manski 2003).
    """
    if not images:
        return UNKNOWN
    ends = []
    for more_a, more_b in ((0, left_out), (left_out, 0)):
        a, b = only_a + more_a, only_b + more_b
        interval = difference_interval(a, b, images + left_out, 1 - level)
        significant = mcnemar(np.repeat([True, False], [a, b]), np.repeat([False, True], [a, b])) < level
        ends.append((interval.low, interval.high) if significant else (min(interval.low, 0.0), max(interval.high, 0.0)))
    return Interval((only_a - only_b) / images, ends[0][0], ends[1][1])


def _ratio_of_queries(a: PairedOutcomes, b: PairedOutcomes, both: np.ndarray) -> float:
    if a.queries is None or b.queries is None or not both.any() or not b.queries[both].any():
        return math.nan
    return float(a.queries[both].mean() / b.queries[both].mean())


def _fades(strong: PairedOutcomes, weak: PairedOutcomes, paired: np.ndarray, level: float) -> bool:
    """Whether the stronger implementation is no longer significantly stronger after rounding to 8 bits.

    For a verdict on distances, `level` is 0. Then the difference disappears only if the other implementation succeeds
    on more images.
    """
    if strong.success_8bit is None or weak.success_8bit is None or not paired.any():
        return False
    first, second = ((each.success_8bit & ~each.invalid_by())[paired] for each in (strong, weak))
    return int(first.sum()) < int(second.sum()) or (level > 0 and mcnemar(first, second) >= level)


def _why_nothing(a: PairedOutcomes, b: PairedOutcomes) -> str:
    why = "; ".join(f"{side.name}: {side.invalid_summary}" for side in (a, b) if side.invalid_summary)
    return why or "no image was attacked"


def _images(count: int) -> str:
    return "1 image" if count == 1 else f"{count} images"
