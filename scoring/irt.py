"""Fits an item response model to a matrix of responses, with subjects as rows and items as columns."""

import threading
import time
from collections.abc import Sequence, Sized
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from .diagnostics import Diagnostics, diagnose
from .response_model import ITEM_SITES, Observed, ResponseModel, observe

if TYPE_CHECKING:
    from pyro.infer import MCMC

Method = Literal["auto", "fast", "svi", "nuts"]
FEW = 10  # fewest subjects that resolve the discrimination of an item
TOO_LARGE = 1e8  # responses x item settings on the grid: two to four minutes on one core, proportional
SIMULATED = 20  # fewest subjects in the simulations of variational coverage
_FITTING = threading.Lock()  # Pyro's messengers are global to the process
ITEM_DRAWS = 100  # approximate item draws kept per chain


@dataclass(frozen=True)
class IRTFit:
    """Posterior of an item response model that was fitted to N subjects and M items.

    Abilities are in logits: for an item of average discrimination, one more logit multiplies the odds of a positive
    response by e. With hierarchical priors, every draw is standardised to abilities of mean 0 and discriminations of
    geometric mean 1, because the responses do not determine location and scale.

    Attributes:
        model: fitted model.
        ability: draws of the abilities, shape (chains, draws, N).
        expected: posterior means of the abilities, shape (N,).
        difficulty: posterior means of the difficulties, shape (M,). If the curve is "intercept", means of the
            intercepts.
        difficulty_deviation: posterior standard deviations of the difficulties, shape (M,).
        discrimination: discriminations, shape (M,): exponential of the posterior mean of the logarithm.
        discrimination_deviation: posterior standard deviations of the log discriminations, shape (M,).
        diagnostics: convergence diagnostics of the draws.
        items: posterior draws of the item parameters, by name, shape (D, M). About a hundred draws per chain are
            stored, without standardisation. The entry "ability" has the abilities of the same draws, shape (D, N).
        mcmc: Pyro's `MCMC` object, for example for `arviz.from_pyro`. None for the methods "svi" and "nuts".
    """

    model: ResponseModel
    ability: np.ndarray
    expected: np.ndarray
    difficulty: np.ndarray
    difficulty_deviation: np.ndarray
    discrimination: np.ndarray
    discrimination_deviation: np.ndarray
    diagnostics: Diagnostics
    items: dict[str, np.ndarray] = field(default_factory=dict, repr=False)
    mcmc: "MCMC | None" = field(default=None, repr=False, compare=False)


def choose_model(responses: np.ndarray, name: str = "auto") -> ResponseModel:
    """Choose the item response model for a matrix of responses.

    Binary responses get a Bernoulli distribution, other responses a Beta distribution.

    Args:
        responses: shape (N, M), in [0, 1]. NaN is missing.
        name: "1pl", "2pl" or "3pl". "auto" selects 1PL for fewer than `FEW` subjects, and otherwise 2PL.

    Returns:
        The model, with hierarchical priors.

    Raises:
        ValueError: If the name is unknown, or if the name is "3pl" and responses are not binary.
    """
    if name not in ("auto", "1pl", "2pl", "3pl"):
        raise ValueError(f"expected the model as 1pl, 2pl, 3pl or auto, got {name!r}")
    outcomes = bool(np.isin(responses[~np.isnan(responses)], (0, 1)).all())
    if name == "3pl" and not outcomes:
        raise ValueError(
            "expected responses 0 and 1 for a 3pl model, got scores in between; use a 2pl model, or the method canary"
        )
    chosen = ("1pl" if len(responses) < FEW else "2pl") if name == "auto" else name
    return ResponseModel(chosen, "bernoulli" if outcomes else "beta")


