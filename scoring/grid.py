"""The grid that the sampler draws on, and everything that it looks up there instead of computing it."""

import math
from typing import NamedTuple

import numpy as np
import torch
from scipy.special import roots_jacobi
from torch import Tensor

from .response_model import GUESSING, HALF_NORMAL, MEAN, PRECISION, ResponseModel, Settings, coefficients, line_of


class Prior(NamedTuple):
    """Normal distributions over P points of a grid, one for each of H settings of mean and spread.

    Attributes:
        points: log probability, shape (H, P).
        weight: log prior of the settings, not normalised, shape (H,).
    """

    points: Tensor
    weight: Tensor


class Tables(NamedTuple):
    """Everything that the sampler looks up; T abilities, G item settings, B difficulties, A discriminations.

    Attributes:
        difficulty: of each item setting, as an index into B, shape (G,).
        discrimination: of each item setting, as an index into A, shape (G,).
        ability: shape (T,).
        difficulties: shape (B,); for the "intercept" curve intercepts.
        discriminations: logarithms, shape (A,).
        log_weight: prior of the last parameter of each item setting, shape (G,).
        likelihood: coefficients of the K statistics, shape (K, T, G).
        ability_prior: its settings are means and spreads.
        difficulty_prior: its settings are spreads.
        discrimination_prior: its settings are spreads.
    """

    difficulty: Tensor
    discrimination: Tensor
    ability: Tensor
    difficulties: Tensor
    discriminations: Tensor
    log_weight: Tensor
    likelihood: Tensor
    ability_prior: Prior
    difficulty_prior: Prior
    discrimination_prior: Prior


def make_tables(model: ResponseModel, subjects: int, items: int) -> Tables:
    """Lay the grid: as fine as so many subjects can resolve an item, and so many items an ability.

    Args:
        model: what to tabulate.
        subjects: that answer an item.
        items: that a subject answers.

    Returns:
        The tables, single precision.
    """
    ability, difficulties, discriminations = _axes(model, subjects, items)
    extra, weight = _guessing_or_precision(model)
    shape = (len(discriminations), len(difficulties), len(extra))
    a, b, c = (index.ravel() for index in np.indices(shape))
    steep, hard, last = (torch.from_numpy(column) for column in (np.exp(discriminations)[a], difficulties[b], extra[c]))
    settings = Settings(*line_of(model.curve, steep, hard), last)
    ranges = ((0.1, 4.0, subjects), (0.1, 4.0, items), (0.05, 1.5, items))
    spreads, hards, steeps = (_spreads(*each) if model.hierarchical else np.ones(1) for each in ranges)
    means = _line(4.0, min(0.2, 1 / math.sqrt(subjects))) if model.hierarchical else np.zeros(1)
    mean, spread = (grid.ravel() for grid in np.meshgrid(means, spreads, indexing="ij"))
    return Tables(
        difficulty=torch.from_numpy(b),
        discrimination=torch.from_numpy(a),
        ability=torch.from_numpy(ability).float(),
        difficulties=torch.from_numpy(difficulties).float(),
        discriminations=torch.from_numpy(discriminations).float(),
        log_weight=torch.from_numpy(np.log(weight)[c]).float(),
        likelihood=coefficients(model, torch.from_numpy(ability), settings).float(),
        ability_prior=_prior(ability, mean, spread, HALF_NORMAL[0]),
        difficulty_prior=_prior(difficulties, 0 * hards, hards, HALF_NORMAL[1]),
        discrimination_prior=_prior(discriminations, 0 * steeps, steeps, HALF_NORMAL[2]),
    )


def _axes(model: ResponseModel, subjects: int, items: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Abilities, difficulties and log discriminations."""
    # A continuous score tells as much as about ten outcomes.
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
    """Points from -reach to reach, 0 among them, no further apart than `step`."""
    return np.linspace(-reach, reach, 2 * math.ceil(reach / step) + 1)


def _spreads(low: float, high: float, count: int) -> np.ndarray:
    """Standard deviations, as close as `count` values can tell apart, or the chains stick."""
    return np.geomspace(low, high, 8 + math.ceil(math.log(high / low) * math.sqrt(2 * count)))


def _guessing_or_precision(model: ResponseModel) -> tuple[np.ndarray, np.ndarray]:
    """Values and prior weights of an item's last parameter: guessing, or the precision of a Beta response."""
    if model.response == "beta":
        nodes = np.linspace(-1.5, 2.5, 5)
        weight = np.exp(-(nodes**2) / 2)
        return PRECISION * np.exp(nodes), weight / weight.sum()
    if model.name != "3pl":
        return np.zeros(1), np.ones(1)
    nodes, weight = roots_jacobi(4, GUESSING[1] - 1, GUESSING[0] - 1)
    return (nodes + 1) / 2, weight / weight.sum()


def _prior(points: np.ndarray, means: np.ndarray, spreads: np.ndarray, half_normal: float) -> Prior:
    """Normal priors on a grid, each with the weight that its mean ~ N(0, 2) and spread ~ HalfNormal give it."""
    log = -0.5 * ((points - means[:, None]) / spreads[:, None]) ** 2
    log -= np.log(np.exp(log).sum(1, keepdims=True))
    # The spreads are equally far apart in their logarithm: density times spread.
    weight = np.log(spreads) - 0.5 * (spreads / half_normal) ** 2 - 0.5 * (means / MEAN) ** 2
    return Prior(torch.from_numpy(log).float(), torch.from_numpy(weight).float())
