"""Projections of how many more images would separate two subjects, and precision of rankings on fewer images."""

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
    """Projected number of images that would separate two neighbours in a ranking that do not differ significantly.

    Attributes:
        better: name of the higher-ranked subject.
        worse: name of the lower-ranked subject.
        beats: probability that `better` ranks above `worse`, from the present images.
        images: present number of images.
        low: number of additional images that would separate the two subjects with probability 0.1, if the present
            difference is the true difference. None if the total would exceed `TIMES` times the present number.
        more: number of additional images for probability 0.5. None under the same condition as for `low`.
        high: number of additional images for probability 0.9. None under the same condition as for `low`.
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
        """Sentence that states the projection and its condition."""
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

    The projection assumes that the present difference d of two subjects is the true difference. Its posterior standard
    deviation from n images is s. With m more images of the same kind, the standard deviation becomes s sqrt(n / (n +
    m)), including the `design_effect`. The ratio of difference and standard deviation is then approximately normal,
    with mean d / s sqrt(1 + m / n) and variance m / (n + m). Two subjects are separated if the ratio exceeds
    `Ranking.critical`, which corrects for all pairs. A projection is not a guarantee, because the present difference is
    only an estimate.

    Args:
        ranking: ranking by means, Borda counts or item response theory, whose uncertainty depends on the images.
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
    """Return how many more images would separate a value from a bound, for each probability in `CHANCES`.

    The method is explained in `project_pairs`.

    Args:
        deviations: present distance between value and bound, in standard deviations of the value.
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
    """Return sentences about projections. Pairs that need too many images share one sentence."""
    sentences = [each.sentence for each in projections if each.more is not None]
    hopeless = [each for each in projections if each.more is None]
    if len(hopeless) < 2:
        return [*sentences, *(each.sentence for each in hopeless)]
    pairs = [f"{each.better} from {each.worse}" for each in hopeless]
    more = f" and {len(pairs) - NAMED} more pairs" if len(pairs) > NAMED else ""
    images = f"More than {TIMES} times the {hopeless[0].images} images would be needed to separate"
    return [*sentences, f"{images} {', '.join(pairs[:NAMED])}{more}, if the observed differences are the true ones."]


def _first(numbers: np.ndarray, enough: np.ndarray) -> int | None:
    """Return the smallest number from which on `enough` is True for all numbers.

    None if `enough` is False at the end.
    """
    short = np.flatnonzero(~enough)
    if not len(short):
        return int(numbers[0])
    return None if short[-1] == len(numbers) - 1 else int(numbers[short[-1] + 1])


class Subsample(NamedTuple):
    """Precision of rankings on random subsets of the images, averaged over several subsets of equal size.

    Attributes:
        images: number of images in a subset.
        subsets: number of random subsets.
        width: mean width of the scores' 95 % intervals.
        projected: width that is expected from the width on all images, if the width is inversely proportional to the
            square root of the number of images.
        ranks: mean number of ranks in the 95 % interval of a rank.
        apart: number of pairs of subjects that differ significantly, averaged over the subsets.
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
    """Rank subjects on random subsets of the images, to show how the number of images affects the width of intervals.

    Args:
        responses: responses on which `ranking` is based.
        ranking: ranking of the responses on all images.
        shares: sizes of the subsets, as proportions of the images. For a proportion p, 1 / p disjoint subsets are
            drawn.
        seed: random seed of the subsets and of the fits.
        **options: further arguments of `rank_matrix`.

    Returns:
        One record per proportion, from the smallest proportion to all images. A proportion is omitted if none of its
        subsets can be ranked because no subjects differ.
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
    """Return mean widths of the score intervals and of the rank intervals, and the number of separated pairs."""
    apart = int(np.triu(ranking.apart, 1).sum())
    ranks = float(np.mean(ranking.rank_high - ranking.rank_low + 1))
    return float(np.mean(ranking.high - ranking.low)), ranks, float(apart)
