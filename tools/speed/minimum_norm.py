"""Compares `best` with the minimum-norm attacks of adversarial-library at equal queries: distance and passes.

`best` (several attacks that search together) and FMN, DDN, ALMA and the minimal APGD get the same budget of forward and
backward passes per image, on the digits CNN that was trained on PGD examples. The rule is that of
`tools/best_effort/equal_passes.py`: the nearest adversarial point that the model received within the budget counts. For
the minimal APGD, it is the nearest of three ways to split the budget into runs. The figure is the attack's median
distance divided by that of `best`. If it is above 1, `best` is nearer. Passes are counted, so a busy machine affects
only the seconds.

    python -m davylamp.tools.speed.minimum_norm [--quick] [--images 20] [--passes 200,1000] [--json FILE]
"""

import math
from collections.abc import Mapping, Sequence

from davylamp.tools.best_effort.equal_passes import Case, load_case, run_alone, run_best
from davylamp.tools.speed.figures import SpeedFigure, benchmark_parser, finish

MODEL = "digits:pgd-training"
PEERS: Mapping[str, Sequence[str]] = {
    "linf": ("adv-lib:fmn", "adv-lib:minimal-apgd"),
    "l2": ("adv-lib:fmn@fixed", "adv-lib:ddn@fixed", "adv-lib:alma@fixed", "adv-lib:minimal-apgd"),
}


def measure(case: Case, norm: str, passes: int) -> list[SpeedFigure]:
    """Return a figure for each attack that supports the norm."""
    best = run_best(case, norm, [passes])[0]
    figures = []
    for name in PEERS[norm]:
        alone = run_alone(name, case, norm, [passes])
        note = (
            f"{best.medians[0]:.4g} against {alone.medians[0]:.4g}; {best.fooled} and {alone.fooled} of {len(case[2])} "
            f"images fooled; {best.used:.0f} and {alone.used:.0f} passes in the median, {passes} allowed; "
            f"{best.seconds:.0f} and {alone.seconds:.0f} s"
        )
        ratio = alone.medians[0] / best.medians[0] if math.isfinite(alone.medians[0]) else math.nan
        note = f"{alone.trouble}; {note}" if alone.trouble else note
        title = f"nearness of best, {norm}, {passes} passes"
        figures.append(SpeedFigure(title, ratio, peer=name, note=note))
    return figures


def main() -> None:
    """Print a line for each norm, number of passes and attack."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--images", type=int, default=20)
    parser.add_argument("--passes", default="200,1000")
    options = parser.parse_args()
    images, budgets = (3, [20]) if options.quick else (options.images, [*map(int, options.passes.split(","))])
    case = load_case(MODEL, images)
    finish([each for norm in PEERS for passes in budgets for each in measure(case, norm, passes)], options.json)


if __name__ == "__main__":
    main()
