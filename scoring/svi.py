"""Variational inference for item response models with too many responses to sample.

First, a variational distribution (the guide, with independent normal distributions) is fitted to the Pyro program on
random subsamples of its items. Then the parameters of every item are integrated out, starting from the guide. The
result is the joint posterior of the abilities and the parameters of the priors.

The items are independent given the abilities. The integral over the few parameters of each item is computed by adaptive
Gauss-Hermite quadrature (Naylor and Smith 1982). The program's values at the nodes give the gradient and the
information of the abilities (Louis 1982). Newton's method finds the mode. The inverse information at the mode includes
the uncertainty of the items. Only the abilities are approximated by a normal distribution (Laplace), which is accurate
because each ability depends on responses to many items.
"""

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
from torch.distributions import biject_to

from .irt_model import item_response, pyro_context, trace_sites
from .response_model import HALF_NORMAL, ITEM_SITES, ResponseModel

BATCH = 512  # items per step
STEPS, VISITS = 300, 60  # fewest steps, and fewest visits of every item
RUNS = 2  # optimisations, whose disagreement indicates non-convergence
RATE, DECAY = 0.1, 0.02  # initial learning rate, and its final factor
NODES = {"difficulty": 9, "log_discrimination": 7, "guessing": 4, "precision": 5}  # nodes for each parameter of an item
CELLS = 2**20  # most subjects x items x nodes evaluated together
PASSES, CLOSE = 25, 0.05  # most passes; the step, in deviations, that ends them
SHARED = ("ability_mean", "difficulty_spread", "discrimination_spread")
JITTER = 1e-4  # added to variances, so that a quadrature cannot collapse


class Guide(NamedTuple):
    """Variational distribution: independent normal distributions for all sites of the Pyro program.

    The distributions are in the unconstrained space of each site.

    Attributes:
        mean: mean of each site, by name, shape (N,), (M,) or ().
        deviation: standard deviation of each site, by name, with the shape of the mean.
    """

    mean: dict[str, Tensor]
    deviation: dict[str, Tensor]


