"""Do the fits of a ranking agree: the sampler on its grid, SVI, and Pyro's NUTS on the model as it is written.

1PL, 2PL and 3PL under the hierarchical priors, and CANARY's own intercept curve under its priors, each on simulated
responses; four chains on either side. Differences of the abilities' means are in posterior standard deviations, beside
the error that NUTS's own number of effective draws leaves. SVI (1PL, 2PL) is an approximation, made for hundreds of
subjects and thousands of items: its differences have no bound here. It takes minutes, so `make bench` does not run it.

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
    """Print and write how far the samplers are apart."""
    options = benchmark_parser("Agreement of the two samplers.").parse_args(arguments)
    figures = []
    for name, model in MODELS.items():
        figures += compare_samplers(name, model, *((6, 12, 100) if options.quick else (8, 20, 400)))
    finish(figures, options.json)


def compare_samplers(name: str, model: ResponseModel, subjects: int, items: int, draws: int) -> list[SpeedFigure]:
    """How far apart the posteriors of abilities and difficulties are.

    Args:
        name: of the model, in the figures.
        model: that both fit.
        subjects: simulated.
        items: simulated.
        draws: of each of NUTS's four chains.
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
    """How far a fit is from NUTS's."""
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
