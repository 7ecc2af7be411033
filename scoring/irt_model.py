"""Item response model as a Pyro program, and its reference fit by the No-U-Turn sampler.

The grid sampler, NUTS and variational inference all use this program.
"""

import math
import random
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyro
import pyro.distributions
import torch
from pyro import poutine, validation_enabled
from pyro.infer import MCMC, NUTS
from pyro.infer.reparam import LocScaleReparam
from torch import Tensor

from .response_model import GUESSING, HALF_NORMAL, MEAN, OGIVE, PRECISION, TINY, ResponseModel

dist = pyro.distributions
_NORMAL = ("ability", "difficulty", "log_discrimination")
_SITES = (*_NORMAL, "guessing", "precision", "ability_mean", *(f"{name}_spread" for name in HALF_NORMAL))


def item_response(model: ResponseModel, values: Tensor, seen: Tensor, batch: int | None = None) -> None:
    """Pyro program of the model: sample abilities and item parameters from the priors, and observe the responses.

    Args:
        model: curve, response distribution, and whether the priors are hierarchical.
        values: responses in [0, 1], or in (0, 1) for a Beta response, shape (N, M). A missing response may have any
            value in this range.
        seen: False for missing responses, shape (N, M).
        batch: number of items in a random subsample. The likelihood of the subsample is scaled up to all items. None
            means that all items are used.
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


def trace_sites(program: Any, given: Mapping[str, Tensor], *data: Any) -> dict[str, Any]:
    """Run a Pyro program once with fixed values of some sites, and return all sites of the run.

    Args:
        program: `item_response`, or a program derived from `item_response`.
        given: fixed values, by site.
        data: arguments of the program.

    Returns:
        The nodes of Pyro's trace, by site.
    """
    conditioned: Any = poutine.condition(program, data=dict(given))
    with validation_enabled(is_validate=False):
        return poutine.trace(conditioned).get_trace(*data).nodes


@contextmanager
def pyro_context(seed: int) -> Iterator[None]:
    """Seed every random generator that Pyro uses. On exit, the generators and Pyro's parameter store are restored.

    Args:
        seed: random seed for Python, NumPy and torch.
    """
    state, numbers, python = pyro.get_param_store().get_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="`torch.jit", category=FutureWarning)  # Pyro 1.9 still traces
        pyro.clear_param_store()
        pyro.set_rng_seed(seed)
        try:
            yield
        finally:
            pyro.clear_param_store()
            pyro.get_param_store().set_state(state)
            np.random.set_state(numbers)  # noqa: NPY002
            random.setstate(python)


def sample_nuts(
    model: ResponseModel, values: Tensor, seen: Tensor, chains: int, warmup: int, draws: int, seed: int
) -> tuple[dict[str, Tensor], int]:
    """Sample the posterior with Pyro's NUTS, one chain after the other.

    Args:
        model: model with its priors.
        values: responses from `observe`, shape (N, M).
        seen: False for missing responses, shape (N, M).
        chains: number of chains, each with a different starting point.
        warmup: number of adaptation steps per chain.
        draws: number of stored steps per chain.
        seed: random seed. Global generators and Pyro's parameter store are restored.

    Returns:
        Values of the program's sites, with leading dimensions (chains, draws), and the number of divergent steps.
    """
    # Decentre subjects and items from their priors' spreads, because the funnel between them slows the sampler.
    program: Any = poutine.reparam(item_response, dict.fromkeys(_NORMAL, LocScaleReparam(0.0)))
    data = model, values, seen
    runs, divergences = [], 0
    for chain in range(chains):
        with pyro_context(seed * chains + chain):
            kernel = NUTS(program, jit_compile=True, ignore_jit_warnings=True)
            mcmc = MCMC(kernel, num_samples=draws, warmup_steps=warmup, disable_progbar=True)
            mcmc.run(*data)
            divergences += len(mcmc.diagnostics()["divergences"]["chain 0"])
            runs.append(_original_sites(program, mcmc.get_samples(), data))
    return {name: torch.stack([run[name] for run in runs]) for name in runs[0]}, divergences


def _original_sites(program: Any, samples: dict[str, Tensor], data: tuple[Any, ...]) -> dict[str, Tensor]:
    """Convert samples of a reparametrised program to the sites of `item_response`, with draws as first dimension."""
    kept = []
    for draw in range(len(next(iter(samples.values())))):
        nodes = trace_sites(program, {name: value[draw] for name, value in samples.items()}, *data)
        kept.append({name: nodes[name]["value"] for name in _SITES if name in nodes})
    return {name: torch.stack([one[name] for one in kept]) for name in kept[0]}