def sample_svi(
    model: ResponseModel, values: Tensor, seen: Tensor, chains: int, draws: int, every: int, seed: int
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], float]:
    """Draw from an approximate posterior: fit a guide by stochastic gradients, then integrate out the items.

    Args:
        model: model with its priors.
        values: responses from `observe`, shape (N, M).
        seen: False for missing responses, shape (N, M).
        chains: number of chains. The chains are divided among `RUNS` optimisations with different starting points.
        draws: number of draws per chain.
        every: interval at which draws of the item parameters are stored.
        seed: random seed. The same seed gives the same draws. Global random state is not changed.

    Returns:
        Three values. First, draws of the abilities and the mean log discrimination, by name, shape (chains, draws,
        ...). Second, stored draws of the item parameters, by name, shape (chains, stored, M). Third, the longest last
        step of an optimisation, in posterior standard deviations.
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
    """Fit a guide: maximise the evidence lower bound by stochastic gradients (Hoffman et al. 2013).

    Every step uses `BATCH` items.

    Args:
        model: model with its priors.
        values: responses from `observe`, shape (N, M).
        seen: False for missing responses, shape (N, M).
        seed: random seed of the start and of every subsample. Pyro's parameter store is restored.

    Returns:
        The guide, in single precision.
    """
    subjects, items = values.shape
    batch = min(BATCH, items)
    steps = max(STEPS, math.ceil(VISITS * items / batch))

    def plates(*_: Any) -> list[Any]:
        return [
            pyro.plate("subjects", subjects, dim=-2),
            pyro.plate("items", items, subsample_size=batch if batch < items else None, dim=-1),
        ]

    with pyro_context(seed):
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
    """Return starting values of abilities and difficulties: log odds of the mean responses, with random noise.

    The noise gives every run a different starting point.
    """
    shown = torch.where(seen, values, 0.0)
    means = {
        "ability": (shown.sum(1) + 0.5) / (seen.sum(1) + 1),
        "difficulty": 1 - (shown.sum(0) + 0.5) / (seen.sum(0) + 1),
    }
    return {name: (mean.logit() + 0.1 * torch.randn(mean.shape)).float() for name, mean in means.items()}


class IntegrationProblem(NamedTuple):
    """Arguments of the Pyro program, and the role of each of its sites in the integration over the items.

    Attributes:
        model: model with its priors.
        values: responses, shape (N, M), single precision.
        seen: False for missing responses, shape (N, M).
        items: names of the sites of an item, which are integrated out.
        shared: names of the sites that all items share. The abilities and these sites form the global vector, in
            unconstrained space.
        held: values of the sites that stay fixed at the guide's estimates, by name.
    """

    model: ResponseModel
    values: Tensor
    seen: Tensor
    items: tuple[str, ...]
    shared: tuple[str, ...]
    held: dict[str, Tensor]

    def part(self, chosen: slice) -> "IntegrationProblem":
        """Return the problem restricted to some of the items.

        Args:
            chosen: range of the items.
        """
        return self._replace(values=self.values[:, chosen], seen=self.seen[:, chosen])


class Items(NamedTuple):
    """Normal distribution of the P parameters of each item, in unconstrained space.

    Attributes:
        mean: means, shape (M, P).
        covariance: covariance matrices, shape (M, P, P).
        slope: derivative of the mean with respect to the global vector (see `IntegrationProblem`) of length G, shape
            (M, P, G).
    """

    mean: Tensor
    covariance: Tensor
    slope: Tensor


class Marginal(NamedTuple):
    """Posterior of the global vector (see `IntegrationProblem`), and of the item parameters given the global vector.

    Attributes:
        mean: posterior mean, shape (G,), double precision.
        covariance: posterior covariance, shape (G, G).
        items: posterior of the item parameters.
        names: names of the item parameters.
        step: length of the last step of Newton's method, in posterior standard deviations.
    """

    mean: Tensor
    covariance: Tensor
    items: Items
    names: tuple[str, ...]
    step: float

    def draw(self, subjects: int, draws: int, every: int, seed: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Draw independently from the posterior.

        Args:
            subjects: number N of subjects.
            draws: number of draws of the abilities.
            every: interval at which draws of the item parameters are stored.
            seed: random seed of the draws.

        Returns:
            Two mappings. The first has "ability", shape (draws, N), and "steepness", the mean log discrimination, shape
            (draws,). The second has the item parameters, shape (stored, M).
        """
        generator = torch.Generator().manual_seed(seed)
        noise = torch.randn(draws, len(self.mean), generator=generator, dtype=torch.double)
        change = noise @ torch.linalg.cholesky(self.covariance).T
        items, kept = self.items, change[::every].float()
        root = torch.linalg.cholesky(items.covariance + JITTER**2 * torch.eye(len(self.names)))
        noise = torch.randn(len(kept), *items.mean.shape, generator=generator)
        where = items.mean + torch.einsum("mpg,dg->dmp", items.slope, kept) + torch.einsum("mpq,dmq->dmp", root, noise)
        steepness = torch.zeros(draws, dtype=torch.double)
        if "log_discrimination" in self.names:
            part = self.names.index("log_discrimination")
            mean, slope = items.mean[:, part].double().mean(), items.slope[:, part].double().mean(0)
            deviation = items.covariance[:, part, part].double().sum().sqrt() / len(items.mean)
            steepness = mean + change @ slope + deviation * torch.randn(draws, generator=generator, dtype=torch.double)
            steepness[::every] = where[:, :, part].double().mean(1)
        sites = {"ability": self.mean[:subjects] + change[:, :subjects], "steepness": steepness}
        return sites, {name: _constrained(name, where[:, :, part]) for part, name in enumerate(self.names)}


