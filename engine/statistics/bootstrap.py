"""Percentile intervals from resampled images (bootstrap), computed as matrix products with the resamples' counts."""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch

from ...errors import InvalidInput
from ...intervals import TAIL, tail_probability
from ...metrics import half_distortion
from ...metrics.cost import LEVELS

_AT_ONCE = 2**22  # numbers in memory at once, in a matrix with a row for each replicate
_IN_CACHE = 2**19  # the same, if many such matrices are computed from one another
_ROUNDING = 1e-12  # rounding error of an optimality, which is of the order of 1
_FEW = 16  # images examined at a time in the search for the largest
_GUESSES = np.geomspace(1e-6, 1e3, 128)  # rates of an exponential over the mean distance
_NEWTON = 4  # steps from the best guess
FEWEST = 5  # images; with fewer the bootstrap underestimates the spread


class Estimate(NamedTuple):
    """An estimate with its 95 % interval and the number n of images. NaN if undefined or without an interval."""

    value: float
    low: float
    high: float
    n: int


class Replicates(NamedTuple):
    """A mean over images, computed on the original images and on R - 1 resamples. Row 0 is for the original images.

    Args:
        total: sum of the values, (R,).
        count: number of values in the sum, (R,).
        n: number of images. An image that several runs attack is counted for each run.
        different: number of distinct images; 0 if all n images are distinct.
    """

    total: np.ndarray
    count: np.ndarray
    n: int
    different: int = 0

    @property
    def ratio(self) -> np.ndarray:
        """The mean in each replicate, (R,); NaN if no image of the replicate has a defined value."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return self.total / self.count


def resample(images: int, replicates: int, seed: int) -> np.ndarray:
    """Return the number of times that each image is drawn in each bootstrap replicate.

    Equal arguments give equal counts. Runs on the same images therefore have the same replicates, and can be compared
    image by image.

    Args:
        images: number of images, at least 1.
        replicates: number of replicates; 0 for no interval.
        seed: random seed of the replicates.

    Returns:
        Shape (replicates + 1, images), uint8. Row 0 is all ones and stands for the original images.

    Raises:
        InvalidInput: if a number is out of range.
    """
    if replicates < 0 or images < 1:
        raise InvalidInput(f"expected replicates >= 0 and images >= 1, got {replicates} replicates and {images} images")
    generator = np.random.default_rng((seed, images))
    counts = np.ones((replicates + 1, images), np.uint8)
    for rows in _groups(replicates, images):
        drawn = generator.integers(images, size=(len(rows), images)) + images * np.arange(len(rows))[:, None]
        multiplicities = np.bincount(drawn.ravel(), minlength=drawn.size).reshape(drawn.shape)
        counts[rows.start + 1 : rows.stop + 1] = multiplicities.clip(max=255)
    return counts


def bootstrap_means(counts: np.ndarray, values: np.ndarray) -> list[Replicates]:
    """Return the replicates of the mean of every column, over the images for which the column is defined.

    Args:
        counts: from `resample`, shape (R, n). Convert the counts to floating point numbers if they are used many times.
        values: shape (n, S); NaN if undefined.

    Returns:
        Replicates for each column. Columns that are defined on the same images share their counts.
    """
    defined, endless = ~np.isnan(values), np.isinf(values)
    places: dict[bytes, int] = {}
    of_mask = [places.setdefault(mask.tobytes(), len(places)) for mask in np.packbits(defined, axis=0).T]
    masks = defined[:, [of_mask.index(place) for place in range(len(places))]]
    both = np.ascontiguousarray(np.concatenate([np.where(defined & ~endless, values, 0.0), masks], axis=1))
    sums = np.concatenate([counts[rows.start : rows.stop] @ both for rows in _groups(len(counts), len(values))])
    columns = values.shape[1]
    for image, place in zip(*endless.nonzero(), strict=True):  # PSNR of an unchanged image; avoids 0 times infinity
        sums[counts[:, image] > 0, place] = values[image, place]
    totals, counted = np.ascontiguousarray(sums[:, :columns].T), np.ascontiguousarray(sums[:, columns:].T)
    return [Replicates(totals[i], counted[of_mask[i]], int(defined[:, i].sum())) for i in range(columns)]


def draws_of(values: np.ndarray, n: int) -> Replicates:
    """Convert a statistic that is not a mean over images, given its value in each replicate, (R,), to `Replicates`."""
    return Replicates(values, np.ones(len(values)), n)


def interval(draws: np.ndarray, n: int, different: int = 0) -> Estimate:
    """Return an estimate with its expanded percentile interval (`tail_probability`). Undefined replicates are ignored.

    There is no interval (NaN) for fewer than `FEWEST` images, or if all replicates are equal: an interval of zero width
    would claim certainty. For rates, use `proportion_interval` instead.

    Args:
        draws: the estimate on the original images, then in every replicate, shape (R,).
        n: number of images.
        different: number of distinct images; 0 if all images are distinct.
    """
    low, high = (float(ends[0]) for ends in interval_bands(draws[:, None], tail_probability(different or n)))
    if (different or n) < FEWEST or low == high or math.isclose(low, high, rel_tol=1e-12):  # sums round
        low = high = math.nan
    return Estimate(float(draws[0]), low, high, n)


def interval_bands(draws: np.ndarray, tail: float = TAIL) -> tuple[np.ndarray, np.ndarray]:
    """Return the lower and upper bounds of the percentile interval of every column of `draws`, (C,) each.

    Args:
        draws: shape (R, C). Row 0 has the estimates on the original images and is ignored. The other rows are
            replicates.
        tail: proportion of the replicates that is cut off on each side.
    """
    ordered = np.sort(draws[1:], axis=0)  # NaN last
    known = (~np.isnan(ordered)).sum(0)
    if not len(ordered):
        return np.full(draws.shape[1], math.nan), np.full(draws.shape[1], math.nan)
    ends = []
    for share in (tail, 1 - tail):
        place = np.ceil(share * known).astype(int).clip(1) - 1
        ends.append(np.take_along_axis(ordered, place[None], axis=0)[0])
    return ends[0], ends[1]


def draw_macro_f1(counts: np.ndarray, labels: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Compute `metrics.macro_f1` in each replicate, (R,), over the classes that occur in the replicate.

    Args:
        counts: from `resample`, shape (R, n).
        labels: ground truth, shape (n,).
        predicted: predicted classes, shape (n,).
    """
    classes = np.unique(np.concatenate([labels, predicted]))
    right = labels == predicted

    def score(drawn: np.ndarray) -> np.ndarray:
        hits = _sums_by_class(drawn[:, right], labels[right], classes)
        sizes = _sums_by_class(drawn, labels, classes) + _sums_by_class(drawn, predicted, classes)
        met = (sizes > 0).sum(1)
        scores = (2 * hits / np.where(sizes > 0, sizes, 1)).sum(1)
        return np.where(met > 0, scores / np.maximum(met, 1), math.nan)

    return _by_groups(score, counts, labels)


