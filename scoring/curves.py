"""Item response models on a grid: what the sampler looks up instead of computing.

Ability and item parameters take the values of a grid that is finer than what the data can resolve, so every probability
that a fit needs is computed once. The likelihood of an item is then linear in a few statistics of its responses.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from scipy.special import roots_jacobi
from torch import Tensor

Curve = Literal["difficulty", "intercept", "paper"]
Response = Literal["bernoulli", "beta"]
Model = Literal["1pl", "2pl", "3pl"]
OGIVE = 1.702  # brings the logistic curve within 0.01 of the normal ogive
GUESSING = (5.0, 17.0)  # of the Beta prior
PRECISION = 10.0  # median of the log-normal prior of a Beta response
RANGE = 6.0  # abilities and difficulties lie within it
TINY = 1e-6
MEAN = 2.0  # scale of the normal prior of the mean ability
HALF_NORMAL = (2.0, 2.0, 0.5)  # scales of the priors of the spreads: ability, difficulty, log discrimination


@dataclass(frozen=True)
class ResponseModel:
    """An item response model with its priors.

    Attributes:
        name: parameters of an item: difficulty (1pl), discrimination (2pl), guessing (3pl).
        response: "bernoulli" for outcomes, fractions of outcomes included; "beta" for continuous scores.
        curve: "difficulty" is c + (1 - c) / (1 + exp(-a (theta - b))); "paper" has 1.702 a in place of a; "intercept"
            has a theta + b, as CANARY's published program.
        hierarchical: theta ~ N(m, s), b ~ N(0, t), log a ~ N(0, u) with m ~ N(0, 2), s ~ HalfNormal(2),
            t ~ HalfNormal(2), u ~ HalfNormal(0.5), so that the items fix the scale; else, as CANARY, theta ~ N(0, 1),
            b ~ N(0, 1), log a ~ N(0, 1). In both c ~ Beta(5, 17).
    """

    name: Model = "2pl"
    response: Response = "bernoulli"
    curve: Curve = "difficulty"
    hierarchical: bool = True


class Prior(NamedTuple):
    """Normal distributions over P points of a grid, one for each of H settings of mean and spread.

    Attributes:
        points: log probability, shape (H, P).
        weight: log prior of the settings, not normalised, shape (H,).
    """

    points: Tensor
    weight: Tensor


class Settings(NamedTuple):
    """Item parameters, each of shape (G,).

    Attributes:
        slope: of the curve's argument in the ability.
        offset: of the curve's argument.
        last: guessing; for a Beta response its precision.
    """

    slope: Tensor
    offset: Tensor
    last: Tensor


class Tables(NamedTuple):
    """Everything that the sampler looks up; T abilities, G item settings, B difficulties, A discriminations.

    Attributes:
        settings: of the items.
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

    settings: Settings
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
    reach = RANGE if model.hierarchical else 4.5
    step = min(0.7, max(0.1, (2.0 if model.hierarchical else 2.8) / math.sqrt(subjects)))
    ability = _line(reach, min(0.2, max(0.02, 1.5 / math.sqrt(items))))
    difficulties = _line(reach if model.hierarchical else 3.5, step)
    discriminations = np.zeros(1) if model.name == "1pl" else _line(2.4 if model.hierarchical else 3.0, 1.3 * step)
    extra, weight = _guessing_or_precision(model)
    shape = (len(discriminations), len(difficulties), len(extra))
    a, b, c = (index.ravel() for index in np.indices(shape))
    steep, hard, last = (torch.from_numpy(column) for column in (np.exp(discriminations)[a], difficulties[b], extra[c]))
    settings = Settings(*line_of(model.curve, steep, hard), last)
    likelihood = coefficients(model, torch.from_numpy(ability), settings)
    spreads = np.geomspace(0.1, 4, 16) if model.hierarchical else np.ones(1)
    means = np.linspace(-4, 4, 41) if model.hierarchical else np.zeros(1)
    slopes = np.geomspace(0.05, 1.5, 12) if model.hierarchical else np.ones(1)
    mean, spread = (grid.ravel() for grid in np.meshgrid(means, spreads, indexing="ij"))
    points = [
        torch.from_numpy(column).float() for column in (ability, difficulties, discriminations, np.log(weight)[c])
    ]
    return Tables(
        settings,
        torch.from_numpy(b),
        torch.from_numpy(a),
        points[0],
        points[1],
        points[2],
        points[3],
        likelihood.float(),
        _prior(ability, mean, spread, HALF_NORMAL[0]),
        _prior(difficulties, 0 * spreads, spreads, HALF_NORMAL[1]),
        _prior(discriminations, 0 * slopes, slopes, HALF_NORMAL[2]),
    )


def coefficients(model: ResponseModel, ability: Tensor, settings: Settings) -> Tensor:
    """What multiplies the statistics of an item in its log-likelihood.

    Args:
        model: an item response model.
        ability: any shape.
        settings: of G items.

    Returns:
        Shape (K, *shape of ability, G).
    """
    slope, offset, last = (column.to(ability.dtype) for column in settings)
    guess = last if model.name == "3pl" and model.response == "bernoulli" else torch.zeros_like(last)
    probability = guess + (1 - guess) * torch.sigmoid(ability[..., None] * slope + offset)
    probability = probability.clamp(TINY, 1 - TINY)
    if model.response == "bernoulli":
        wrong = (-probability).log1p()
        return torch.stack([probability.log() - wrong, wrong])
    first, second = probability * last, (1 - probability) * last
    constant = torch.lgamma(first + second) - torch.lgamma(first) - torch.lgamma(second)
    return torch.stack([first - 1, second - 1, constant])


def line_of(curve: Curve, discrimination: Tensor, difficulty: Tensor) -> tuple[Tensor, Tensor]:
    """Slope and offset, in the ability, of the curve's argument.

    Args:
        curve: which one.
        discrimination: positive.
        difficulty: for the "intercept" curve the intercept.

    Returns:
        Slope and offset, of the shape of the arguments.
    """
    if curve == "intercept":
        return discrimination, difficulty
    scale = OGIVE if curve == "paper" else 1.0
    return scale * discrimination, -scale * discrimination * difficulty


def statistics(responses: np.ndarray, response: Response) -> Tensor:
    """What the log-likelihood of a matrix of responses is linear in.

    Args:
        responses: shape (N, M), in [0, 1]; NaN is missing.
        response: distribution of a cell.

    Returns:
        Shape (K, N, M), zero where a response is missing.
    """
    seen = ~np.isnan(responses)
    value = np.where(seen, responses, 0.5)
    if response == "bernoulli":
        kept = (value, np.ones_like(value))
    else:  # off the ends, where the density is not finite: Smithson and Verkuilen 2006
        inside = (value * (len(value) - 1) + 0.5) / len(value)
        kept = (np.log(inside), np.log1p(-inside), np.ones_like(value))
    return torch.from_numpy(np.stack(kept) * seen).float()


def _line(reach: float, step: float) -> np.ndarray:
    """Points from -reach to reach, 0 among them, no further apart than `step`."""
    return np.linspace(-reach, reach, 2 * math.ceil(reach / step) + 1)


def _guessing_or_precision(model: ResponseModel) -> tuple[np.ndarray, np.ndarray]:
    """Values and prior weights of an item's last parameter: guessing, or the precision of a Beta response."""
    if model.response == "beta":
        nodes = np.linspace(-2, 2.5, 7)
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
