"""Which images tell most about a newcomer: chosen in batches until its rank is known as closely as asked."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..intervals import LEVEL
from .irt import IRTFit
from .response_model import TINY
from .significance import design_effect

BATCH = 8  # images that are asked for at once
_NUMBERS = 2e7  # in the table of chances, which limits the draws
_FEWEST = 25  # draws


class Step(NamedTuple):
    """Where a newcomer stands after some images: its ability and rank, each with the ends of its 95 % interval."""

    images: int
    responses: int
    score: float
    low: float
    high: float
    rank_low: int
    rank_high: int

    @property
    def width(self) -> int:
        """Ranks between the best and the worst of the interval."""
        return self.rank_high - self.rank_low


class SelectionResult(NamedTuple):
    """Images in the order in which they were chosen, and where the newcomer stood after each batch.

    Attributes:
        images: those that were asked for.
        steps: one for each batch.
        enough: whether the last interval is as narrow as asked.
        width: what was asked, worst minus best rank.
        further: images that would tell most next, of those that could not be asked for.
    """

    images: tuple[str, ...]
    steps: tuple[Step, ...]
    enough: bool
    width: int
    further: tuple[str, ...] = ()


class ImageSelector:
    """The expected Fisher information of images about a newcomer's ability, given what it has answered.

    The information of a response with chance P is P'^2 / (P (1 - P)), averaged over the posterior of the newcomer's
    ability and over draws of the baseline (van der Linden and Pashley 2000); P is a mean over what is open about the
    item, so that an item of which little is known tells little. That of an image is the sum over its items.

    Args:
        fit: of the baseline, with outcomes.
        responses: of the baseline, shape (N, M); NaN is missing.
        clusters: the image of each item, length M.
        seed: random seed of every draw.

    Raises:
        ValueError: if the responses are no outcomes.
    """

    def __init__(self, fit: IRTFit, responses: np.ndarray, clusters: Sequence[str], *, seed: int = 0):
        from .anchor import Anchor

        if fit.model.response != "bernoulli":
            raise ValueError("expected outcomes 0 and 1 to choose images by, got scores between")
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
        """As `Anchor.log_likelihood`, from the table of chances."""
        log = torch.zeros(self.anchor.prior.numel())
        for value, curves in enumerate(self._log):
            log += (
                torch.from_numpy(np.bincount(self._pattern[newcomer == value], minlength=len(curves))).float() @ curves
            )
        return log.view_as(self.anchor.prior)

    def information(self, log: Tensor) -> np.ndarray:
        """Expected information of each of `images`.

        Args:
            log: log-likelihood of the newcomer, shape (D, T).

        Returns:
            Shape (images,), for ability on the scale of the fit.
        """
        weight = self.anchor.posterior(log).float()
        between = (weight[:, 1:] + weight[:, :-1]) / 2
        of_pattern = (self._information @ between.flatten() / len(weight)).numpy()
        return np.bincount(self._image, of_pattern[self._pattern], len(self.images))

    def next_images(self, newcomer: np.ndarray, asked: Sequence[str], count: int = BATCH) -> list[str]:
        """The images that tell most, the best first.

        Args:
            newcomer: its responses so far, shape (M,); NaN is missing.
            asked: images that are not to be asked for again.
            count: how many.
        """
        information = self.information(self.log_likelihood(newcomer))
        information[np.isin(self.images, list(asked))] = -1
        order = np.argsort(-information, kind="stable")[:count]
        return [str(self.images[each]) for each in order if information[each] >= 0]

    def current_rank(self, newcomer: np.ndarray) -> Step:
        """Where the newcomer stands by its responses so far, shape (M,)."""
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
    """Ask a newcomer about the images that tell most, until its rank interval is as narrow as asked.

    The first batch is the best for a newcomer of which nothing is known. The posterior is what it is whenever one
    stops: it hangs on the responses, not on why no more were asked for.

    Args:
        chooser: of the baseline.
        answer: the newcomer's responses, shape (M,), once all of these images were asked for; NaN is missing.
        width: worst minus best rank of the interval, at most; 0: a single rank.
        batch: images that are asked for at once.
        among: images that can be asked for; None: all.
        tell: called with where it stands after each batch.

    Returns:
        What was chosen; all images, if they are not enough.
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
    """Which of the images that a newcomer was asked about would have been enough.

    Args:
        fit: of the baseline.
        values: of the baseline and, last, the newcomer, shape (N + 1, M); NaN is missing.
        clusters: the image of each item, length M.
        width: see `choose_images`; None: that of the interval by all of its images.
        batch: see there.
        seed: random seed of every draw.
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
