"""The item response model, written once in Pyro: the grid sampler, NUTS and variational inference all read it here."""

import math

import pyro
import pyro.distributions
import torch
from torch import Tensor

from .response_model import GUESSING, HALF_NORMAL, MEAN, OGIVE, PRECISION, TINY, ResponseModel

dist = pyro.distributions


def item_response(model: ResponseModel, values: Tensor, seen: Tensor, batch: int | None = None) -> None:
    """Priors of subjects and items, and the likelihood of the responses that were seen.

    Args:
        model: curve, response distribution, and whether the priors are hierarchical.
        values: responses in [0, 1], in (0, 1) for a Beta response; shape (N, M). Where missing, any such value.
        seen: False where a response is missing, shape (N, M).
        batch: number of items in a random subsample, scaled up to all of them; None: all.
    """
    one = values.new_ones(())
    centre, spread = 0 * one, dict.fromkeys(HALF_NORMAL, one)
    if model.hierarchical:
        centre = pyro.sample("ability_mean", dist.Normal(0 * one, MEAN))
        spread = {name: pyro.sample(f"{name}_spread", dist.HalfNormal(HALF_NORMAL[name] * one)) for name in spread}
    subjects = pyro.plate("subjects", values.shape[0], dim=-2)
    with subjects:
        ability = pyro.sample("ability", dist.Normal(centre, spread["ability"]))
    with pyro.plate("items", values.shape[1], subsample_size=batch, dim=-1) as chosen:
        difficulty = pyro.sample("difficulty", dist.Normal(0 * one, spread["difficulty"]))
        log_slope, guessing = 0 * one, 0 * one
        if model.name != "1pl":
            log_slope = pyro.sample("log_discrimination", dist.Normal(0 * one, spread["discrimination"]))
        if model.guesses:
            guessing = pyro.sample("guessing", dist.Beta(GUESSING[0] * one, GUESSING[1] * one))
        slope = (OGIVE if model.curve == "paper" else 1.0) * log_slope.exp()
        offset = difficulty if model.curve == "intercept" else -slope * difficulty
        right = (guessing + (1 - guessing) * torch.sigmoid(slope * ability + offset)).clamp(TINY, 1 - TINY)
        response = dist.Bernoulli(right, validate_args=False)  # fractions of outcomes are allowed
        if model.response == "beta":
            precision = pyro.sample("precision", dist.LogNormal(math.log(PRECISION) * one, one))
            response = dist.Beta(right * precision, (1 - right) * precision)
        with subjects:
            pyro.sample("response", response.mask(seen[:, chosen]), obs=values[:, chosen])