def integrate_items(
    model: ResponseModel, values: Tensor, seen: Tensor, mean: dict[str, Tensor], deviation: dict[str, Tensor]
) -> Marginal:
    """Compute the joint posterior of abilities, priors and items, starting from a fitted guide.

    The standard deviation of the abilities is fixed at the guide's value, because the joint mode would otherwise be at
    a standard deviation of zero.

    Args:
        model: model with its priors.
        values: responses from `observe`, shape (N, M).
        seen: False for missing responses, shape (N, M).
        mean: mean of the guide for each site of the program, in unconstrained space.
        deviation: standard deviation of the guide for each site.

    Returns:
        The posterior. The field `step` shows whether Newton's method has converged.
    """
    shared = tuple(name for name in SHARED if name in mean and (model.name, name) != ("1pl", "discrimination_spread"))
    held = {name: mean[name].double().exp() for name in mean if name.endswith("_spread") and name not in shared}
    names = tuple(name for name in ITEM_SITES if name in mean)
    problem = IntegrationProblem(model, values.float(), seen, names, shared, held)
    place = torch.cat([mean["ability"], *(mean[name] for name in shared)]).double()
    items = Items(
        torch.stack([mean[name] for name in names], 1),
        torch.diag_embed(torch.stack([deviation[name] for name in names], 1) ** 2),
        torch.zeros(values.shape[1], len(names), len(place)),
    )
    step, covariance = math.inf, torch.eye(len(place), dtype=torch.double)
    for _ in range(PASSES):
        gradient, information, items = _sweep(problem, place, items)
        of_prior, precision = _prior(problem, place)
        root = _cholesky(information + precision)
        move = torch.cholesky_solve((gradient + of_prior)[:, None], root)[:, 0]
        move /= max(1.0, float(move.abs().max()))
        covariance = torch.cholesky_inverse(root)
        # A common shift of all abilities and difficulties changes no reported quantity.
        apart = move[: len(values)] - move[: len(values)].mean()
        step = float((apart.abs() / covariance.diagonal()[: len(values)].sqrt()).max())
        place = place + move
        items = items._replace(mean=items.mean + items.slope @ move.float())
        if step < CLOSE:
            break
    return Marginal(place, covariance, items, names, step)


def _cholesky(information: Tensor) -> Tensor:
    """Return the Cholesky root of an information matrix, which is first made positive definite if necessary.

    Newton's method then always ascends.
    """
    root, failed = torch.linalg.cholesky_ex(information)
    if not failed:
        return root
    values, vectors = torch.linalg.eigh(information)
    return torch.linalg.cholesky((vectors * values.abs().clamp_min(1e-3 * values[-1])) @ vectors.T)


