"""Command that describes metrics."""

from typing import Annotated

import typer

from .options import Json
from .table_options import Verbose


def list_metrics(
    name: Annotated[
        str | None,
        typer.Argument(help="symbol or alias of a metric, in upper or lower case: MR, ssim; shows its formula"),
    ] = None,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """List all metrics with meaning, direction, range and unit. With NAME, show also formula, source and command."""
    from ..engine.metric_names import find_metrics
    from ..metrics import METRICS
    from ..report.text.metrics import metrics_json, print_metrics

    symbols = tuple(METRICS) if name is None else find_metrics(name)
    if as_json:
        print(metrics_json(symbols))  # noqa: T201 - the product
    else:
        print_metrics(symbols, whole=name is not None, every=verbose)
