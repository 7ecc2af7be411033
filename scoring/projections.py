"""Projections: number of images needed to separate two subjects, and precision of rankings on fewer images."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.stats import norm

from .baselines import FEWEST
from .ranking import Ranking, rank_matrix
from .responses import Responses, select_items

TIMES = 10  # largest projected multiple of the present images
CHANCES = (0.1, 0.5, 0.9)
NAMED = 4  # most pairs named in a sentence


class Projection(NamedTuple):
    """Two neighbours in a ranking that do not differ significantly, and the images needed to separate them.

    Attributes:
        better: name of the higher-ranked subject.
        worse: name of the lower-ranked subject.
        beats: P(better ranks above worse) with the present images.
        images: present number of images.
        low: number of additional images that would separate the two with probability 0.1, if the present difference is
            the true one. None if the total would exceed `TIMES` times the present number.
        more: number of additional images for probability 0.5, or None as for `low`.
        high: number of additional images for probability 0.9, or None as for `low`.
    """

    better: str
    worse: str
    beats: float
    images: int
    low: int | None
    more: int | None
    high: int | None

    @property
    def sentence(self) -> str:
        """Projection in one sentence, with its condition."""
        if self.more is None:
            return (
                f"More than {TIMES} times the {self.images} images would be needed to separate {self.better} from "
                f"{self.worse}, if the observed difference is the true one."
            )
        most = f"{self.high}" if self.high is not None else f"more than {(TIMES - 1) * self.images}"
        return (
            f"{self.more} more images would separate {self.better} from {self.worse} with probability 0.5, if the "
            f"observed difference is the true one ({self.low} with probability 0.1, {most} with 0.9)."
        )


def project_pairs(ranking: Ranking, images: int) -> list[Projection]:
    """Project how many more images would separate neighbours in a ranking that do not differ significantly.

    Assume that the present difference d of two subjects, with posterior standard deviation s from n images, is the true
    one. With n + m images of the same kind, the deviation is s sqrt(n / (n + m)), including the `design_effect`. The
    ratio of difference and deviation is then approximately normal, with mean d / s sqrt(1 + m / n) and variance
    m / (n + m) from the new images. Two subjects are separated if the ratio exceeds `Ranking.critical`, which corrects
    for all pairs. The present difference is only an estimate, so a projection is not a guarantee.

    Args:
        ranking: ranking by any method whose uncertainty is over images.
        images: number of different images on which the ranking is based.

    Returns:
        Projections in the order of the ranking. Empty if all neighbours are separated. Also empty for means and Borda
        counts with fewer than `FEWEST` images, because the variation between images is then unknown.

    Raises:
        ValueError: If `images` is below 1.
    """
    if images < 1:
        raise ValueError(f"expected at least 1 image, got {images}")
    if ranking.p_values is not None and images < FEWEST:
        return []
    order = np.argsort(-ranking.score, kind="stable")
    projections = []
    for one, other in pairwise(order):
        if ranking.apart[one, other]:
            continue
        counts = images_to_separate(float(ranking.deviations[one, other]), images, ranking.critical)
        names, beats = (ranking.subjects[one], ranking.subjects[other]), float(ranking.beats[one, other])
        projections.append(Projection(*names, beats, images, *counts))
    return projections


def images_to_separate(deviations: float, images: int, critical: float) -> list[int | None]:
    """Return how many more images separate a value from a bound, for each probability in `CHANCES`.

    The projection is explained in `project_pairs`.

    Args:
        deviations: present distance from the bound, in standard deviations of the value.
        images: present number of images.
        critical: distance at which the value and the bound count as separate, in standard deviations.

    Returns:
        Numbers of additional images. None if the total would exceed `TIMES` times the present number.
    """
    more = np.arange(1, (TIMES - 1) * images + 1)
    z = deviations * np.sqrt(1 + more / images)
    chance = norm.cdf((z - critical) / np.sqrt(more / (images + more)))
    return [_first(more, chance >= each) for each in CHANCES]


def describe_projections(projections: Sequence[Projection]) -> list[str]:
    """Describe projections: one sentence for each pair, and one for all pairs that need too many images."""
    sentences = [each.sentence for each in projections if each.more is not None]
    hopeless = [each for each in projections if each.more is None]
    if len(hopeless) < 2:
        return [*sentences, *(each.sentence for each in hopeless)]
    pairs = [f"{each.better} from {each.worse}" for each in hopeless]
    more = f" and {len(pairs) - NAMED} more pairs" if len(pairs) > NAMED else ""
    images = f"More than {TIMES} times the {hopeless[0].images} images would be needed to separate"
    return [*sentences, f"{images} {', '.join(pairs[:NAMED])}{more}, if the observed differences are the true ones."]


def _first(numbers: np.ndarray, enough: np.ndarray) -> int | None:
    """Return the smallest number such that it and all larger ones satisfy the condition. None if there is none."""
    short = np.flatnonzero(~enough)
    if not len(short):
        return int(numbers[0])
    return None if short[-1] == len(numbers) - 1 else int(numbers[short[-1] + 1])


class Subsample(NamedTuple):
    """Precision of rankings on a random part of the images, averaged over several subsets.

    Attributes:
        images: number of images in a subset.
        subsets: number of random subsets.
        width: mean width of the scores' 95 % intervals.
        projected: expected width, if the width is proportional to 1 / sqrt(images).
        ranks: mean number of ranks in a rank's 95 % interval.
        apart: mean number of subject pairs that differ significantly.
    """

    images: int
    subsets: int
    width: float
    projected: float
    ranks: float
    apart: float


def rank_subsamples(
    responses: Responses, ranking: Ranking, *, shares: Sequence[float] = (0.25, 0.5), seed: int = 0, **options: str
) -> list[Subsample]:
    """Rank on random parts of the images, to show how the width of intervals depends on the number of images.

    Args:
        responses: ranked responses.
        ranking: their ranking.
        shares: proportions of the images. For a proportion p, 1 / p disjoint subsets are drawn.
        seed: random seed of the subsets and of the fits.
        **options: options of `rank_matrix`.

    Returns:
        One record per proportion, from the smallest to all images. Proportions are omitted if their subsets cannot be
        ranked because no subjects differ.
    """
    names = np.array(list(dict.fromkeys(responses.images)))
    place = {name: number for number, name in enumerate(names)}
    of_item = np.array([place[image] for image in responses.images])
    shuffled = np.random.default_rng(seed).permutation(len(names))
    lines, wide = [], float(np.mean(ranking.high - ranking.low))
    for share in sorted(shares):
        size, widths = int(share * len(names)), []
        for subset in np.split(shuffled[: size * (len(names) // size)], len(names) // size) if size else ():
            part = select_items(responses, np.isin(of_item, subset))
            try:
                widths.append(_measure(rank_matrix(part, seed=seed, **options)))  # type: ignore[arg-type]
            except ValueError:
                continue
        if widths:
            projected = wide * float(np.sqrt(len(names) / size))
            width, ranks, apart = np.mean(widths, axis=0).tolist()
            lines.append(Subsample(size, len(widths), width, projected, ranks, apart))
    return [*lines, Subsample(len(names), 1, wide, wide, *_measure(ranking)[1:])]


def _measure(ranking: Ranking) -> tuple[float, float, float]:
    """Return the mean widths of the intervals of scores and ranks, and the number of separated pairs."""
    apart = int(np.triu(ranking.apart, 1).sum())
    ranks = float(np.mean(ranking.rank_high - ranking.rank_low + 1))
    return float(np.mean(ranking.high - ranking.low)), ranks, float(apart)
