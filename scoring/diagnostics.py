"""Convergence diagnostics and effective sample size of Markov chains (Vehtari et al. 2021)."""

from dataclasses import dataclass

import numpy as np
from scipy.stats import norm, rankdata

RHAT, ESS = 1.01, 400.0  # limits recommended in the paper
STEP = 0.1  # posterior deviations: a smaller last step changes no interval


@dataclass(frozen=True)
class Diagnostics:
    """Convergence diagnostics of a fitted item response model. Each diagnostic is the worst value over the subjects.

    Attributes:
        sampler: sampling method.
        chains: number of independent chains.
        draws: draws per chain.
        rhat: rank-normalised split R-hat. 1 indicates convergence.
        bulk_ess: effective number of draws for the middle of the distribution.
        tail_ess: effective number of draws for the 5 % and 95 % quantiles.
        divergences: number of divergent steps of NUTS. 0 for other samplers.
        seconds: duration of the fit, seconds.
        step: length of the last step of an optimisation, in posterior standard deviations. 0 for a sampler.
    """

    sampler: str
    chains: int
    draws: int
    rhat: float
    bulk_ess: float
    tail_ess: float
    divergences: int
    seconds: float
    step: float = 0.0

    @property
    def problem(self) -> str | None:
        """Why the fit cannot be trusted, in one line. None if all diagnostics are within their limits."""
        problems = []
        if not self.rhat <= RHAT:
            problems.append(f"R-hat {self.rhat:.3f} above {RHAT}")
        if not min(self.bulk_ess, self.tail_ess) >= ESS:
            problems.append(f"{min(self.bulk_ess, self.tail_ess):.1f} effective draws, fewer than {ESS:.0f}")
        if self.divergences:
            problems.append(f"{self.divergences} divergent steps")
        if not self.step <= STEP:
            problems.append(f"the last step of the optimisation was {self.step:.2g} posterior standard deviations")
        remedy = "use a different method (fast)" if self.sampler == "svi" else "run more draws"
        return f"the fit has not converged: {', '.join(problems)}; {remedy}" if problems else None


def diagnose(ability: np.ndarray, sampler: str, divergences: int, seconds: float) -> Diagnostics:
    """Compute the convergence diagnostics of posterior draws. Each diagnostic is the worst value over the subjects.

    Args:
        ability: draws of the abilities, shape (chains, draws, N), at least 4 draws.
        sampler: sampling method.
        divergences: number of divergent steps.
        seconds: duration of the fit, seconds.
    """
    each = [ability[:, :, subject] for subject in range(ability.shape[2])]
    return Diagnostics(
        sampler,
        *ability.shape[:2],
        rhat=max(rank_normalised_rhat(draws) for draws in each),
        bulk_ess=min(bulk_ess(draws) for draws in each),
        tail_ess=min(tail_ess(draws) for draws in each),
        divergences=divergences,
        seconds=seconds,
    )


def rank_normalised_rhat(draws: np.ndarray) -> float:
    """Return the rank-normalised R-hat: the larger of the split R-hats for location and for spread.

    R-hat for location is computed from the ranks of the draws. R-hat for spread is computed from the ranks of the
    distances between the draws and their median.

    Args:
        draws: draws of one quantity, shape (chains, draws).

    Returns:
        A value of about 1 or more. 1.01 is the usual limit.
    """
    folded = np.abs(draws - np.median(draws))
    return max(_rhat(_normal_scores(_split(draws))), _rhat(_normal_scores(_split(folded))))


def bulk_ess(draws: np.ndarray) -> float:
    """Return the effective number of draws for the middle of the distribution.

    Args:
        draws: draws of one quantity, shape (chains, draws).

    Returns:
        A positive number, or NaN for constant draws.
    """
    return effective_draws(_normal_scores(_split(draws)))


def tail_ess(draws: np.ndarray) -> float:
    """Return the effective number of draws for the 5 % or the 95 % quantile, whichever number is smaller.

    Args:
        draws: draws of one quantity, shape (chains, draws).

    Returns:
        A positive number, or NaN for constant draws.
    """
    levels = np.quantile(draws, (0.05, 0.95))
    return min(effective_draws(_split((draws <= level).astype(float))) for level in levels)


def effective_draws(draws: np.ndarray) -> float:
    """Return the effective number of draws for estimating the mean, by Geyer's initial monotone sequence.

    Args:
        draws: draws of one quantity, shape (chains, draws).

    Returns:
        A positive number, at most the number of draws times its log10. NaN for constant draws.
    """
    chains, length = draws.shape
    centred = draws - draws.mean(1, keepdims=True)
    spectrum = np.abs(np.fft.rfft(centred, n=2 * length, axis=1)) ** 2
    covariance = np.fft.irfft(spectrum, axis=1)[:, :length].mean(0) / length
    within = covariance[0] * length / (length - 1)
    total = covariance[0] + (draws.mean(1).var(ddof=1) if chains > 1 else 0.0)
    if total <= 0:
        return float("nan")
    correlation = 1 - (within - covariance) / total
    pairs = correlation[: length // 2 * 2].reshape(-1, 2).sum(1)
    positive = int(np.argmax(pairs < 0)) if (pairs < 0).any() else len(pairs)
    time = -1 + 2 * np.minimum.accumulate(pairs[:positive]).sum()
    return float(chains * length / max(time, 1 / np.log10(chains * length)))


def _split(draws: np.ndarray) -> np.ndarray:
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, -half:]])


def _normal_scores(draws: np.ndarray) -> np.ndarray:
    rank = rankdata(draws).reshape(draws.shape)
    return norm.ppf((rank - 0.375) / (draws.size + 0.25))


def _rhat(draws: np.ndarray) -> float:
    length = draws.shape[1]
    within = draws.var(1, ddof=1).mean()
    return float(np.sqrt((length - 1) / length + draws.mean(1).var(ddof=1) / within)) if within > 0 else float("nan")
