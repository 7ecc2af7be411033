"""Variational inference for what is too large to sample: the Pyro program on random subsamples of its items."""

import math
from typing import Any, NamedTuple

import numpy as np
import pyro
import torch
from pyro.infer import SVI, Trace_ELBO
from pyro.infer.autoguide import AutoNormal
from pyro.infer.autoguide.initialization import init_to_value
from pyro.optim import ClippedAdam
from torch import Tensor

from .isolation import isolated
from .marginal import integrate_items
from .program import item_response
from .response_model import HALF_NORMAL, ResponseModel

BATCH = 512  # items of a step
STEPS, VISITS = 300, 60  # at least so many steps, and so many looks at every item
RUNS = 2  # optimisations: what they disagree on has not converged
RATE, DECAY = 0.1, 0.02  # the first learning rate, and what is left of it in the end


class Guide(NamedTuple):
    """A normal distribution for every site of the program, all independent, in its unconstrained space.

    Attributes:
        mean: of each site, shape (N,), (M,) or ().
        deviation: of each site, of the same shape.
    """

    mean: dict[str, Tensor]
    deviation: dict[str, Tensor]


def sample_svi(
    model: ResponseModel, values: Tensor, seen: Tensor, chains: int, draws: int, every: int, seed: int
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], float]:
    """Draws of the posterior: a guide by stochastic gradients, then the items integrated out about it.

    Args:
        model: with its priors.
        values: responses, as `observe` has them, shape (N, M).
        seen: where they are, shape (N, M).
        chains: of draws; they belong in turns to `RUNS` optimisations, each from its own start.
        draws: of each chain.
        every: every how many of them the items are drawn too.
        seed: the same seed gives the same draws; no global state is touched.

    Returns:
        Sites of subjects, shape (chains, draws, ...), of items, (chains, kept, M), and the length of the longest last
        step of an optimisation in posterior deviations.
    """
    runs = []
    for run in range(RUNS):
        guide = fit_guide(model, values, seen, seed * RUNS + run)
        runs.append(integrate_items(model, values, seen, *guide))
    parts = [runs[chain % RUNS].draw(len(values), draws, every, seed * chains + chain) for chain in range(chains)]
    sites, items = (
        {name: np.stack([part[side][name].numpy() for part in parts]) for name in parts[0][side]} for side in (0, 1)
    )
    return sites, items, max(run.step for run in runs)


def fit_guide(model: ResponseModel, values: Tensor, seen: Tensor, seed: int) -> Guide:
    """Maximise the evidence lower bound by stochastic gradients, `BATCH` items a step (Hoffman et al. 2013).

    Args:
        model: with its priors.
        values: responses, as `observe` has them, shape (N, M).
        seen: where they are, shape (N, M).
        seed: random seed of the start and of every subsample; Pyro's parameter store is left as it was.

    Returns:
        The guide, single precision.
    """
    subjects, items = values.shape
    batch = min(BATCH, items)
    steps = max(STEPS, math.ceil(VISITS * items / batch))

    def plates(*_: Any) -> list[Any]:
        return [
            pyro.plate("subjects", subjects, dim=-2),
            pyro.plate("items", items, subsample_size=batch if batch < items else None, dim=-1),
        ]

    with isolated(seed):
        start = _start(values, seen)
        spreads = {f"{name}_spread": torch.ones(()) for name in HALF_NORMAL}
        at_start = init_to_value(
            values={"ability": start["ability"][:, None], "ability_mean": torch.zeros(()), **spreads}
        )
        guide = AutoNormal(item_response, init_loc_fn=at_start, create_plates=plates)
        data = model, values.float(), seen, batch if batch < items else None
        guide(*data)
        with torch.no_grad():
            guide.locs.difficulty.copy_(-start["difficulty"] if model.curve == "intercept" else start["difficulty"])
        optimiser = ClippedAdam({"lr": RATE, "betas": (0.9, 0.99), "lrd": DECAY ** (1 / steps)})
        svi = SVI(item_response, guide, optimiser, Trace_ELBO())
        for _ in range(steps):
            svi.step(*data)
        names = guide.median()
        return Guide(
            *({name: getattr(part, name).detach().flatten() for name in names} for part in (guide.locs, guide.scales))
        )


def _start(values: Tensor, seen: Tensor) -> dict[str, Tensor]:
    """Log odds of the means of rows and columns, a little off, so that no two runs start alike."""
    shown = torch.where(seen, values, 0.0)
    means = {
        "ability": (shown.sum(1) + 0.5) / (seen.sum(1) + 1),
        "difficulty": 1 - (shown.sum(0) + 0.5) / (seen.sum(0) + 1),
    }
    return {name: (mean.logit() + 0.1 * torch.randn(mean.shape)).float() for name, mean in means.items()}
