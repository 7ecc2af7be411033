"""Selects the most informative images for a new subject, batch by batch, until its rank is known precisely enough."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..intervals import LEVEL
from .irt import IRTFit
from .response_model import TINY
from .significance import design_effect

BATCH = 8  # images per batch
_NUMBERS = 2e7  # most numbers in the table of probabilities, which limits the draws
_FEWEST = 25  # fewest draws


class Step(NamedTuple):
    """State of the selection after a batch of images: the new subject's ability and rank, with 95 % intervals.

    Attributes:
        images: number of images with a response of the new subject.
        responses: number of responses of the new subject.
        score: posterior mean of the ability.
        low: lower bound of the ability's interval.
        high: upper bound of the ability's interval.
        rank_low: best rank in the rank's interval.
        rank_high: worst rank in the rank's interval.
    """

    images: int
    responses: int
    score: float
    low: float
    high: float
    rank_low: int
    rank_high: int

    @property
    def width(self) -> int:
        """Width of the rank interval: worst minus best rank."""
        return self.rank_high - self.rank_low


class SelectionResult(NamedTuple):
    """Images that `choose_images` selected for a new subject, and the subject's rank after each batch of images.

    Attributes:
        images: selected images, in the order of selection.
        steps: ability and rank of the new subject after each batch.
        enough: whether the last rank interval is at most `width` wide.
        width: largest accepted width of the rank interval: worst minus best rank.
        further: images that would have been selected next, but were not available. Empty if `enough` is True.
    """

    images: tuple[str, ...]
    steps: tuple[Step, ...]
    enough: bool
    width: int
    further: tuple[str, ...] = ()


class ImageSelector:
    """Selects the images that are most informative about a new subject's ability, given its responses so far.

    The measure is the expected Fisher information. A response with probability P has the information P'^2 / (P (1 -
    P)). The information is averaged over the posterior of the new subject's ability and over posterior draws of the
    baseline (van der Linden and Pashley 2000). P itself is averaged over the posterior of the item, so uncertain items
    are less informative. The information of an image is the sum over its items.

    Args:
        fit: fitted model of the baseline, with binary responses.
        responses: responses of the baseline's N subjects to M items, shape (N, M). NaN is missing.
        clusters: image of each item, length M.
        seed: random seed of all random draws.

    Raises:
        ValueError: If the responses are not binary.
    """

    def __init__(self, fit: IRTFit, responses: np.ndarray, clusters: Sequence[str], *, seed: int = 0):
        from .anchor import Anchor

        if fit.model.response != "bernoulli":
            raise ValueError("images can be selected only for responses 0 and 1, but some responses are in between")
        self.clusters = np.asarray(clusters)
        self.effect = design_effect(fit, responses, list(clusters))
        _, first, self._pattern = np.unique(
            np.nan_to_num(responses, nan=2.0), axis=1, return_index=True, return_inverse=True
        )
        self._pattern = self._pattern.ravel()
        whole = Anchor(fit, responses, draws=1, seed=seed)
        draws = int(_NUMBERS / len(first) / whole.ability.shape[1])
        self.anchor = Anchor(fit, responses, draws=max(_FEWEST, draws), seed=seed)
        chance = self.anchor.response_probabilities(first).clamp(TINY, 1 - TINY)  # (patterns, D, T)
        step = torch.from_numpy(np.diff(self.anchor.ability, axis=1)[:, :1]).float()
        middle = (chance[..., 1:] + chance[..., :-1]) / 2
        information = (chance.diff(dim=2) / step) ** 2 / (middle * (1 - middle))
        self._information = information.flatten(1)  # between the points of the grid
        self._log = (1 - chance).log().flatten(1), chance.log().flatten(1)
        self.images, self._image = np.unique(self.clusters, return_inverse=True)

    def log_likelihood(self, newcomer: np.ndarray) -> Tensor:
        """Return the log-likelihood of a new subject's responses. Faster than `Anchor.log_likelihood`.

        Args:
            newcomer: responses of the new subject, shape (M,), 0 or 1. NaN is missing.

        Returns:
            Log-likelihood for each of D baseline draws and T grid abilities, shape (D, T).
        """
        log = torch.zeros(self.anchor.prior.numel())
        for value, curves in enumerate(self._log):
            log += (
                torch.from_numpy(np.bincount(self._pattern[newcomer == value], minlength=len(curves))).float() @ curves
            )
        return log.view_as(self.anchor.prior)

    def information(self, log: Tensor) -> np.ndarray:
        """Return the expected information of each image in `images` about the ability, shape (images,).

        Args:
            log: log-likelihood of the new subject for D baseline draws and T grid abilities, shape (D, T).
        """
        weight = self.anchor.posterior(log).float()
        between = (weight[:, 1:] + weight[:, :-1]) / 2
        of_pattern = (self._information @ between.flatten() / len(weight)).numpy()
        return np.bincount(self._image, of_pattern[self._pattern], len(self.images))

    def next_images(self, newcomer: np.ndarray, asked: Sequence[str], count: int = BATCH) -> list[str]:
        """Return the most informative images for a new subject, the most informative first.

        Args:
            newcomer: responses of the new subject so far, shape (M,). NaN is missing.
            asked: images that were selected before. These images are not returned again.
            count: number of images to return.
        """
        information = self.information(self.log_likelihood(newcomer))
        information[np.isin(self.images, list(asked))] = -1
        order = np.argsort(-information, kind="stable")[:count]
        return [str(self.images[each]) for each in order if information[each] >= 0]

    def current_rank(self, newcomer: np.ndarray) -> Step:
        """Return ability and rank of the new subject, with intervals, from its responses so far.

        Args:
            newcomer: responses of the new subject so far, shape (M,). NaN is missing.
        """
        from .anchor import joint_draws, partial_design_effect

        seen = ~np.isnan(newcomer)
        log, some = self.log_likelihood(newcomer), self.clusters[seen]
        effect = partial_design_effect(self.effect, self.clusters, some) if seen.any() else 1.0
        draws = joint_draws(self.anchor, log, self.effect, effect)
        ranks = 1 + (draws[:, :-1] > draws[:, -1:]).sum(1)
        tail = (1 - LEVEL) / 2
        low, high = np.quantile(draws[:, -1], (tail, 1 - tail))
        best, worst = np.quantile(ranks, (tail, 1 - tail), method="inverted_cdf")
        about = (float(draws[:, -1].mean()), float(low), float(high), int(best), int(worst))
        return Step(len(set(some)), int(seen.sum()), *about)


def choose_images(
    chooser: ImageSelector,
    answer: Callable[[list[str]], np.ndarray],
    *,
    width: int,
    batch: int = BATCH,
    among: Sequence[str] | None = None,
    tell: Callable[[Step], object] = lambda _: None,
) -> SelectionResult:
    """Evaluate a new subject on the most informative images, until its rank interval is narrow enough.

    The first batch contains the images that are most informative before any response of the new subject is known.
    Stopping early does not bias the posterior, because the decision to stop depends only on the responses.

    Args:
        chooser: selector that was built from the baseline.
        answer: function that receives all images selected so far, evaluates the new subject on these images, and
            returns the new subject's responses, shape (M,). NaN is missing.
        width: largest accepted width of the rank interval (worst minus best rank). 0 demands a single rank.
        batch: number of images per batch.
        among: images that may be selected. None means all images of the baseline.
        tell: function that is called after each batch with the new subject's ability and rank.

    Returns:
        The selected images and the ranks. If the interval never becomes narrow enough, all available images are
        selected.
    """
    asked: list[str] = []
    steps: list[Step] = []
    barred = [] if among is None else sorted(set(chooser.images) - set(among))
    newcomer = np.full(len(chooser.clusters), np.nan)
    while not steps or steps[-1].width > width:
        images = chooser.next_images(newcomer, [*asked, *barred], batch)
        if not images:
            break
        asked += images
        newcomer = answer(asked)
        steps.append(chooser.current_rank(newcomer))
        tell(steps[-1])
    enough = bool(steps) and steps[-1].width <= width
    further = [] if enough else chooser.next_images(newcomer, asked, batch)
    return SelectionResult(tuple(asked), tuple(steps), enough, width, tuple(further))


def replay_selection(
    fit: IRTFit, values: np.ndarray, clusters: Sequence[str], width: int | None, batch: int, seed: int = 0
) -> SelectionResult:
    """Find how few of a new subject's images would have been enough to determine its rank.

    The new subject has already been evaluated. Its images are selected again one batch at a time, as by
    `choose_images`.

    Args:
        fit: fitted model of the baseline.
        values: responses of the baseline's N subjects and, in the last row, of the new subject, shape (N + 1, M). NaN
            is missing.
        clusters: image of each item, length M.
        width: largest accepted width of the rank interval (worst minus best rank). None means the width that results
            from all images of the new subject.
        batch: number of images per batch.
        seed: random seed of all random draws.
    """
    chooser, newcomer, images = ImageSelector(fit, values[:-1], clusters, seed=seed), values[-1], np.asarray(clusters)
    wanted = chooser.current_rank(newcomer).width if width is None else width
    known = np.unique(images[~np.isnan(newcomer)]).tolist()
    return choose_images(
        chooser,
        lambda asked: np.where(np.isin(images, asked), newcomer, np.nan),
        width=wanted,
        batch=batch,
        among=known,
    )
