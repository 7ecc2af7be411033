"""Fitted baseline on which new subjects are placed."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from .gibbs import State, draw_settings, weigh_items
from .grid import make_tables
from .irt import IRTFit
from .ranking import widen_by_design_effect
from .response_model import observe, statistics

DRAWS = 4000  # approximate number of joint draws of new subject and baseline
FINEST = 400  # items beyond which the ability grid gets no finer
_BLOCK = 2e7  # most numbers in a table


class Anchor:
    """A fitted baseline: posterior draws of its abilities, and the posterior of each item for each draw.

    Given the baseline's abilities and the priors, items are independent, and each item has a posterior on the sampler's
    grid. The probability of a response is averaged over that posterior. Items are therefore not treated as known, and
    responses to uncertain items count less. Responses of a new subject do not change the baseline: the baseline's draws
    are not weighted by the likelihood of these responses (a cut posterior, Plummer 2015).

    Shapes use D for draws, T for grid abilities, N for subjects and M for items.

    Args:
        fit: fitted model of the baseline.
        responses: responses that were fitted, shape (N, M). NaN is missing.
        draws: number of evenly spaced draws of the fit to use. None for all draws that include the items.
        seed: random seed of every draw.
    """

    def __init__(self, fit: IRTFit, responses: np.ndarray, *, draws: int | None = None, seed: int = 0):
        self.fit, self.responses = fit, responses
        total = len(fit.items["ability"])
        taken = np.linspace(0, total - 1, min(draws or total, total)).round().astype(int)
        raw, difficulty = fit.items["ability"][taken], fit.items["difficulty"][taken]
        log_slope = fit.items.get("log_discrimination", np.zeros_like(fit.items["difficulty"]))[taken]
        self._tables = make_tables(fit.model, len(responses), min(responses.shape[1], FINEST))
        grids = (self._tables.ability, self._tables.difficulties, self._tables.discriminations)
        ability, hard, steep = (
            _nearest(grid, each) for grid, each in zip(grids, (raw, difficulty, log_slope), strict=True)
        )
        self._seed, generator = seed, torch.Generator().manual_seed(seed)
        settings = draw_settings(self._tables, (ability, hard, steep), generator)
        self._state = State(ability, torch.zeros(len(taken), 0, dtype=torch.long), *settings)
        free = fit.model.hierarchical
        centre = raw.mean(1, keepdims=True) if free else np.zeros((len(taken), 1))
        factor = np.exp(log_slope.mean(1, keepdims=True)) if free else np.ones((len(taken), 1))
        self.baseline: np.ndarray = (raw - centre) * factor  # (D, N)
        self.ability: np.ndarray = (self._tables.ability.double().numpy() - centre) * factor  # (D, T)
        self.prior: Tensor = self._tables.ability_prior.points[self._state.where]  # (D, T)

    def log_likelihood(self, newcomer: np.ndarray) -> Tensor:
        """Return the log-likelihood of a new subject's responses, at each grid ability and for each draw.

        Args:
            newcomer: responses, shape (M,), in [0, 1]. NaN is missing.

        Returns:
            Shape (D, T).
        """
        seen = np.flatnonzero(~np.isnan(newcomer))
        value = observe(newcomer[None], self.fit.model.response, len(self.responses)).values[0].numpy()
        # Items with the same responses of baseline and new subject are equivalent below.
        columns = np.vstack([np.nan_to_num(self.responses[:, seen], nan=2.0), value[seen]])
        _, first, count = np.unique(columns, axis=1, return_index=True, return_counts=True)
        log = torch.zeros(self.prior.shape)
        for values in np.unique(value[seen[first]]):
            alike = value[seen[first]] == values
            times = torch.from_numpy(count[alike]).float()
            for part, curves in self._curves(seen[first[alike]], values):
                log[part] += torch.einsum("u,uct->ct", times, curves.log())
        return log

    def response_probabilities(self, items: Sequence[int] | np.ndarray) -> Tensor:
        """Return the probability that the response to an item is 1, for each draw and each ability on the grid.

        Args:
            items: indices of the items.

        Returns:
            Shape (items, D, T).
        """
        return torch.cat([curves for _, curves in self._curves(np.asarray(items), 1.0)], 1)

    def draw(self, log: Tensor, count: int) -> np.ndarray:
        """Draw abilities of a new subject, on the scale of the fit, by stratified sampling of each draw's posterior.

        Args:
            log: log-likelihood, shape (D, T).
            count: number of draws for each draw of the baseline.

        Returns:
            Shape (D, count).
        """
        weight = self.posterior(log)
        total = weight.cumsum(1)
        generator = torch.Generator().manual_seed(self._seed)  # the same likelihood gives the same draws
        offset = torch.rand(len(total), count, generator=generator, dtype=torch.double)
        level = (torch.arange(count) + offset) / count
        place = torch.searchsorted(total, level).clamp_max(total.shape[1] - 1)
        inside = 1 - (total.gather(1, place) - level) / weight.gather(1, place) - 0.5
        step = self.ability[:, 1:2] - self.ability[:, :1]
        return np.take_along_axis(self.ability, place.numpy(), 1) + step * inside.numpy()

    def posterior(self, log: Tensor) -> Tensor:
        """Return the posterior of a new subject's ability on the grid for each draw, shape (D, T)."""
        return (log + self.prior).double().softmax(1)

    def expect(self, log: Tensor) -> float:
        """Return the posterior mean of a new subject's ability on the scale of the fit."""
        return float((self.posterior(log).numpy() * self.ability).sum(1).mean())

    def _curves(self, items: np.ndarray, value: float) -> Iterator[tuple[slice, Tensor]]:
        """Yield the probability or density of a response to items, shape (items, C, T), for blocks of C draws."""
        tables, response = self._tables, self.fit.model.response
        observed = observe(self.responses[:, items], response)
        data = torch.where(observed.seen, statistics(observed.values, response), 0.0).float()
        of_value = statistics(torch.tensor(value, dtype=torch.double), response).float()
        chance = torch.einsum("k,ktg->gt", of_value, tables.likelihood).clamp(min=-80).exp()
        size = max(1, int(_BLOCK / len(items) / max(chance.shape)))
        for start in range(0, len(self.prior), size):
            part = slice(start, start + size)
            state = State(*(each[part] for each in self._state))
            yield part, weigh_items(data, tables, state).softmax(-1) @ chance


