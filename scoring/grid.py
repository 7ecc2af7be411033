"""Grid of abilities and item parameters on which the Gibbs sampler draws, with probabilities computed in advance."""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.special import roots_jacobi
from torch import Tensor

from .irt_model import item_response, trace_sites
from .response_model import HALF_NORMAL, PRECISION, ResponseModel, statistics


class Prior(NamedTuple):
    """Normal prior of a parameter at P grid points, for each of H settings of its mean and spread.

    Attributes:
        points: log probability of each grid point, shape (H, P).
        weight: unnormalised log probability of each setting, shape (H,).
        settings: mean and spread of each setting, by site of the Pyro program, each of shape (H,). Empty if mean and
            spread are fixed.
    """

    points: Tensor
    weight: Tensor
    settings: dict[str, Tensor]


class Tables(NamedTuple):
    """Tables of the Gibbs sampler. An item setting is a combination of item parameters on the grid.

    Shapes use T for abilities, G for item settings, B for difficulties and A for discriminations.

    Attributes:
        difficulty: index of each item setting's difficulty in `difficulties`, shape (G,).
        discrimination: index of each item setting's discrimination in `discriminations`, shape (G,).
        last: third parameter of each item setting, shape (G,): guessing, or the precision of a Beta response.
        ability: abilities, shape (T,).
        difficulties: difficulties, shape (B,). Intercepts if the curve is "intercept".
        discriminations: log discriminations, shape (A,).
        log_weight: log prior probability of `last`, shape (G,).
        likelihood: coefficients of the log-likelihood, from `likelihood`, shape (K, T, G).
        ability_prior: prior of the abilities, with settings of mean and spread.
        difficulty_prior: prior of the difficulties, with settings of the spread.
        discrimination_prior: prior of the log discriminations, with settings of the spread.
    """

    difficulty: Tensor
    discrimination: Tensor
    last: Tensor
    ability: Tensor
    difficulties: Tensor
    discriminations: Tensor
    log_weight: Tensor
    likelihood: Tensor
    ability_prior: Prior
    difficulty_prior: Prior
    discrimination_prior: Prior


def make_tables(model: ResponseModel, subjects: int, items: int) -> Tables:
    """Build the tables of the Gibbs sampler. More subjects and items give a finer grid.

    Args:
        model: item response model.
        subjects: number of subjects per item.
        items: number of items per subject.

    Returns:
        The tables, in single precision.
    """
    ability, difficulties, discriminations = (torch.from_numpy(axis) for axis in _axes(model, subjects, items))
    nodes, weight = _last(model)
    shape = (len(discriminations), len(difficulties), len(nodes))
    a, b, c = (torch.from_numpy(index.ravel()) for index in np.indices(shape))
    ranges = {"ability": (0.1, 4.0, subjects), "difficulty": (0.1, 4.0, items), "discrimination": (0.05, 1.5, items)}
    spreads = {name: torch.from_numpy(_spreads(*each)) for name, each in ranges.items()}
    means = torch.from_numpy(_line(4.0, min(0.2, 1 / math.sqrt(subjects))))
    mean, spread = (each.flatten() for each in torch.meshgrid(means, spreads["ability"], indexing="ij"))
    values = {"ability": ability[:, None], "difficulty": difficulties[b], "log_discrimination": discriminations[a]}
    return Tables(
        difficulty=b,
        discrimination=a,
        last=nodes[c].float(),
        ability=ability.float(),
        difficulties=difficulties.float(),
        discriminations=discriminations.float(),
        log_weight=weight[c].float(),
        likelihood=likelihood(model, {**values, "guessing": nodes[c], "precision": nodes[c]}).float(),
        ability_prior=_prior(model, "ability", ability[:, None], {"ability_mean": mean, "ability_spread": spread}),
        difficulty_prior=_prior(model, "difficulty", difficulties, {"difficulty_spread": spreads["difficulty"]}),
        discrimination_prior=_prior(
            model, "log_discrimination", discriminations, {"discrimination_spread": spreads["discrimination"]}
        ),
    )


def count_settings(model: ResponseModel, subjects: int, items: int) -> int:
    """Return the number G of item settings on the grid, to which the time of a sweep is proportional.

    Args:
        model: item response model.
        subjects: number of subjects per item.
        items: number of items per subject.
    """
    _, difficulties, discriminations = _axes(model, subjects, items)
    return len(difficulties) * len(discriminations) * len(_last(model)[0])


