"""Compares the fits of a ranking: the grid sampler, SVI, and Pyro's NUTS on the original model.

1PL, 2PL and 3PL have hierarchical priors, and CANARY's intercept curve has CANARY's priors. Each is fitted to simulated
responses, with four chains per sampler. Differences of the abilities' means are in posterior standard deviations, and
are compared with the error from NUTS's effective number of draws. SVI (1PL, 2PL) is an approximation for hundreds of
subjects and thousands of items, so its differences have no limit here. The comparison takes minutes, so `make bench`
does not run it.

Run: python -m davylamp.tools.speed.samplers [--quick] [--json FILE]
"""

import math

import numpy as np

from davylamp.scoring import IRTFit, ResponseModel, fit_irt
from davylamp.tools.speed.figures import SpeedFigure, benchmark_parser, finish
from davylamp.tools.speed.scoring import simulated

MODELS = {
    "1PL": ResponseModel("1pl"),
    "2PL": ResponseModel("2pl"),
    "3PL": ResponseModel("3pl"),
    "2PL of CANARY": ResponseModel("2pl", curve="intercept", hierarchical=False),
}


def main(arguments: list[str] | None = None) -> None:
    """Compare the samplers, print the differences, and write them."""
    options = benchmark_parser("Agreement of the two samplers.").parse_args(arguments)
    figures = []
    for name, model in MODELS.items():
        figures += compare_samplers(name, model, *((6, 12, 100) if options.quick else (8, 20, 400)))
    finish(figures, options.json)


def compare_samplers(name: str, model: ResponseModel, subjects: int, items: int, draws: int) -> list[SpeedFigure]:
    """Compare the posteriors of abilities and difficulties from the samplers.

    Args:
        name: name of the model in the figures.
        model: model to fit.
        subjects: number of simulated subjects.
        items: number of simulated items.
        draws: number of draws in each of NUTS's four chains.
    """
    responses, _ = simulated(subjects, items)
    slow = fit_irt(responses, model, method="nuts", warmup=draws // 2, draws=draws)
    note = f"{subjects} x {items}; NUTS: {slow.diagnostics.bulk_ess:.0f} effective draws, R-hat "
    note += f"{slow.diagnostics.rhat:.3f}, {slow.diagnostics.divergences} divergences, {slow.diagnostics.seconds:.0f} s"
    fast = fit_irt(responses, model, method="fast", draws=4000)
    # The largest of so many differences of pure noise is about three standard errors.
    figures = _differences(name, fast, slow, note, at_most=4 / math.sqrt(slow.diagnostics.bulk_ess))
    if model.name in ("1pl", "2pl") and model.hierarchical:
        figures += _differences(f"{name} by SVI", fit_irt(responses, model, method="svi"), slow, "")
    return figures


def _differences(name: str, fit: IRTFit, slow: IRTFit, note: str, at_most: float | None = None) -> list[SpeedFigure]:
    """Return the differences between a fit and NUTS's fit."""
    deviation = slow.ability.std((0, 1))
    mean = np.abs(fit.expected - slow.expected) / deviation
    spread = np.abs(np.log(fit.ability.std((0, 1)) / deviation))
    difficulty = np.abs(fit.difficulty - slow.difficulty) / slow.difficulty_deviation
    note = "; ".join(filter(None, (note, f"{fit.diagnostics.seconds:.1f} s")))
    return [
        SpeedFigure(f"{name}: abilities, largest difference of means", mean.max(), "sd", at_most=at_most, note=note),
        SpeedFigure(f"{name}: abilities, largest log ratio of deviations", spread.max(), "", at_most=at_most),
        SpeedFigure(f"{name}: difficulties, largest difference of means", difficulty.max(), "sd", at_most=at_most),
    ]


if __name__ == "__main__":
    main()
