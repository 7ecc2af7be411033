"""How many more images would tell two subjects apart, and how a ranking fares with fewer."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.stats import norm

from .baselines import FEWEST
from .ranking import Ranking, rank_matrix
from .responses import Responses, select_items

TIMES = 10  # of the present images: more are not counted out
CHANCES = (0.1, 0.5, 0.9)
NAMED = 4  # pairs that a sentence names


class Projection(NamedTuple):
    """Two neighbours in a ranking that cannot be told apart, and the images that would tell them apart.

    Attributes:
        better: name of the one that ranks above.
        worse: name of the other.
        beats: P(better ranks above worse) with the present images.
        images: their number.
        low: additional images with which the chance of telling the two apart is 1 in 10, if the present difference is
            the true one; None: more than `TIMES` times the present images would be needed in all.
        more: with which it is 1 in 2.
        high: with which it is 9 in 10.
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
        """The projection with its condition, in one sentence."""
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
    """The neighbours in a ranking that share a letter, each with the number of images that would part them.

    With n + m images of the same kind the posterior deviation of a difference is the root of n / (n + m) of today's
    (`design_effect` is part of both). If the present difference d, of deviation s, is the true one, the later d / s is
    about normal around d / s sqrt(1 + m / n) with the variance m / (n + m) of what the new images add; two are told
    apart where it exceeds `Ranking.critical`, which corrects over all pairs. The present difference is itself only an
    estimate: a projection is no promise.

    Args:
        ranking: of any method whose uncertainty is that of the images.
        images: number of different images behind it.

    Returns:
        In the order of the ranking; empty where all neighbours are told apart, and where fewer than `FEWEST` images
        were not resampled (means and Borda counts): nothing is known then of how far images differ.

    Raises:
        ValueError: for no image.
    """
    if images < 1:
        raise ValueError(f"expected at least 1 image, got {images}")
    if ranking.p_values is not None and images < FEWEST:
        return []
    order = np.argsort(-ranking.score, kind="stable")
    more = np.arange(1, (TIMES - 1) * images + 1)
    projections = []
    for one, other in pairwise(order):
        if ranking.apart[one, other]:
            continue
        z = ranking.deviations[one, other] * np.sqrt(1 + more / images)
        chance = norm.cdf((z - ranking.critical) / np.sqrt(more / (images + more)))
        counts = [_first(more, chance >= each) for each in CHANCES]
        names, beats = (ranking.subjects[one], ranking.subjects[other]), float(ranking.beats[one, other])
        projections.append(Projection(*names, beats, images, *counts))
    return projections


def describe_projections(projections: Sequence[Projection]) -> list[str]:
    """Projections in words: a sentence for each pair, and one for all pairs where counting on is idle."""
    sentences = [each.sentence for each in projections if each.more is not None]
    hopeless = [each for each in projections if each.more is None]
    if len(hopeless) < 2:
        return [*sentences, *(each.sentence for each in hopeless)]
    pairs = [f"{each.better} from {each.worse}" for each in hopeless]
    more = f" and {len(pairs) - NAMED} more pairs" if len(pairs) > NAMED else ""
    images = f"More than {TIMES} times the {hopeless[0].images} images would be needed to separate"
    return [*sentences, f"{images} {', '.join(pairs[:NAMED])}{more}, if the observed differences are the true ones."]


def _first(numbers: np.ndarray, enough: np.ndarray) -> int | None:
    """The smallest number from which on it is enough."""
    short = np.flatnonzero(~enough)
    if not len(short):
        return int(numbers[0])
    return None if short[-1] == len(numbers) - 1 else int(numbers[short[-1] + 1])


class Subsample(NamedTuple):
    """Rankings by some of the images.

    Attributes:
        images: number of them.
        subsets: how many were drawn.
        width: mean width of the 95 % intervals of the scores.
        projected: what the root of the number of images makes of the width with all of them.
        ranks: mean number of ranks in the 95 % interval of a rank.
        apart: mean number of pairs of subjects that are told apart.
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
    """Rank again by a part of the images: what fewer would have shown, and whether widths follow their number's root.

    Args:
        responses: that were ranked.
        ranking: of them.
        shares: of the images; one over a share subsets, which have no image in common, are drawn of each.
        seed: random seed of the drawing and of the fits.
        **options: of `rank_matrix`.

    Returns:
        The smallest part first, all images last; a part that cannot be ranked, as nothing differs in it, is left out.
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
    """Mean width of the scores' intervals and of the ranks', and the number of pairs that are told apart."""
    apart = int(np.triu(ranking.apart, 1).sum())
    ranks = float(np.mean(ranking.rank_high - ranking.rank_low + 1))
    return float(np.mean(ranking.high - ranking.low)), ranks, float(apart)
