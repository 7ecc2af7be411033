"""Fit an item response model to a matrix of responses: subjects by items."""

import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from .diagnostics import Diagnostics, diagnose
from .response_model import ITEM_SITES, Observed, ResponseModel, observe

if TYPE_CHECKING:
    from pyro.infer import MCMC

Method = Literal["auto", "fast", "svi", "nuts"]
FEW = 10  # subjects: fewer do not resolve the discrimination of an item
TOO_LARGE = 1e8  # responses x settings of an item on the grid: two to four minutes on one core, more grow in proportion
SIMULATED = 20  # subjects: with fewer it was not simulated whether variational intervals cover
_FITTING = threading.Lock()  # Pyro's messengers are the whole process's, and installed once
ITEM_DRAWS = 100  # of each chain, about: what is kept of the items


@dataclass(frozen=True)
class IRTFit:
    """Posterior of an item response model.

    Abilities are in logits: one more multiplies the odds at an item of average discrimination by e. Where the priors
    are hierarchical every draw is brought to abilities of mean 0 and discriminations of geometric mean 1: only that
    much do the responses fix.

    Attributes:
        model: that was fitted.
        ability: draws, shape (chains, draws, N).
        expected: posterior mean of the abilities, shape (N,).
        difficulty: posterior mean of each item, shape (M,); for the "intercept" curve of its intercept.
        difficulty_deviation: posterior standard deviation, shape (M,).
        discrimination: exponential of the posterior mean of the logarithm, shape (M,).
        discrimination_deviation: posterior standard deviation of the logarithm, shape (M,).
        diagnostics: of the draws.
        items: posterior draws of the program's sites that belong to items, about a hundred of each chain, with the
            abilities of the same draws: shape (D, M), and (D, N) for "ability"; on the scale of the program.
        mcmc: Pyro's `MCMC` behind the default fit, for `arviz.from_pyro` and the like; None for other fits.
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
    """The model for a matrix: 1PL below `FEW` subjects, else 2PL; a Beta response for scores that are no outcomes.

    Args:
        responses: shape (N, M), in [0, 1]; NaN is missing.
        name: "1pl", "2pl", "3pl", or "auto".

    Returns:
        The model, hierarchical.

    Raises:
        ValueError: for another name, or 3PL with scores that are no outcomes.
    """
    if name not in ("auto", "1pl", "2pl", "3pl"):
        raise ValueError(f"expected a model 1pl, 2pl, 3pl or auto, got {name!r}")
    outcomes = bool(np.isin(responses[~np.isnan(responses)], (0, 1)).all())
    if name == "3pl" and not outcomes:
        raise ValueError("expected outcomes 0 and 1 for a 3pl model, got scores between; use 2pl, or method canary")
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
    """Posterior of abilities and items.

    Args:
        responses: shape (N, M), in [0, 1], 1 for the subject; NaN is missing.
        model: with its priors.
        method: how the Pyro program `item_response` is fitted. "fast" is a Gibbs sampler on a grid, a kernel of Pyro's
            MCMC; "nuts" is the reference, many times slower; "svi" is variational inference on subsamples of the
            items, after which these are integrated out, for what is too large to sample: an approximation. "auto" is
            "svi" for outcomes that take the sampler minutes under 1PL or 2PL (60 subjects x 4000 items), else "fast",
            run again three times as long where its chains have not converged.
        chains: independent, at least 2.
        warmup: draws of each chain that are thrown away.
        draws: of each chain that are kept, at least 4.
        seed: the same seed gives the same fit.

    Returns:
        The fit with its diagnostics.

    Raises:
        ValueError: if the matrix cannot be fitted.
    """
    values = check_responses(responses)
    check_seed(seed)
    if method not in get_args(Method):
        raise ValueError(f"expected a fit auto, fast, svi or nuts, got {method!r}")
    if method == "svi" and not model.hierarchical:
        raise ValueError("expected hierarchical priors for a fit by svi, got fixed ones: the scale is off; use fast")
    if min(chains - 1, draws // 4) < 1:
        raise ValueError(f"expected at least 2 chains and 4 draws, got {chains} and {draws}")
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
    """Whether the sampler would take minutes, by sizes alone: the same responses are always fitted alike."""
    from .grid import count_settings

    simulated = model.hierarchical and subjects >= SIMULATED and model.name != "3pl" and model.response == "bernoulli"
    return simulated and subjects * items * count_settings(model, subjects, items) > TOO_LARGE


def _fit_on_grid(model: ResponseModel, data: Observed, chains: int, warmup: int, draws: int, seed: int) -> IRTFit:
    """The default: the grid sampler, run by Pyro's MCMC."""
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
    """A matrix that can be fitted, in double precision.

    Args:
        responses: shape (N, M).

    Returns:
        The same values.

    Raises:
        ValueError: if it has fewer than two subjects, no item, values outside [0, 1], a subject or an item without
            any response, or no item on which two subjects differ.
    """
    values = _numbers(responses)
    if values.ndim == 2 and len(values) == 1:
        raise ValueError("expected at least 2 subjects, got one: nothing to rank it against")
    if values.ndim != 2 or len(values) < 2 or values.shape[1] < 1:
        raise ValueError(f"expected responses of at least 2 subjects to at least 1 item, got shape {values.shape}")
    seen = ~np.isnan(values)
    if not seen.any(1).all() or not seen.any(0).all():
        empty = np.count_nonzero(~seen.any(1)), np.count_nonzero(~seen.any(0))
        raise ValueError(
            f"expected a response in every row and column, got {empty[0]} and {empty[1]} without; drop them"
        )
    if not ((values[seen] >= 0) & (values[seen] <= 1)).all():
        raise ValueError(f"expected responses in [0, 1], got {values[seen].min():g} to {values[seen].max():g}")
    if (np.nanmax(values, 0) == np.nanmin(values, 0)).all():
        raise ValueError("expected an item on which two subjects differ, got none: there is nothing to rank by")
    return values


