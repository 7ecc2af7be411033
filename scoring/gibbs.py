"""Gibbs sampling of an item response model on a grid: every conditional distribution is a table, drawn from exactly.

Given the items the abilities are independent of each other, and the items given the abilities: a sweep is two look-ups
and two categorical draws, for all chains at once. Nothing is tuned and no proposal is rejected.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from .grid import Prior, Tables


class PosteriorDraws(NamedTuple):
    """Posterior draws, single precision.

    Attributes:
        ability: shape (chains, draws, N).
        expected: expectation of the ability given the other parameters of the draw, shape (chains, draws, N): the same
            mean with far less Monte Carlo noise.
        steepness: mean log discrimination of the items, shape (chains, draws).
        difficulty: shape (chains, kept, M), those of every `thinning(draws)`-th draw.
        discrimination: logarithm, shape (chains, kept, M).
    """

    ability: Tensor
    expected: Tensor
    steepness: Tensor
    difficulty: Tensor
    discrimination: Tensor


class State(NamedTuple):
    """Where the chains are, as places in the tables.

    Attributes:
        ability: shape (chains, N).
        where: setting of the prior of the abilities, shape (chains,).
        hard: setting of the prior of the difficulties, shape (chains,).
        steep: setting of the prior of the discriminations, shape (chains,).
    """

    ability: Tensor
    where: Tensor
    hard: Tensor
    steep: Tensor


def sample_gibbs(data: Tensor, tables: Tables, chains: int, warmup: int, draws: int, seed: int) -> PosteriorDraws:
    """Draw from the posterior, every chain from its own draw of the prior.

    Args:
        data: statistics of the responses, shape (K, N, M).
        tables: of the model.
        chains: run at once.
        warmup: sweeps of each chain that are thrown away.
        draws: sweeps of each chain that are kept.
        seed: of every random choice; no global state is touched.

    Returns:
        The draws.
    """
    generator = torch.Generator().manual_seed(seed)
    priors = (tables.ability_prior, tables.difficulty_prior, tables.discrimination_prior)
    settings = [_draw(prior.weight.repeat(chains, 1), generator) for prior in priors]
    first = priors[0].points[settings[0]][:, None].repeat(1, data.shape[1], 1)
    state = State(_draw(first, generator), *settings)
    of_item = tables.likelihood.transpose(1, 2).contiguous()  # (K, G, T)
    kept, kept_items = [], []
    for sweep in range(warmup + draws):
        item = _draw_items(data, tables, state, generator)
        log = _from_items(data, item, of_item) + priors[0].points[state.where][:, None]
        weight = _weigh(log)
        ability = _pick(weight, generator)
        places = (ability, tables.difficulty[item], tables.discrimination[item])
        state = State(ability, *(_draw(_given(*each), generator) for each in zip(priors, places, strict=True)))
        if sweep >= warmup:
            expected = weight @ tables.ability / weight.sum(-1)
            steepness = tables.discriminations[places[2]]
            kept.append((_scatter(tables.ability, ability, generator), expected, steepness.mean(1)))
            if (sweep - warmup) % thinning(draws) == 0:
                kept_items.append((tables.difficulties[places[1]], steepness))
    columns = (*zip(*kept, strict=True), *zip(*kept_items, strict=True))
    return PosteriorDraws(*(torch.stack(column, 1) for column in columns))


def thinning(draws: int) -> int:
    """Every how many draws of the abilities the items are kept.

    Args:
        draws: of each chain.

    Returns:
        At least 1; about a hundred draws of the items remain.
    """
    return max(1, draws // 100)


def _given(prior: Prior, places: Tensor) -> Tensor:
    """Log probability of each setting of a prior, given the points that were drawn from it, (chains, H)."""
    return _tally(places, prior.points.shape[1]) @ prior.points.T + prior.weight


def _tally(places: Tensor, size: int) -> Tensor:
    """How often each of `size` places occurs in each row, (rows, size)."""
    return torch.zeros(len(places), size).scatter_add_(1, places, torch.ones(places.shape))


def _draw_items(data: Tensor, tables: Tables, state: State, generator: torch.Generator) -> Tensor:
    """A setting for each item, (C, M), given abilities and priors."""
    complete = bool((data[-1] == 1).all())  # then the last statistic, whether a response is there, is a constant
    informative = tables.likelihood[: -1 if complete else None]  # (K, T, G)
    hard = tables.difficulty_prior.points[state.hard][:, tables.difficulty]
    prior = hard + tables.discrimination_prior.points[state.steep][:, tables.discrimination] + tables.log_weight
    if complete:
        prior += _tally(state.ability, len(tables.ability)) @ tables.likelihood[-1]
    by_item = data[: len(informative)].flatten(0, 1).T  # (M, K N)
    table = informative[:, state.ability.T.contiguous()].view(by_item.shape[1], -1)  # (K N, C G)
    log = (by_item @ table).view(-1, *prior.shape).add_(prior)
    return _draw(log, generator, blocks=len(tables.discriminations)).T


def _from_items(data: Tensor, item: Tensor, of_item: Tensor) -> Tensor:
    """Log-likelihood of each ability of each subject, (C, N, T), given the items' settings, (C, M)."""
    statistics, settings = of_item.shape[:2]
    if item.shape[1] < settings:
        table = of_item[:, item].transpose(0, 1).flatten(1, 2)  # (C, K M, T)
        return data.transpose(0, 1).flatten(1) @ table
    # More items than settings: first add up the responses to the items of each setting.
    chains = len(item)
    counts = torch.zeros(chains * settings, statistics * data.shape[1])
    place = item + settings * torch.arange(chains)[:, None]
    counts.index_add_(0, place.flatten(), data.flatten(0, 1).T.repeat(chains, 1))
    counts = counts.view(chains, settings, statistics, -1).permute(0, 3, 2, 1)
    return counts.flatten(2) @ of_item.flatten(0, 1)


def _scatter(grid: Tensor, place: Tensor, generator: torch.Generator) -> Tensor:
    """Values somewhere within their cells of the grid, so that no two subjects are tied."""
    return grid[place] + (grid[1] - grid[0]) * (torch.rand(place.shape, generator=generator) - 0.5)


def _draw(log: Tensor, generator: torch.Generator, blocks: int = 1) -> Tensor:
    """One place from each last row of unnormalised log probabilities, which are overwritten."""
    weight = _weigh(log)
    if blocks == 1:
        return _pick(weight, generator)
    # First a block, then a place in it: running sums of everything would take a third of a sweep.
    weight = weight.unflatten(-1, (blocks, -1))
    block = _pick(weight.sum(-1), generator)
    size = weight.shape[-1]
    inside = weight.gather(-2, block[..., None, None].expand(*block.shape, 1, size)).squeeze(-2)
    return block * size + _pick(inside, generator)


def _weigh(log: Tensor) -> Tensor:
    """Unnormalised probabilities, the largest 1, in place of their logarithms."""
    # Below -80 the exponential nears the denormal numbers, which take ten times as long and change nothing.
    return log.sub_(log.amax(-1, keepdim=True)).clamp_(min=-80).exp_()


def _pick(weight: Tensor, generator: torch.Generator) -> Tensor:
    """One place from each last row of unnormalised probabilities."""
    total = weight.cumsum(-1)
    level = torch.rand(*total.shape[:-1], 1, generator=generator) * total[..., -1:]
    return torch.searchsorted(total, level, right=True).squeeze(-1).clamp_max(total.shape[-1] - 1)