def likelihood(model: ResponseModel, values: dict[str, Tensor]) -> Tensor:
    """Return the coefficients of a response's log-likelihood, which is linear in K statistics of the response.

    The coefficients are computed from the log-likelihood of the Pyro program at K different responses.

    Args:
        model: item response model.
        values: values of the program's sites: abilities of shape (T, 1), item parameters of shape (G,).

    Returns:
        Coefficients, shape (K, T, G), double precision.
    """
    probes = torch.linspace(0, 1, 2) if model.response == "bernoulli" else torch.linspace(0.2, 0.8, 3)
    response = _sites(model, values)["response"]["fn"]
    log = torch.stack([response.log_prob(probe.double()) for probe in probes])
    known = statistics(probes.double(), model.response).T  # (K probes, K statistics)
    return (torch.linalg.inv(known) @ log.flatten(1)).view_as(log)


def _sites(model: ResponseModel, values: dict[str, Tensor]) -> dict[str, Any]:
    """Return all sites of the Pyro program for given values of some sites. The other sites have arbitrary values."""
    rest = {
        name: torch.ones((), dtype=torch.double) for name in ("ability_mean", *(f"{n}_spread" for n in HALF_NORMAL))
    }
    rest |= {name: torch.zeros(1, dtype=torch.double) for name in ("difficulty", "log_discrimination")}
    rest |= {"ability": torch.zeros(1, 1, dtype=torch.double)}
    rest |= {name: torch.full((1,), 0.5, dtype=torch.double) for name in ("guessing", "precision")}
    given = rest | values
    shape = len(given["ability"]), max(len(given[name]) for name in ("difficulty", "log_discrimination", "precision"))
    responses = torch.full(shape, 0.5, dtype=torch.double), torch.ones(shape, dtype=torch.bool)
    return trace_sites(item_response, given, model, *responses)


def _axes(model: ResponseModel, subjects: int, items: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    # A continuous score is as informative as about ten binary ones.
    beta = model.response == "beta"
    finer = 3.0 if beta else 1.0
    step = min(0.7, max(0.1, 2.8 / math.sqrt(subjects))) / finer
    reach, hard, steep = (4.5, 3.5, 3.0)
    if model.hierarchical:
        reach, hard, steep = (4.0, 4.0, 1.8) if beta else (6.0, 6.0, 2.4)
    coarsest = 0.6 / finer if model.hierarchical else 0.75  # no coarser than the spread of the discriminations
    ability = _line(reach, min(0.2, max(0.01, 0.8 / math.sqrt(items))) / finer)
    slopes = np.zeros(1) if model.name == "1pl" else _line(steep, min(1.3 * step, coarsest))
    return ability, _line(hard, step), slopes


def _line(reach: float, step: float) -> np.ndarray:
    """Return points from -reach to reach, including 0, at most `step` apart."""
    return np.linspace(-reach, reach, 2 * math.ceil(reach / step) + 1)


def _spreads(low: float, high: float, count: int) -> np.ndarray:
    """Return a grid of standard deviations, so fine that `count` values do not distinguish neighbouring grid points.

    On a coarser grid, the chains would mix slowly.
    """
    return np.geomspace(low, high, 8 + math.ceil(math.log(high / low) * math.sqrt(2 * count)))


def _last(model: ResponseModel) -> tuple[Tensor, Tensor]:
    """Return values and log prior weights of an item's third parameter (guessing or precision of a Beta response)."""
    sites = _sites(model, {})
    if model.response == "beta":
        prior = sites["precision"]["fn"]
        nodes = PRECISION * torch.linspace(-1.5, 2.5, 5, dtype=torch.double).exp()
        return nodes, (prior.log_prob(nodes) + nodes.log()).log_softmax(0)
    if not model.guesses:
        return torch.zeros(1, dtype=torch.double), torch.zeros(1, dtype=torch.double)
    prior = sites["guessing"]["fn"]
    first, second = (float(each.flatten()[0]) for each in (prior.concentration1, prior.concentration0))
    nodes, weight = roots_jacobi(4, second - 1, first - 1)
    return torch.from_numpy((nodes + 1) / 2), torch.from_numpy(np.log(weight / weight.sum()))


def _prior(model: ResponseModel, site: str, points: Tensor, settings: dict[str, Tensor]) -> Prior:
    """Return the prior of a site at grid points, for each setting of its mean and spread."""
    if site == "log_discrimination" and model.name == "1pl":
        return Prior(torch.zeros(1, 1), torch.zeros(1), {})
    if not model.hierarchical:
        settings = {name: torch.ones(1, dtype=torch.double) for name in settings}
    sites = _sites(model, {site: points, **{name: value[:, None, None] for name, value in settings.items()}})
    log = sites[site]["fn"].log_prob(points).reshape(len(next(iter(settings.values()))), -1)
    weight = torch.zeros(len(log), dtype=torch.double)
    for name, value in settings.items() if model.hierarchical else ():
        # The spreads are equidistant in logarithm, hence density times spread.
        weight += sites[name]["fn"].log_prob(value) + (value.log() if name.endswith("_spread") else 0.0)
    values = {name: value.float() for name, value in settings.items()} if model.hierarchical else {}
    return Prior(log.log_softmax(1).float(), weight.float(), values)
