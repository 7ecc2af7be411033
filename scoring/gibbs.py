"""Gibbs sampling of an item response model on a grid, as a kernel of Pyro's MCMC.

The abilities are independent given the items, and the items are independent given the abilities. Every conditional
distribution is therefore a table over grid points, which is computed from the Pyro program and sampled exactly. A sweep
consists of two table look-ups and two categorical draws, for all chains in parallel. No step needs tuning or is
rejected.
"""

import logging
from typing import Any, NamedTuple

import torch
from pyro.infer import MCMC
from pyro.infer.mcmc.mcmc_kernel import MCMCKernel
from torch import Tensor

from .grid import Prior, Tables, make_tables
from .irt_model import item_response
from .response_model import ITEM_SITES, statistics

SAVED = 20_000  # items over all chains, above which Pyro discards their draws


class State(NamedTuple):
    """State of C chains of the Gibbs sampler. Values are stored as indices into `Tables`.

    Attributes:
        ability: index of each subject's ability on the grid, shape (C, N).
        item: index of each item's parameters among the item settings, shape (C, M).
        where: index of the mean and spread of the abilities' prior, shape (C,).
        hard: index of the spread of the difficulties' prior, shape (C,).
        steep: index of the spread of the discriminations' prior, shape (C,).
    """

    ability: Tensor
    item: Tensor
    where: Tensor
    hard: Tensor
    steep: Tensor


class GridGibbs(MCMCKernel):
    """Pyro MCMC kernel that samples the posterior of `item_response` on a grid. Run the kernel with `VectorizedMCMC`.

    A sample has the sites of the program, with the chains as first dimension, and two further quantities:

    - "ability_expected", shape (chains, N, 1), is the conditional mean of the abilities given all other sites of the
      draw. Its mean over the draws equals the mean of the abilities, with far less Monte Carlo noise.
    - "steepness", shape (chains,), is the mean log discrimination.

    Args:
        chains: number of chains, which advance together. Each chain starts from a separate draw from the prior.
        seed: random seed. Global random state is not changed.
    """

    model = staticmethod(item_response)

    def __init__(self, chains: int, seed: int):
        self.chains = chains
        self._generator = torch.Generator().manual_seed(seed)

    def setup(self, warmup_steps: int, *args: Any, **kwargs: Any) -> None:  # noqa: ARG002 - the interface's
        """Build the tables of the sampler, and draw the first state of the chains. Called by Pyro.

        Args:
            warmup_steps: ignored, because the sampler has no adaptation.
            args: positional arguments of `item_response`: model, values and seen.
            kwargs: not used.
        """
        self._model, values, seen = args
        data = statistics(values, self._model.response)
        self._data = torch.where(seen, data, 0.0).float()  # (K, N, M)
        self._tables = make_tables(self._model, *values.shape)
        self._of_item = self._tables.likelihood.transpose(1, 2).contiguous()  # (K, G, T)
        self._state = self._first(values.shape[1])
        if self.chains * values.shape[1] > SAVED:
            self.save_params = [name for name in sorted(self.initial_params) if name not in ITEM_SITES]

    @property
    def initial_params(self) -> dict[str, Tensor]:
        """Value of every site of the program in the first state of the chains."""
        return self._values(self._state, self._tables.ability[self._state.ability])

    def diagnostics(self) -> dict[str, Any]:
        """Return diagnostics in the form that other Pyro kernels use. The list of divergent steps is always empty."""
        return {"divergences": []}

    def sample(self, params: dict[str, Tensor]) -> dict[str, Tensor]:  # noqa: ARG002 - the state holds their places
        """Run one sweep: draw the items, then the abilities, then the settings of the priors, each given all others.

        Args:
            params: values of the previous sweep. Ignored, because the kernel stores its state.

        Returns:
            Value of each site, with the chains as first dimension.
        """
        tables, generator = self._tables, self._generator
        priors = _priors(tables)
        log = weigh_items(self._data, tables, self._state)
        item = _draw(log, generator, blocks=len(tables.discriminations)).T
        log = _from_items(self._data, item, self._of_item) + priors[0].points[self._state.where][:, None]
        weight = _weigh(log)
        ability = _pick(weight, generator)
        places = (ability, tables.difficulty[item], tables.discrimination[item])
        self._state = State(ability, item, *draw_settings(tables, places, generator))
        return self._values(self._state, weight @ tables.ability / weight.sum(-1))

    def _first(self, items: int) -> State:
        """Draw the first state: the settings of the priors, and abilities from their prior.

        Items need no initial values, because every sweep begins with the items.
        """
        priors = _priors(self._tables)
        settings = [_draw(prior.weight.repeat(self.chains, 1), self._generator) for prior in priors]
        first = priors[0].points[settings[0]][:, None].repeat(1, self._data.shape[1], 1)
        nowhere = torch.zeros(self.chains, items, dtype=torch.long)
        return State(_draw(first, self._generator), nowhere, *settings)

    def _values(self, state: State, expected: Tensor) -> dict[str, Tensor]:
        tables = self._tables
        log_slope = tables.discriminations[tables.discrimination[state.item]]
        sites = {
            "ability": _scatter(tables.ability, state.ability, self._generator)[..., None],
            "ability_expected": expected[..., None],
            "difficulty": tables.difficulties[tables.difficulty[state.item]],
            "steepness": log_slope.mean(1),
        }
        if self._model.name != "1pl":
            sites["log_discrimination"] = log_slope
        if self._model.response == "beta" or self._model.guesses:
            sites["guessing" if self._model.guesses else "precision"] = tables.last[state.item]
        for prior, place in zip(_priors(tables), (state.where, state.hard, state.steep), strict=True):
            sites |= {name: values[place] for name, values in prior.settings.items()}
        return sites


