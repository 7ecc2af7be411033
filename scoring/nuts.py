"""The reference fit: the No-U-Turn sampler on the Pyro program as it is written, nothing summed out."""

from typing import Any

import torch
from pyro import poutine
from pyro.infer import MCMC, NUTS
from pyro.infer.reparam import LocScaleReparam
from torch import Tensor

from .isolation import isolated
from .program import item_response
from .response_model import HALF_NORMAL, ResponseModel

NORMAL = ("ability", "difficulty", "log_discrimination")
SITES = (*NORMAL, "guessing", "precision", "ability_mean", *(f"{name}_spread" for name in HALF_NORMAL))


def sample_nuts(
    model: ResponseModel, values: Tensor, seen: Tensor, chains: int, warmup: int, draws: int, seed: int
) -> tuple[dict[str, Tensor], int]:
    """Draw from the posterior with Pyro's NUTS, one chain after the other.

    Args:
        model: with its priors.
        values: responses, as `observe` has them, shape (N, M).
        seen: where they are, shape (N, M).
        chains: each from a separate starting point.
        warmup: steps of each chain in which the sampler adapts.
        draws: steps of each chain that are kept.
        seed: random seed; the global generators and Pyro's parameter store are left as they were.

    Returns:
        The program's sites, each with dimensions (chains, draws) first, and the number of divergent steps.
    """
    # Subjects and items away from the spreads of their priors, or the funnel between them holds the sampler up.
    program: Any = poutine.reparam(item_response, dict.fromkeys(NORMAL, LocScaleReparam(0.0)))
    data = model, values, seen
    runs, divergences = [], 0
    for chain in range(chains):
        with isolated(seed * chains + chain):
            kernel = NUTS(program, jit_compile=True, ignore_jit_warnings=True)
            mcmc = MCMC(kernel, num_samples=draws, warmup_steps=warmup, disable_progbar=True)
            mcmc.run(*data)
            divergences += len(mcmc.diagnostics()["divergences"]["chain 0"])
            runs.append(sites_of(program, mcmc.get_samples(), data))
    return {name: torch.stack([run[name] for run in runs]) for name in runs[0]}, divergences


def sites_of(program: Any, samples: dict[str, Tensor], data: tuple[ResponseModel, Tensor, Tensor]) -> dict[str, Tensor]:
    """The sites as `item_response` names them, from samples of the reparametrised ones.

    Args:
        program: reparametrised.
        samples: of its sites, draws first.
        data: arguments of the program.

    Returns:
        The sites, draws first.
    """
    kept = []
    for draw in range(len(next(iter(samples.values())))):
        given: Any = poutine.condition(program, {name: value[draw] for name, value in samples.items()})
        nodes = poutine.trace(given).get_trace(*data).nodes
        kept.append({name: nodes[name]["value"] for name in SITES if name in nodes})
    return {name: torch.stack([one[name] for one in kept]) for name in kept[0]}
