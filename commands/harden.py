"""Command that trains a robust model."""

import json
import shlex
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from .config_options import Keyword
from .input_options import InputOptions
from .options import Data, Epsilon, Json, split_settings

_MODEL = "demo:efficientnet-lite0|1|2, torchvision:NAME, timm:NAME, FILE.py:FACTORY, WEIGHTS.pt: initial model"


def harden_model(
    *,
    model: Annotated[str, typer.Argument(help=_MODEL)],
    method: Annotated[
        str,
        typer.Option("--with", help="training method from `davylamp defences`: pgd, trades, mart, awp, free, fbf, ..."),
    ] = "pgd",
    seen: InputOptions,
    data: Data = "demo:imagenet",
    validation: Annotated[
        str | None, typer.Option(help="validation data for the model card (default: a part of --data)")
    ] = None,
    held_out: Annotated[float, typer.Option(help="proportion of --data held out for validation")] = 0.1,
    limit: Annotated[int | None, typer.Option(help="use the first N images of --data")] = None,
    norm: Annotated[str, typer.Option(help="norm of the perturbation: linf or l2")] = "linf",
    epsilon: Epsilon = None,
    steps: Annotated[int | None, typer.Option(help="attack iterations during training")] = None,
    step_size: Annotated[str | None, typer.Option(help="attack step size during training: 1/255")] = None,
    epochs: Annotated[int | None, typer.Option(help="number of epochs")] = None,
    batch_size: Annotated[int | None, typer.Option(help="batch size")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="peak learning rate")] = None,
    param: Annotated[
        list[str] | None, typer.Option(help="name=value: beta, optimiser, schedule, ... (repeatable)")
    ] = None,
    seed: Annotated[int, typer.Option(help="random seed")] = 0,
    device: Annotated[str, typer.Option(help="device: cpu, cuda, cuda:1, mps")] = "cpu",
    amp: Annotated[
        bool, typer.Option("--amp", help="use mixed precision (bfloat16), on a GPU"), Keyword("mixed_precision")
    ] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="start from random weights instead of the model's")] = False,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="file for the weights; the model card is written next to it")
    ] = Path("weights.pt"),
    as_json: Json = False,
) -> None:
    """Train a robust model, and write its weights and a model card to files."""
    from ..api.training import harden
    from ..report.text.console import print_error

    words = {"steps": steps, "step_size": step_size, "epochs": epochs, "batch_size": batch_size}
    words |= {"learning_rate": learning_rate}
    given = {name: value for name, value in words.items() if value is not None}
    given |= split_settings(param or [], given)
    where: dict[str, Any] = {"validation": validation, "held_out": held_out, "limit": limit, "device": device}
    how: dict[str, Any] = {"norm": norm, "epsilon": epsilon, "seed": seed, "mixed_precision": amp, "fresh": fresh}
    try:
        made = harden(seen.of(model), data, method, out=out, progress=partial(_begin, out), **where, **how, **given)
    except KeyboardInterrupt:
        print_error(f"davylamp: interrupted; the checkpoint is {out}.partial; run the same command again to resume")
        raise
    if as_json:
        print(json.dumps({"file": str(out), **made.card}, indent=2))  # noqa: T201 - the product
        return
    _print_card(made.card, out)


def _begin(out: Path, prepared: Any, total: int) -> AbstractContextManager[Any]:
    """Print the defaults that were used, and whether an interrupted training resumes. Returns the progress display."""
    from ..report.text.console import print_error
    from ..report.text.progress import show_progress

    if prepared.chosen:
        print_error(f"chosen: {prepared.chosen}")
    if Path(f"{out}.partial").exists():
        print_error(f"- resuming from {out}.partial")
    return show_progress(total)


def _print_card(card: dict[str, Any], out: Path) -> None:
    from ..engine.training.card import describe_measured
    from ..report.text.console import make_console

    console = make_console()
    settings = card["settings"]
    what = f"{settings['method']}, {settings['norm']} {settings['epsilon']:.6g}, on {card['trained_on']} images"
    lines = [f"{out}: {card['base']} trained with {what}"]
    lines += [f"- {when}: {describe_measured(card[when])}" for when in ("before", "after")]
    attack = card["after"]["attack"]
    lines.append(
        f"- PGD is {attack}" if attack else "- robustness was not measured, because no library with PGD is installed"
    )
    again = f"davylamp evaluate --models {shlex.quote(str(out))} --attacks best --epsilon ..."
    lines.append(f"- one attack does not show robustness; {again} runs several")
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
