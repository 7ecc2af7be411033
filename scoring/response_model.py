"""Item response models (curve, response distribution, priors), and responses in the form that a fit needs."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

Curve = Literal["difficulty", "intercept", "paper"]
Response = Literal["bernoulli", "beta"]
Model = Literal["1pl", "2pl", "3pl"]
OGIVE = 1.702  # brings the logistic curve within 0.01 of the normal ogive
GUESSING = (5.0, 17.0)  # parameters of the Beta prior
PRECISION = 10.0  # median of the log-normal prior of a Beta response
TINY = 1e-6
MEAN = 2.0  # scale of the normal prior of the mean ability
ITEM_SITES = ("difficulty", "log_discrimination", "guessing", "precision")  # of the Pyro program
HALF_NORMAL = {"ability": 2.0, "difficulty": 2.0, "discrimination": 0.5}  # scales of the priors of the spreads


@dataclass(frozen=True)
class ResponseModel:
    """Specification of an item response model: curve, distribution of a response, and priors.

    Attributes:
        name: "1pl" for items with a difficulty b, "2pl" with an additional discrimination a, and "3pl" with an
            additional guessing parameter c.
        response: distribution of a response: "bernoulli" for binary responses and fractions of them, "beta" for
            continuous scores.
        curve: formula of the probability of a positive response. "difficulty" is c + (1 - c) / (1 + exp(-a (theta -
            b))). "paper" has 1.702 a instead of a. "intercept" has a theta + b instead of a (theta - b), as in CANARY's
            published program.
        hierarchical: whether mean and spreads of the priors are estimated: theta ~ N(m, s), b ~ N(0, t), log a ~ N(0,
            u) with m ~ N(0, 2), s ~ HalfNormal(2), t ~ HalfNormal(2), u ~ HalfNormal(0.5). If False, the priors are
            fixed as in CANARY: theta ~ N(0, 1), b ~ N(0, 1), log a ~ N(0, 1). In both cases c ~ Beta(5, 17).
    """

    name: Model = "2pl"
    response: Response = "bernoulli"
    curve: Curve = "difficulty"
    hierarchical: bool = True

    @property
    def guesses(self) -> bool:
        """Whether items have a guessing parameter. False for Beta responses, even under "3pl"."""
        return self.name == "3pl" and self.response == "bernoulli"


class Observed(NamedTuple):
    """Responses as tensors, in the form that a fit needs.

    Attributes:
        values: responses, shape (N, M), double precision. 0.5 for a missing response.
        seen: False for a missing response, shape (N, M), bool.
    """

    values: Tensor
    seen: Tensor


def observe(responses: np.ndarray, response: Response, subjects: int | None = None) -> Observed:
    """Convert responses to tensors, in the form that a fit needs.

    Beta responses are moved away from 0 and 1, where the density is infinite or zero (Smithson and Verkuilen 2006).

    Args:
        responses: shape (N, M), in [0, 1]. NaN is missing.
        response: distribution of a response: "bernoulli" or "beta".
        subjects: number of subjects from which the distance to 0 and 1 is computed. None means N.
    """
    seen = ~np.isnan(responses)
    values = np.where(seen, responses, 0.5)
    if response == "beta":
        size = len(values) if subjects is None else subjects
        values = (values * (size - 1) + 0.5) / size
    return Observed(torch.from_numpy(values), torch.from_numpy(seen))


def statistics(values: Tensor, response: Response) -> Tensor:
    """Return the K statistics of each response. The log-likelihood of a response is linear in these statistics.

    Args:
        values: responses of any shape, in [0, 1], or in (0, 1) for a Beta response.
        response: distribution of a response: "bernoulli" or "beta".

    Returns:
        Statistics, shape (K, *shape of values). The last statistic is 1.
    """
    kept = (values,) if response == "bernoulli" else (values.log(), (-values).log1p())
    return torch.stack([*kept, torch.ones_like(values)])