def _sums_by_class(drawn: np.ndarray, of_images: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return the number of drawn images of each class, (R, C), from counts (R, n) and the class of each image, (n,)."""
    order = np.argsort(of_images, kind="stable")
    met, begins = np.unique(of_images[order], return_index=True)
    sums = np.zeros((len(drawn), len(classes)))
    if len(met):
        sums[:, np.searchsorted(classes, met)] = np.add.reduceat(drawn[:, order], begins, axis=1)
    return sums


def draw_levels(seconds: np.ndarray) -> np.ndarray:
    """Compute `metrics.time_cost_levels` of A attacks in each replicate, from their seconds (R, A). NaN remains NaN."""
    faster = (seconds[:, None, :] < seconds[:, :, None]).sum(2)
    known = (~np.isnan(seconds)).sum(1, keepdims=True)
    return np.where(np.isnan(seconds), math.nan, faster * LEVELS // known.clip(1))


def draw_optimality(counts: np.ndarray, distances: np.ndarray, best: np.ndarray) -> np.ndarray:
    """Compute `metrics.local_optimality` in each replicate, (R,).

    Args:
        counts: from `resample`, shape (R, n).
        distances: distances that the attack found, shape (n,).
        best: smallest known distances of the images, shape (n,).
    """
    if np.isinf(best).any():  # undefined on the images themselves, so without an interval
        return np.full(len(counts), math.nan)
    ends, place = np.unique(_largest_drawn(counts, best), return_inverse=True)  # few: large ones are often drawn
    reached = [np.minimum(distances, end) for end in ends]
    sums = _products(counts, np.stack([best, best > 0, np.ones(len(best)), *reached], axis=1))
    least, right, images = sums[:, :3].T
    with np.errstate(invalid="ignore", divide="ignore"):  # a replicate without an image
        area, least = sums[np.arange(len(sums)), 3 + place] / images, least / images
        optimality = 1 - (area - least) / (right / images * ends[place] - least)
        whole = np.round(optimality) + 0.0  # not -0; rounding differs between processors
        return np.where(np.abs(optimality - whole) < _ROUNDING, whole, optimality)


def _largest_drawn(counts: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the largest of the values (n,) that each replicate draws, (R,).

    The result is arbitrary without drawn images.
    """
    order = np.argsort(-values, kind="stable")
    place, left, looked = np.zeros(len(counts), int), np.arange(len(counts)), 0
    while len(left) and looked < len(order):
        met = counts[np.ix_(left, order[looked : looked + _FEW])] > 0
        place[left] = looked + met.argmax(1)
        left, looked = left[~met.any(1)], looked + _FEW
    return values[order[place]]


def draw_half_distortion(counts: np.ndarray, distances: np.ndarray, measured: float | None = None) -> np.ndarray:
    """Compute `metrics.half_distortion` in each replicate. Row 0 is the metric on the original images.

    Args:
        counts: from `resample`, shape (R, n).
        distances: distance of each image, shape (n,), >= 0.
        measured: the metric on the original images. None to compute it.

    Returns:
        Shape (R,). Infinite if no image is fooled. NaN if no clean image is classified correctly, or if all images are
        fooled at the same distance, which no exponential fits.
    """
    fallen = np.flatnonzero((distances > 0) & np.isfinite(distances))
    fallen = fallen[np.argsort(distances[fallen], kind="stable")]
    steps, begins = np.unique(distances[fallen], return_index=True)
    right = _products(counts, (distances > 0)[:, None].astype(float))[:, 0]
    known = np.where(right > 0, math.inf, math.nan)
    scale = float(steps.mean()) if len(steps) else 1.0  # one grid of rates suits all units
    for rows in _groups(len(counts), len(fallen), _IN_CACHE) if len(steps) else ():
        place = slice(rows.start, rows.stop)
        at_each = np.add.reduceat(counts[place].take(fallen, 1), begins, axis=1, dtype=np.int32)
        known[place] = scale * _halves(at_each, right[place], steps / scale)
    known[0] = half_distortion(torch.tensor(distances)).value if measured is None else measured
    return known


def _halves(fallen: np.ndarray, right: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Compute half distortions, given the numbers of images fooled at each step (R, S) and correct when clean (R,).

    The accuracy just after step s is a_s = 1 - (number fooled up to s) / right. Only steps at which an image is fooled
    count. The rate r of exp(-r d) minimises the sum of (exp(-r d_s) - a_s)^2 over these steps. Without the term that
    does not depend on r, this sum is two matrix products for each rate. Newton's method in ln r refines the best rate
    of a grid, between its neighbours. If the curvature is not positive, Newton's method makes no step.
    """
    met = (fallen > 0).astype(float)
    with np.errstate(invalid="ignore", divide="ignore"):
        left = 1 - fallen.cumsum(1, dtype=np.int32) / right[:, None]
    left[right == 0] = 0  # none of them falls
    first = np.take_along_axis(left, met.argmax(1)[:, None], axis=1)[:, 0]
    left *= met
    decays = np.exp(-np.outer(steps, _GUESSES))
    best = (met @ np.square(decays) - 2 * left @ decays).argmin(1)
    guesses = np.log(_GUESSES)
    rate, low, high = (guesses[(best + aside).clip(0, len(guesses) - 1)] for aside in (0, -1, 1))
    for _ in range(_NEWTON):
        passed = np.exp(rate)[:, None] * steps
        decay = np.exp(-passed) * met
        pull = passed * decay * (left - decay)
        slope, bend = pull.sum(1), ((1 - passed) * pull + np.square(passed * decay)).sum(1)
        rate = np.clip(rate - slope / np.where(bend > 0, bend, math.inf), low, high)
    half = np.where(met.any(1), math.log(2) / np.exp(rate), math.inf)
    return np.where((right == 0) | (met.any(1) & (first <= 0)), math.nan, half)


def _products(counts: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return the sum of each column (n, C) over the images of each replicate, (R, C)."""
    return _by_groups(lambda drawn: drawn @ columns, counts, columns, _IN_CACHE)


def _by_groups(
    function: Callable[[np.ndarray], np.ndarray], counts: np.ndarray, like: np.ndarray, most: int = _AT_ONCE
) -> np.ndarray:
    """Apply a function to groups of rows of `counts`. The groups are as large as memory allows."""
    parts = [function(counts[rows.start : rows.stop].astype(float)) for rows in _groups(len(counts), len(like), most)]
    return np.concatenate(parts)


def _groups(rows: int, columns: int, most: int = _AT_ONCE) -> Iterator[range]:
    size = max(1, most // max(columns, 1))
    return (range(start, min(start + size, rows)) for start in range(0, rows, size))