def _sweep(problem: IntegrationProblem, place: Tensor, items: Items) -> tuple[Tensor, Tensor, Items]:
    """Return gradient and information of the global vector, and the posterior of the items given this vector."""
    nodes, correction = _rule(problem.items)
    gradient, curvature = torch.zeros_like(place), torch.zeros_like(place)
    unknown = place.new_zeros(len(place), len(place))
    roots = torch.linalg.cholesky(items.covariance + JITTER * torch.eye(len(problem.items)))
    size, parts = max(1, CELLS // (len(problem.values) * len(nodes))), []
    for start in range(0, problem.values.shape[1], size):
        chosen = slice(start, start + size)
        where = items.mean[chosen] + torch.einsum("mpq,kq->kmp", roots[chosen], nodes)  # (K, m, P)
        log, score, second = _differentiate(problem.part(chosen), place, where)
        weight = (log + correction[:, None]).softmax(0)  # (K, m)
        expected = (weight[:, None] * score).sum(0)  # (G, m)
        gradient += expected.sum(1)
        curvature += (weight[:, None] * second).sum((0, 2))
        centred = score - expected
        spread = (centred * weight.sqrt()[:, None]).transpose(0, 1).flatten(1)  # (G, K m)
        unknown += spread @ spread.T
        mean = (weight[..., None] * where).sum(0)
        off, weighed = where - mean, weight[..., None] * (where - mean)
        parts.append((mean, torch.einsum("kmp,kmq->mpq", weighed, off), torch.einsum("kmp,kgm->mpg", weighed, centred)))
    return gradient, -torch.diag(curvature) - unknown, Items(*map(torch.cat, zip(*parts, strict=True)))


def _rule(names: tuple[str, ...]) -> tuple[Tensor, Tensor]:
    """Return a quadrature rule for P parameters: nodes, shape (K, P), and corrections, shape (K,).

    A correction is the log weight of a node minus the log density of a standard normal distribution at the node.
    """
    rules = [np.polynomial.hermite_e.hermegauss(NODES[name]) for name in names]
    nodes = np.meshgrid(*(line for line, _ in rules), indexing="ij")
    logs = np.meshgrid(*(np.log(weight) + line**2 / 2 for line, weight in rules), indexing="ij")
    tables = np.stack([each.ravel() for each in nodes], 1), np.sum(logs, axis=0).ravel()
    return torch.from_numpy(tables[0]).float(), torch.from_numpy(tables[1]).float()


def _differentiate(problem: IntegrationProblem, place: Tensor, where: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the log density of each item at each node, and two derivatives with respect to the global vector.

    The log density has shape (K, m), each derivative (K, G, m). Every response and every item has a separate copy of
    the abilities and the priors' parameters, so the derivatives of the sum over all items also give the derivatives of
    each item.
    """
    subjects, items = problem.values.shape
    vector = place.float()[:, None, None]
    ability = vector[:subjects].movedim(0, 1).expand(len(where), subjects, items).clone().requires_grad_()
    priors = [each.expand(len(where), 1, items).clone().requires_grad_() for each in vector[subjects:]]
    places = {name: where[:, None, :, part] for part, name in enumerate(problem.items)}
    nodes = _sites(problem, {"ability": ability, **dict(zip(problem.shared, priors, strict=True)), **places})
    response = nodes["response"]["fn"].log_prob(problem.values)
    log = response.sum(1) + torch.stack([_log_prior(nodes[name], each)[:, 0] for name, each in places.items()]).sum(0)
    sources = (ability, *priors)
    first = _gradient(log.sum(), sources)
    second = _gradient(torch.cat(first, 1).sum(), sources)
    return log.detach(), torch.cat(first, 1).detach(), torch.cat(second, 1).detach()


def _gradient(total: Tensor, sources: tuple[Tensor, ...]) -> list[Tensor]:
    """Return derivatives of `total` that can be differentiated again. 0 for a source that does not affect `total`."""
    parts = torch.autograd.grad(total, sources, create_graph=True, allow_unused=True)
    return [torch.zeros_like(source) if each is None else each for each, source in zip(parts, sources, strict=True)]


def _sites(problem: IntegrationProblem, unconstrained: dict[str, Tensor]) -> dict[str, Any]:
    values = problem.held | {name: _constrained(name, value) for name, value in unconstrained.items()}
    return trace_sites(item_response, values, problem.model, problem.values, problem.seen)


def _constrained(name: str, value: Tensor) -> Tensor:
    if name == "guessing":
        return value.sigmoid()
    return value.exp() if name == "precision" or name.endswith("_spread") else value


def _log_prior(node: dict[str, Any], where: Tensor) -> Tensor:
    transform = biject_to(node["fn"].support)
    value = transform(where)
    return node["fn"].log_prob(value) + transform.log_abs_det_jacobian(where, value)


def _prior(problem: IntegrationProblem, place: Tensor) -> tuple[Tensor, Tensor]:
    """Return the contribution of the priors to gradient and information of the global vector."""
    subjects = len(problem.values)
    one = problem.part(slice(1))._replace(values=problem.values[:, :1].double())
    ignored = {name: place.new_zeros(1) for name in problem.items}

    def log(vector: Tensor) -> Tensor:
        places = {"ability": vector[:subjects, None], **dict(zip(problem.shared, vector[subjects:], strict=True))}
        nodes = _sites(one, places | ignored)
        return torch.stack([_log_prior(nodes[name], each).sum() for name, each in places.items()]).sum()

    start = place.clone().requires_grad_()
    hessian: Any = torch.autograd.functional.hessian(log, place)
    return torch.autograd.grad(log(start), start)[0], -hessian
