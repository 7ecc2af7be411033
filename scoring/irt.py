"""Fit an item response model to a matrix of responses: subjects by items."""

import time
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from .diagnostics import Diagnostics, diagnose
from .gibbs import PosteriorDraws, sample_gibbs, thinning
from .grid import make_tables
from .nuts import sample_nuts
from .response_model import ResponseModel, statistics

Method = Literal["auto", "fast", "nuts"]
FEW = 10  # subjects: fewer do not resolve the discrimination of an item


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
    """

    model: ResponseModel
    ability: np.ndarray
    expected: np.ndarray
    difficulty: np.ndarray
    difficulty_deviation: np.ndarray
    discrimination: np.ndarray
    discrimination_deviation: np.ndarray
    diagnostics: Diagnostics


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
        method: "fast" draws from exact tables on a grid, "nuts" is Pyro's NUTS on the model as written, many times
            slower; "auto" is "fast", run again three times as long where its chains have not converged.
        chains: independent, at least 2.
        warmup: draws of each chain that are thrown away.
        draws: of each chain that are kept, at least 4.
        seed: the same seed gives the same fit.

    Returns:
        The fit with its diagnostics.

    Raises:
        ValueError: if the matrix cannot be fitted.
        ImportError: for "nuts" without Pyro.
    """
    values = check_responses(responses)
    if method not in ("auto", "fast", "nuts"):
        raise ValueError(f"expected a fit auto, fast or nuts, got {method!r}")
    if min(chains - 1, draws // 4) < 1:
        raise ValueError(f"expected at least 2 chains and 4 draws, got {chains} and {draws}")
    data = statistics(values, model.response)
    start = time.perf_counter()
    if method == "nuts":
        found, divergences = sample_nuts(data, model, chains, warmup, draws, seed)
        return _finish(model, found, "nuts", divergences, time.perf_counter() - start)
    tables = make_tables(model, *values.shape)
    fit = _finish(model, sample_gibbs(data, tables, chains, warmup, draws, seed), "grid", 0, 0.0)
    if method == "auto" and fit.diagnostics.problem:
        fit = _finish(model, sample_gibbs(data, tables, chains, warmup, 3 * draws, seed), "grid", 0, 0.0)
    return replace(fit, diagnostics=replace(fit.diagnostics, seconds=time.perf_counter() - start))


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
    values = np.asarray(responses, dtype=float)
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


def _finish(model: ResponseModel, found: PosteriorDraws, sampler: str, divergences: int, seconds: float) -> IRTFit:
    """Bring the draws to their scale and sum them up."""
    ability, expected, steepness, difficulty, discrimination = (np.asarray(part, dtype=float) for part in found)
    if model.hierarchical:
        centre, scale = ability.mean(2, keepdims=True), np.exp(steepness)[..., None]
        ability = expected = (ability - centre) * scale
        every = slice(None, None, thinning(ability.shape[1]))
        difficulty = (difficulty - centre[:, every]) * scale[:, every]
        discrimination = discrimination - steepness[:, every, None]
    return IRTFit(
        model,
        ability,
        expected.mean((0, 1)),
        difficulty.mean((0, 1)),
        difficulty.std((0, 1)),
        np.exp(discrimination.mean((0, 1))),
        discrimination.std((0, 1)),
        diagnose(ability, sampler, divergences, seconds),
    )
