"""Posterior of a fitted baseline, on which new subjects are placed without fitting the baseline again."""

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
    """Posterior of a fitted baseline, from which the ability of a new subject is estimated.

    The anchor holds posterior draws of the baseline's abilities and, for each draw, the posterior of each item.

    Given the abilities and the priors, the items are independent, and each item has a posterior on the grid of the
    Gibbs sampler. The probability of a response is averaged over that posterior. Items are therefore not treated as
    known, and responses to uncertain items count less. Responses of a new subject do not change the baseline: the
    baseline's draws are not weighted by the likelihood of these responses (a cut posterior, Plummer 2015).

    Shapes use D for draws, T for grid abilities, N for subjects and M for items.

    Args:
        fit: fitted model of the baseline.
        responses: responses to which the model was fitted, shape (N, M). NaN is missing.
        draws: number D of evenly spaced posterior draws to use. None means all draws that are stored with item
            parameters.
        seed: random seed of all random draws.
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
        """Return the log-likelihood of a new subject's responses, for each baseline draw and each ability on the grid.

        Args:
            newcomer: responses of the new subject, shape (M,), in [0, 1]. NaN is missing.

        Returns:
            Log-likelihood, shape (D, T).
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
        """Return the probability that the response to an item is 1, for each baseline draw and each grid ability.

        Args:
            items: indices of the items.

        Returns:
            Probabilities, shape (items, D, T).
        """
        return torch.cat([curves for _, curves in self._curves(np.asarray(items), 1.0)], 1)

    def draw(self, log: Tensor, count: int) -> np.ndarray:
        """Draw abilities of a new subject from its posterior given each baseline draw. Sampling is stratified.

        Args:
            log: log-likelihood of the new subject's responses, shape (D, T).
            count: number of abilities drawn for each baseline draw.

        Returns:
            Abilities on the scale of the fit, shape (D, count).
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
        """Return the posterior of a new subject's ability on the grid, for each baseline draw.

        Args:
            log: log-likelihood of the new subject's responses, shape (D, T).

        Returns:
            Probabilities, shape (D, T). Each row sums to 1.
        """
        return (log + self.prior).double().softmax(1)

    def expect(self, log: Tensor) -> float:
        """Return the posterior mean of a new subject's ability, on the scale of the fit.

        Args:
            log: log-likelihood of the new subject's responses, shape (D, T).
        """
        return float((self.posterior(log).numpy() * self.ability).sum(1).mean())

    def _curves(self, items: np.ndarray, value: float) -> Iterator[tuple[slice, Tensor]]:
        """Yield probabilities or densities of a response to items, shape (items, C, T), for blocks of C draws."""
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
    """Draw the abilities of the baseline's subjects together with the ability of a new subject.

    The draws are widened: deviations from the mean are multiplied by the square root of a design effect.

    Args:
        anchor: posterior of a baseline with N subjects.
        log: log-likelihood of the new subject's responses, shape (D, T).
        effect: design effect of the baseline.
        effect_of_newcomer: design effect of the new subject (see `partial_design_effect`).

    Returns:
        Abilities, shape (about `DRAWS`, N + 1). The new subject is the last column.
    """
    count = max(1, DRAWS // len(log))
    baseline, drawn = anchor.baseline.repeat(count, 0), anchor.draw(log, count).reshape(-1, 1)
    return np.hstack([widen_by_design_effect(baseline, effect), widen_by_design_effect(drawn, effect_of_newcomer)])


def partial_design_effect(effect: float, clusters: np.ndarray, some: np.ndarray) -> float:
    """Return the design effect of a subject that has responses to only some of the items.

    For m items per image, the design effect is 1 + (m - 1) times the correlation in the full data (Kish 1965).

    Args:
        effect: design effect of all items.
        clusters: image of each item.
        some: image of each item to which the subject has a response.
    """
    counts = (np.unique(images, return_counts=True)[1] for images in (clusters, some))
    size, fewer = (
        float((count**2).sum() / count.sum()) for count in counts
    )  # mean number of items per image, weighted by items
    return 1 + (effect - 1) * (fewer - 1) / (size - 1) if size > 1 else 1.0


def _nearest(grid: Tensor, values: np.ndarray) -> Tensor:
    """Return the indices of the grid points nearest to the values. The grid must be evenly spaced."""
    step = float(grid[1] - grid[0]) if len(grid) > 1 else 1.0
    place = torch.from_numpy(np.rint((values - float(grid[0])) / step).astype(int))
    return place.clamp(0, len(grid) - 1)