def fit_irt(
    responses: np.ndarray,
    model: ResponseModel,
    *,
    method: Method = "auto",
    chains: int = 4,
    warmup: int = 200,
    draws: int = 1000,
    seed: int = 0,
) -> IRTFit:
    """Fit an item response model: estimate the abilities of the subjects and the parameters of the items.

    Args:
        responses: shape (N, M), in [0, 1]. 1 is in favour of the subject. NaN is missing.
        model: model with its priors.
        method: method that fits the Pyro program `item_response`. "fast" is a Gibbs sampler on a grid, a kernel of
            Pyro's MCMC. "nuts" is the reference, which is many times slower. "svi" is an approximation for data that
            are too large to sample: variational inference on subsamples of the items, then integration over the items.
            "auto" selects "svi" for binary responses under 1PL or 2PL if sampling would take minutes (from about 60
            subjects x 4000 items). Otherwise "auto" selects "fast", and triples the chain length if the chains have not
            converged.
        chains: number of independent chains, at least 2.
        warmup: number of discarded draws per chain.
        draws: number of stored draws per chain, at least 4.
        seed: random seed. The same seed gives the same fit.

    Returns:
        The fit with its diagnostics.

    Raises:
        ValueError: If the matrix cannot be fitted (see `check_responses`), or if a choice is invalid.
    """
    values = check_responses(responses)
    check_seed(seed)
    if method not in get_args(Method):
        raise ValueError(f"expected method as auto, fast, svi or nuts, got {method!r}")
    if method == "svi" and not model.hierarchical:
        raise ValueError(
            "method svi needs hierarchical priors, because fixed priors distort its scale; use method fast"
        )
    if min(chains - 1, draws // 4) < 1:
        raise ValueError(f"expected at least 2 chains and 4 draws, got {chains} chains and {draws} draws")
    data = observe(values, model.response)
    start = time.perf_counter()
    if method == "auto" and _too_large(model, *values.shape):
        method = "svi"
    with _FITTING:
        if method == "nuts":
            from .irt_model import sample_nuts

            sites, divergences = sample_nuts(model, *data, chains, warmup, draws, seed)
            fit = _finish(model, *_parts(sites), "nuts", divergences)
        elif method == "svi":
            from .svi import sample_svi

            sites, items, step = sample_svi(model, *data, chains, draws, _every(draws), seed)
            fit = _finish(model, sites, items, "svi")
            fit = replace(fit, diagnostics=replace(fit.diagnostics, step=step))
        else:
            fit = _fit_on_grid(model, data, chains, warmup, draws, seed)
            if method == "auto" and fit.diagnostics.problem:
                fit = _fit_on_grid(model, data, chains, warmup, 3 * draws, seed)
    return replace(fit, diagnostics=replace(fit.diagnostics, seconds=time.perf_counter() - start))


def _too_large(model: ResponseModel, subjects: int, items: int) -> bool:
    """Return whether sampling would take minutes. Only sizes decide this, so the choice is reproducible."""
    from .grid import count_settings

    simulated = model.hierarchical and subjects >= SIMULATED and model.name != "3pl" and model.response == "bernoulli"
    return simulated and subjects * items * count_settings(model, subjects, items) > TOO_LARGE


def _fit_on_grid(model: ResponseModel, data: Observed, chains: int, warmup: int, draws: int, seed: int) -> IRTFit:
    from .gibbs import GridGibbs, VectorizedMCMC

    every, thinned = _every(draws), []

    def keep(_: Any, params: dict[str, Any], stage: str, step: int) -> None:
        if stage.startswith("Sample") and step % every == 0:
            thinned.append({name: params[name] for name in ITEM_SITES if name in params})

    mcmc = VectorizedMCMC(GridGibbs(chains, seed), draws, warmup, hook_fn=keep)
    mcmc.run(model, *data)
    sites = mcmc.get_samples(group_by_chain=True)
    items = {name: np.stack([one[name].numpy() for one in thinned], 1) for name in thinned[0]}
    return _finish(model, _arrays(sites), items, "grid", mcmc=mcmc)


def check_responses(responses: np.ndarray) -> np.ndarray:
    """Check a matrix of responses, shape (N, M), and return the matrix in double precision.

    Raises:
        ValueError: If the matrix has fewer than two subjects, no item, or values outside [0, 1]. Also if a subject or
            an item has no response, or if no two subjects differ on any item.
    """
    values = _numbers(responses)
    if values.ndim == 2 and len(values) == 1:
        raise ValueError("expected at least 2 subjects to rank, got one")
    if values.ndim != 2 or len(values) < 2 or values.shape[1] < 1:
        raise ValueError(f"expected responses of at least 2 subjects to at least 1 item, got shape {values.shape}")
    seen = ~np.isnan(values)
    if not seen.any(1).all() or not seen.any(0).all():
        empty = np.count_nonzero(~seen.any(1)), np.count_nonzero(~seen.any(0))
        raise ValueError(f"{empty[0]} rows and {empty[1]} columns have no response; remove them")
    if not ((values[seen] >= 0) & (values[seen] <= 1)).all():
        raise ValueError(f"expected responses in [0, 1], got {values[seen].min():g} to {values[seen].max():g}")
    if (np.nanmax(values, 0) == np.nanmin(values, 0)).all():
        raise ValueError("the subjects cannot be ranked, because they do not differ on any item")
    return values


def _numbers(responses: Any) -> np.ndarray:
    """Convert the responses to numbers. Masked values become NaN."""
    if isinstance(responses, np.ma.MaskedArray):
        responses = np.ma.filled(responses.astype(float), np.nan)
    try:
        if np.iscomplexobj(responses):
            raise TypeError("complex numbers")
        return np.asarray(responses, dtype=float)
    except (TypeError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"expected numbers in [0, 1], and NaN for a missing response, got {reason}") from None


def check_seed(seed: int) -> None:
    """Raise ValueError unless a seed is valid for every random generator."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**32:
        raise ValueError(f"expected a seed from 0 to {2**32 - 1}, got {seed!r}")


def check_names(subjects: Sequence[str], images: Sized, shape: tuple[int, ...]) -> None:
    """Raise ValueError unless each subject has a name of its own and each item has an image.

    Args:
        subjects: names of the subjects.
        images: image of each item.
        shape: shape of the responses, (subjects, items).
    """
    if len(subjects) != shape[0]:
        raise ValueError(f"expected a name for each of {shape[0]} subjects, got {len(subjects)} names")
    if twice := [name for place, name in enumerate(subjects) if name in subjects[:place]]:
        raise ValueError(f"expected different names of subjects, got {twice[0]!r} twice")
    if len(images) != shape[1]:
        raise ValueError(f"expected an image for each of {shape[1]} items, got {len(images)} images")


def _arrays(sites: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return draws of the abilities and of the priors' parameters.

    The program's item dimension of size 1 is removed.
    """
    kept = {name: value.numpy() for name, value in sites.items() if name not in ITEM_SITES}
    return {
        name: value[..., 0] if name.startswith("ability") and value.ndim == 4 else value for name, value in kept.items()
    }


def _parts(sites: dict[str, Any]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return draws of abilities and priors' parameters, and thinned draws of the item parameters."""
    every = slice(None, None, _every(sites["ability"].shape[1]))
    items = {name: sites[name].numpy().reshape(*sites[name].shape[:2], -1) for name in ITEM_SITES if name in sites}
    steepness = (
        items["log_discrimination"].mean(2) if "log_discrimination" in items else 0 * items["difficulty"][..., 0]
    )
    return {**_arrays(sites), "steepness": steepness}, {name: value[:, every] for name, value in items.items()}


def _every(draws: int) -> int:
    return max(1, draws // ITEM_DRAWS)


def _finish(
    model: ResponseModel,
    sites: dict[str, np.ndarray],
    items: dict[str, np.ndarray],
    sampler: str,
    divergences: int = 0,
    mcmc: "MCMC | None" = None,
) -> IRTFit:
    """Standardise and summarise draws, shape (chains, draws, ...). `items` has only every `_every`-th draw."""
    raw, every = sites["ability"].astype(float), slice(None, None, _every(sites["ability"].shape[1]))
    difficulty = items["difficulty"].astype(float)
    log_slope = items.get("log_discrimination", np.zeros_like(difficulty)).astype(float)
    ability, expected = raw, sites.get("ability_expected", raw).astype(float)
    if model.hierarchical:
        centre, steepness = raw.mean(2, keepdims=True), sites["steepness"].astype(float)[..., None]
        ability, expected = ((part - centre) * np.exp(steepness) for part in (raw, expected))
        difficulty = (difficulty - centre[:, every]) * np.exp(steepness[:, every])
        log_slope = log_slope - steepness[:, every]
    kept = {"ability": raw[:, every], **items}
    return IRTFit(
        model,
        ability,
        expected.mean((0, 1)),
        difficulty.mean((0, 1)),
        difficulty.std((0, 1)),
        np.exp(log_slope.mean((0, 1))),
        log_slope.std((0, 1)),
        diagnose(ability, sampler, divergences, 0.0),
        {name: value.reshape(-1, value.shape[-1]) for name, value in kept.items()},
        mcmc,
    )
