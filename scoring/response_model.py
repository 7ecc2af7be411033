"""Item response models: curves, priors, and the log-likelihood as coefficients times statistics of the responses."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

Curve = Literal["difficulty", "intercept", "paper"]
Response = Literal["bernoulli", "beta"]
Model = Literal["1pl", "2pl", "3pl"]
OGIVE = 1.702  # brings the logistic curve within 0.01 of the normal ogive
GUESSING = (5.0, 17.0)  # of the Beta prior
PRECISION = 10.0  # median of the log-normal prior of a Beta response
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