class VectorizedMCMC(MCMC):
    """Variant of `pyro.infer.MCMC` for a kernel that advances all chains together.

    The samples are stored in the same form as those of chains that ran separately.

    Args:
        kernel: kernel whose sites have the chains as first dimension.
        num_samples: number of stored sweeps per chain.
        warmup_steps: number of discarded sweeps per chain.
        options: further options of `pyro.infer.MCMC`.
    """

    def __init__(self, kernel: GridGibbs, num_samples: int, warmup_steps: int, **options: Any):
        super().__init__(kernel, num_samples, warmup_steps, disable_progbar=True, transforms={}, **options)

    def run(self, *args: Any, **kwargs: Any) -> None:
        """Run the sampler.

        Args:
            args: arguments of the kernel's program.
            kwargs: keyword arguments of the kernel's program.
        """
        # Pyro logs diagnostics of every sweep to a disabled progress bar, which takes longer than a sweep.
        logger = logging.getLogger("pyro.infer.mcmc")
        before, logger.disabled = logger.disabled, True
        try:
            with torch.inference_mode():
                super().run(*args, **kwargs)
        finally:
            logger.disabled = before
        samples: Any = self._samples
        self._samples = {name: value[0].transpose(0, 1) for name, value in samples.items()}
        self.num_chains = self.kernel.chains
        self._diagnostics *= self.num_chains


def _priors(tables: Tables) -> tuple[Prior, Prior, Prior]:
    return tables.ability_prior, tables.difficulty_prior, tables.discrimination_prior


