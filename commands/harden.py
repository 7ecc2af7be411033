"""The command that trains a model to be robust."""

import json
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from .input_options import InputOptions
from .options import Data, Epsilon, Json, split_settings

_MODEL = (
    "demo:efficientnet-lite0|1|2, torchvision:NAME, timm:NAME, FILE.py:FACTORY, WEIGHTS.pt: where the training begins"
)


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
        str | None, typer.Option(help="validation data for the model card (default: a share of --data)")
    ] = None,
    held_out: Annotated[float, typer.Option(help="share of --data held out for validation")] = 0.1,
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
    amp: Annotated[bool, typer.Option("--amp", help="use mixed precision (bfloat16), on a GPU")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="start from random weights instead of the model's")] = False,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="file for the weights; the model card is written beside it")
    ] = Path("weights.pt"),
    as_json: Json = False,
) -> None:
    """Train a robust model: weights that MODEL+WEIGHTS.pt loads, and a model card."""
    from ..adapters.models.zoo.load import load_model
    from ..adapters.parameters import parse_number
    from ..engine.training.harden import harden
    from ..engine.training.methods import find_method
    from ..engine.training.prepare import base_name, prepare_training
    from ..report.text.console import print_error
    from .progress import show_progress

    words = {"steps": steps, "step_size": step_size, "epochs": epochs}
    given: dict[str, Any] = {
        name: value
        for name, value in {**words, "batch_size": batch_size, "learning_rate": learning_rate}.items()
        if value is not None
    }
    given |= split_settings(param or [], given)
    radius = None if epsilon is None else parse_number(epsilon, "epsilon")
    model = seen.of(model)
    base = base_name(model)
    row = find_method(method)
    classifier = load_model(model, device, fold=False)
    more: dict[str, Any] = {"seed": seed, "mixed_precision": amp, "fresh": fresh}
    asked = (method, norm, radius, given)
    prepared = prepare_training(classifier, data, validation, asked, held_out=held_out, limit=limit, **more)
    if prepared.chosen:
        print_error(f"chosen: {prepared.chosen}")
    if Path(f"{out}.partial").exists():
        print_error(f"- going on from {out}.partial")
    total = len(prepared.training.labels) * prepared.settings["epochs"] * row.stages
    try:
        with show_progress(total) as progress:
            training, held, settings = prepared[:3]
            made = harden(classifier, training, held, settings, base=base, out=out, progress=progress)
    except KeyboardInterrupt:
        print_error(f"davylamp: interrupted; {out}.partial keeps what was trained, the same command goes on from there")
        raise
    if as_json:
        print(json.dumps({"file": str(out), **made.card}, indent=2))  # noqa: T201 - the product
        return
    _print_card(made.card, out)


def _print_card(card: dict[str, Any], out: Path) -> None:
    from ..engine.training.card import describe_measured
    from ..report.text.console import make_console

    console = make_console()
    settings = card["settings"]
    what = f"{settings['method']}, {settings['norm']} {settings['epsilon']:.6g}, on {card['trained_on']} images"
    lines = [f"{out}: {card['base']} trained with {what}"]
    lines += [f"- {when}: {describe_measured(card[when])}" for when in ("before", "after")]
    attack = card["after"]["attack"]
    lines.append(f"- PGD is {attack}" if attack else "- no library with PGD is installed: robustness was not measured")
    again = f"davylamp evaluate --models {shlex.quote(str(out))} --attacks best --epsilon ..."
    lines.append(f"- one attack is no proof; {again} tries several")
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