def _numbers(responses: Any) -> np.ndarray:
    """The responses as numbers; masked ones are NaN."""
    if isinstance(responses, np.ma.MaskedArray):
        responses = np.ma.filled(responses.astype(float), np.nan)
    try:
        if np.iscomplexobj(responses):
            raise TypeError("complex numbers")
        return np.asarray(responses, dtype=float)
    except (TypeError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"expected numbers in [0, 1], NaN where a response is missing, got {reason}") from None


def check_seed(seed: int) -> None:
    """A seed that every generator takes.

    Raises:
        ValueError: if it is none.
    """
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**32:
        raise ValueError(f"expected a seed from 0 to {2**32 - 1}, got {seed!r}")


def _arrays(sites: dict[str, Any]) -> dict[str, np.ndarray]:
    """Draws of subjects and priors without the dimension that the program has for items."""
    kept = {name: value.numpy() for name, value in sites.items() if name not in ITEM_SITES}
    return {
        name: value[..., 0] if name.startswith("ability") and value.ndim == 4 else value for name, value in kept.items()
    }


def _parts(sites: dict[str, Any]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Draws of subjects and priors, and thinned ones of the items."""
    every = slice(None, None, _every(sites["ability"].shape[1]))
    items = {name: sites[name].numpy().reshape(*sites[name].shape[:2], -1) for name in ITEM_SITES if name in sites}
    steepness = (
        items["log_discrimination"].mean(2) if "log_discrimination" in items else 0 * items["difficulty"][..., 0]
    )
    return {**_arrays(sites), "steepness": steepness}, {name: value[:, every] for name, value in items.items()}


def _every(draws: int) -> int:
    """Every how many draws the items are kept."""
    return max(1, draws // ITEM_DRAWS)


def _finish(
    model: ResponseModel,
    sites: dict[str, np.ndarray],
    items: dict[str, np.ndarray],
    sampler: str,
    divergences: int = 0,
    mcmc: "MCMC | None" = None,
) -> IRTFit:
    """Bring the draws, shape (chains, draws, ...), to their scale and sum them up; items are thinned by `_every`."""
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