def joint_draws(anchor: Anchor, log: Tensor, effect: float, effect_of_newcomer: float) -> np.ndarray:
    """Draw abilities of the baseline's subjects and a new subject, widened by a design effect.

    Deviations from the mean are multiplied by the square root of the design effect.

    Args:
        anchor: baseline with N subjects.
        log: log-likelihood of the new subject, shape (D, T).
        effect: design effect of the baseline.
        effect_of_newcomer: design effect for the new subject, from its number of items per image.

    Returns:
        Abilities, shape (about `DRAWS`, N + 1). The new subject is the last column.
    """
    count = max(1, DRAWS // len(log))
    baseline, drawn = anchor.baseline.repeat(count, 0), anchor.draw(log, count).reshape(-1, 1)
    return np.hstack([widen_by_design_effect(baseline, effect), widen_by_design_effect(drawn, effect_of_newcomer)])


def partial_design_effect(effect: float, clusters: np.ndarray, some: np.ndarray) -> float:
    """Return the design effect for m items per image, 1 + (m - 1) times the correlation of the full data (Kish 1965).

    Args:
        effect: design effect of all items.
        clusters: image of each item.
        some: image of each item that has a response.
    """
    counts = (np.unique(images, return_counts=True)[1] for images in (clusters, some))
    size, fewer = (
        float((count**2).sum() / count.sum()) for count in counts
    )  # mean number of items per image, weighted by items
    return 1 + (effect - 1) * (fewer - 1) / (size - 1) if size > 1 else 1.0


def _nearest(grid: Tensor, values: np.ndarray) -> Tensor:
    """Return the indices of the grid points nearest to the values. The grid is evenly spaced."""
    step = float(grid[1] - grid[0]) if len(grid) > 1 else 1.0
    place = torch.from_numpy(np.rint((values - float(grid[0])) / step).astype(int))
    return place.clamp(0, len(grid) - 1)
