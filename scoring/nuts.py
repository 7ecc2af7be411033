"""The reference fit: the model written out in Pyro, nothing summed out, drawn from by the No-U-Turn sampler."""

import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .gibbs import PosteriorDraws, thinning
from .response_model import GUESSING, HALF_NORMAL, MEAN, PRECISION, ResponseModel, Settings, coefficients, line_of


def sample_nuts(
    data: Tensor, model: ResponseModel, chains: int, warmup: int, draws: int, seed: int
) -> tuple[PosteriorDraws, int]:
    """Draw from the posterior with Pyro's NUTS, one chain after the other.

    Args:
        data: statistics of the responses, shape (K, N, M).
        model: with its priors.
        chains: each from its own starting point.
        warmup: steps of each chain in which the sampler adapts.
        draws: steps of each chain that are kept.
        seed: of every random choice; the global generators and Pyro's parameter store are left as they were.

    Returns:
        The draws, `expected` being `ability`, and the number of divergent steps.

    Raises:
        ImportError: without Pyro.
    """
    try:
        import pyro
        from pyro.infer import MCMC, NUTS
    except ImportError as error:
        raise ImportError("NUTS needs Pyro: pip install pyro-ppl, or davylamp[irt]") from error
    runs, divergences = [], 0
    for chain in range(chains):
        with _isolated(seed * chains + chain):
            kernel = NUTS(_item_response, jit_compile=True, ignore_jit_warnings=True)
            mcmc = MCMC(kernel, num_samples=draws, warmup_steps=warmup, disable_progbar=True)
            mcmc.run(data.double(), model)
            sites = mcmc.get_samples()
            divergences += len(mcmc.diagnostics()["divergences"]["chain 0"])
            values = [pyro.poutine.condition(_item_response, {k: v[i] for k, v in sites.items()}) for i in range(draws)]
            runs.append([value(data.double(), model)[:3] for value in values])
    ability, difficulty, discrimination = (
        torch.stack([torch.stack([draw[part] for draw in run]) for run in runs]).float() for part in range(3)
    )
    every = slice(None, None, thinning(draws))
    draws_of_items = difficulty[:, every], discrimination[:, every]
    return PosteriorDraws(ability, ability, discrimination.mean(2), *draws_of_items), divergences


def _item_response(data: Tensor, model: ResponseModel) -> tuple[Tensor, Tensor, Tensor]:
    """Priors and likelihood; returns ability, difficulty and log discrimination."""
    import pyro
    import pyro.distributions

    dist: Any = pyro.distributions
    subjects, items = data.shape[1:]
    one = torch.ones(()).to(data)
    sizes = {"ability": subjects, "difficulty": items}
    sizes |= {"mean": 1} if model.hierarchical else {}
    sizes |= {"discrimination": items} if model.name != "1pl" else {}
    sizes |= {"precision": items} if model.response == "beta" else {}
    # One site for all that is normal: NUTS handles each site on its own, at each of its steps.
    standard = pyro.sample("standard", dist.Normal(0 * one, one).expand([sum(sizes.values())]).to_event(1))
    part = dict(zip(sizes, standard.split(list(sizes.values())), strict=True))
    ability, difficulty = part["ability"], part["difficulty"]
    discrimination = part.get("discrimination", torch.zeros_like(difficulty))
    if model.hierarchical:
        scales = torch.tensor(HALF_NORMAL).to(data)
        spreads = pyro.sample("spreads", dist.HalfNormal(scales).to_event(1))
        ability = MEAN * part["mean"] + spreads[0] * ability
        difficulty, discrimination = spreads[1] * difficulty, spreads[2] * discrimination
    last = PRECISION * part["precision"].exp() if model.response == "beta" else torch.zeros_like(difficulty)
    if model.response == "bernoulli" and model.name == "3pl":
        guessing = dist.Beta(*(value * one for value in GUESSING))
        last = pyro.sample("guessing", guessing.expand([items]).to_event(1))
    settings = Settings(*line_of(model.curve, discrimination.exp(), difficulty), last)
    pyro.factor("responses", (coefficients(model, ability, settings) * data).sum())
    return ability, difficulty, discrimination


@contextmanager
def _isolated(seed: int) -> Iterator[None]:
    """Seed every generator that Pyro uses; put them and the parameter store back afterwards."""
    import pyro

    state, numbers, python = pyro.get_param_store().get_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="`torch.jit", category=FutureWarning)  # Pyro 1.9 still traces
        pyro.clear_param_store()
        pyro.set_rng_seed(seed)
        try:
            yield
        finally:
            pyro.get_param_store().set_state(state)
            np.random.set_state(numbers)  # noqa: NPY002
            random.setstate(python)
