"""Command that measures accuracy under AutoAttack."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ..report.text.progress import show_plan
from .config_options import Given
from .errors import print_interrupted
from .estimate import EstimateOnly, print_estimate
from .input_options import InputOptions
from .loading import LOADING, loading_keywords
from .options import Data, Json


def measure_model(
    *,
    model: Annotated[str, typer.Argument(help="name of the model, as for `davylamp evaluate`")],
    seen: InputOptions,
    data: Data = "demo:imagenet",
    limit: Annotated[int | None, typer.Option(min=1, help="use at most this many images")] = None,
    norm: Annotated[str, typer.Option(help="norm of the perturbation: linf or l2")] = "linf",
    epsilon: Annotated[
        str | None, typer.Option("--epsilon", "--eps", help="radius for pixels in [0, 1]: 8/255 (default: usual one)")
    ] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="images per call of a library")] = None,
    seed: Annotated[int, typer.Option(min=0, help="random seed")] = 0,
    device: Annotated[str, typer.Option(help="device: cpu, cuda, cuda:1, mps")] = "cpu",
    how: Annotated[Given, LOADING],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="store the results in this folder; an interrupted run resumes there"),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            help='stop when "RA >= 0.6" is decided, or, with "width <= 0.05", when the interval is this narrow'
        ),
    ] = None,
    estimate: EstimateOnly = False,
    as_json: Json = False,
) -> None:
    """Measure the accuracy under AutoAttack, with its 95 % interval and warnings about reasons to doubt it."""
    from ..api.measuring import robust_accuracy
    from ..report.text.console import make_console

    given: dict[str, Any] = {"data": data, "norm": norm, "epsilon": epsilon, "limit": limit, "batch_size": batch_size}
    given |= {"seed": seed, "device": device, "out": out, **loading_keywords(how)}
    if estimate:
        print_estimate(robust_accuracy, seen.of(model), as_json=as_json, until=until, **given)
        return
    try:
        done = robust_accuracy(seen.of(model), **given, until=until, progress=show_plan)
    except KeyboardInterrupt:
        print_interrupted(out or "", "use -o FOLDER to resume later")
        raise
    if as_json:
        print(json.dumps(done.to_dict(), indent=2, allow_nan=False))  # noqa: T201 - standard output is the product
        return
    console = make_console()
    for line in (*repr(done).splitlines(), *(f"- {step}" for step in done.steps)):
        console.print(line, highlight=False, markup=False)