def draw_settings(
    tables: Tables, places: tuple[Tensor, Tensor, Tensor], generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Draw the means and spreads of the priors, given abilities, difficulties and discriminations of C chains.

    Args:
        tables: tables of the model.
        places: grid indices of the abilities, shape (C, N), of the difficulties, shape (C, M), and of the
            discriminations, shape (C, M).
        generator: random generator.

    Returns:
        Indices of the settings of the priors of abilities, difficulties and discriminations, each of shape (C,).
    """
    first, second, third = (_draw(_given(*each), generator) for each in zip(_priors(tables), places, strict=True))
    return first, second, third


def _given(prior: Prior, places: Tensor) -> Tensor:
    """Return the log probability of each setting of a prior, given values drawn from the prior, shape (chains, H)."""
    return _tally(places, prior.points.shape[1]) @ prior.points.T + prior.weight


def _tally(places: Tensor, size: int) -> Tensor:
    """Count how often each of `size` indices occurs in each row, shape (rows, size)."""
    return torch.zeros(len(places), size).scatter_add_(1, places, torch.ones(places.shape))


def weigh_items(data: Tensor, tables: Tables, state: State) -> Tensor:
    """Return the unnormalised log posterior of each item's parameters on the grid, given abilities and priors.

    Args:
        data: K statistics of each response, from `statistics`, shape (K, N, M). 0 for a missing response.
        tables: tables of the model.
        state: state of C chains. The field `item` is ignored.

    Returns:
        Log weights for M items, C chains and G item settings, shape (M, C, G).
    """
    complete = bool((data[-1] == 1).all())  # then the last statistic, the presence of a response, is constant
    informative = tables.likelihood[: -1 if complete else None]  # (K, T, G)
    hard = tables.difficulty_prior.points[state.hard][:, tables.difficulty]
    prior = hard + tables.discrimination_prior.points[state.steep][:, tables.discrimination] + tables.log_weight
    if complete:
        prior += _tally(state.ability, len(tables.ability)) @ tables.likelihood[-1]
    by_item = data[: len(informative)].flatten(0, 1).T  # (M, K N)
    table = informative[:, state.ability.T.contiguous()].view(by_item.shape[1], -1)  # (K N, C G)
    return (by_item @ table).view(-1, *prior.shape).add_(prior)


def _from_items(data: Tensor, item: Tensor, of_item: Tensor) -> Tensor:
    """Return the log-likelihood of each grid ability of each subject, shape (C, N, T), given the item settings."""
    statistics, settings = of_item.shape[:2]
    if item.shape[1] < settings:
        table = of_item[:, item].transpose(0, 1).flatten(1, 2)  # (C, K M, T)
        return data.transpose(0, 1).flatten(1) @ table
    # With more items than settings, first sum the responses to the items of each setting.
    chains = len(item)
    counts = torch.zeros(chains * settings, statistics * data.shape[1])
    place = item + settings * torch.arange(chains)[:, None]
    counts.index_add_(0, place.flatten(), data.flatten(0, 1).T.repeat(chains, 1))
    counts = counts.view(chains, settings, statistics, -1).permute(0, 3, 2, 1)
    return counts.flatten(2) @ of_item.flatten(0, 1)


def _scatter(grid: Tensor, place: Tensor, generator: torch.Generator) -> Tensor:
    """Replace grid points by random values within their grid cells, so that no two subjects are tied."""
    return grid[place] + (grid[1] - grid[0]) * (torch.rand(place.shape, generator=generator) - 0.5)


def _draw(log: Tensor, generator: torch.Generator, blocks: int = 1) -> Tensor:
    """Draw an index along the last dimension from unnormalised log probabilities. The tensor is overwritten."""
    weight = _weigh(log)
    if blocks == 1:
        return _pick(weight, generator)
    # First a block, then a position in it: cumulative sums of everything would take a third of a sweep.
    weight = weight.unflatten(-1, (blocks, -1))
    block = _pick(weight.sum(-1), generator)
    size = weight.shape[-1]
    inside = weight.gather(-2, block[..., None, None].expand(*block.shape, 1, size)).squeeze(-2)
    return block * size + _pick(inside, generator)


def _weigh(log: Tensor) -> Tensor:
    """Convert log probabilities to unnormalised probabilities in place.

    The largest along the last dimension becomes 1.
    """
    # Below -80 the exponential nears denormal numbers, which are ten times slower and irrelevant.
    return log.sub_(log.amax(-1, keepdim=True)).clamp_(min=-80).exp_()


def _pick(weight: Tensor, generator: torch.Generator) -> Tensor:
    """Draw an index along the last dimension from unnormalised probabilities."""
    total = weight.cumsum(-1)
    level = torch.rand(*total.shape[:-1], 1, generator=generator) * total[..., -1:]
    return torch.searchsorted(total, level, right=True).squeeze(-1).clamp_max(total.shape[-1] - 1)
