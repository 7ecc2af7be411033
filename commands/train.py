"""The command that has an attack learn once, and keeps what it learned for the evaluations that follow."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import InvalidInput, Unsupported
from .options import Data, Json, Model, read_parameters, say_defaults


def train_attack(  # noqa: PLR0913, PLR0917 - one argument per option
    context: typer.Context,
    attack: Annotated[str, typer.Argument(help="an attack that learns once: uap, davylamp:advgan, davylamp:tremba")],
    out: Annotated[Path, typer.Option("-o", "--out", help="the results folder of the evaluation that will use it")],
    model: Model = "demo:efficientnet-lite0",
    data: Data = "demo:imagenet",
    limit: Annotated[int | None, typer.Option(min=1, help="only this many images")] = None,
    norm: Annotated[str | None, typer.Option(help="linf, l2, l1; of the attack's, the first")] = None,
    epsilon: Annotated[str | None, typer.Option(help="the radius, as 4/255; the customary one")] = None,
    param: Annotated[list[str] | None, typer.Option(help="name=value (repeatable)")] = None,
    seed: Annotated[int, typer.Option(min=0, help="of every random choice")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, mps")] = "cpu",
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="try again what has failed")] = False,
    as_json: Json = False,
) -> None:
    """Have an attack learn once from images, and keep it: `evaluate --fit-data` with the same settings uses it."""
    from ..engine.plan.chosen import chosen_line
    from ..engine.plan.config import Config, choice_from
    from ..engine.plan.make import make_plan
    from ..engine.run.evaluate import learn
    from ..engine.store.fits import describe_fit
    from ..engine.store.store import ResultsStore
    from ..report.text.console import print_error

    parameters = read_parameters({}, param or [], [attack])
    choice = choice_from({"attack": attack, "norm": norm, "epsilon": epsilon, "parameters": parameters})
    config = Config((model,), (choice,), data, limit=limit, seeds=(seed,), device=device)
    plan = _only_learning(make_plan(config))
    if line := chosen_line(config, plan.cells, {"models", "data", "limit", "seeds", "device"}):
        print_error(line)
    learned = learn(plan, ResultsStore(out), retry_failed=retry_failed)
    names = {cell.fit_key: f"{cell.row.name} on {cell.subject.model}" for cell in plan.cells}
    say_defaults(context, ("model", "data", "seed"))
    lines = [
        {"key": key, "name": names[key], "failed": each}
        if isinstance(each, str)
        else {"key": key, "name": names[key], **describe_fit(each), "seconds": each.seconds}
        for key, each in learned.items()
    ]
    if as_json:
        print(json.dumps({"folder": str(out), "fits": lines}, indent=2))  # noqa: T201 - the product
    else:
        _print(out, learned, names)
    if all(isinstance(each, str) for each in learned.values()):
        raise typer.Exit(1)


def _only_learning(plan: Any) -> Any:
    """The plan with the cells that learn once, each from all of the images.

    Raises:
        Unsupported: if none learns anything.
        InvalidInput: for a search over radii.
    """
    from ..engine.cell import FitData, strip_best

    cells = []
    for cell in plan.cells:
        if strip_best(cell.attack) != cell.attack:
            raise InvalidInput(f"expected an attack at one radius, which it learns at, got {cell.attack}")
        if cell.row.fit:
            subject = cell.subject
            seen = cell.fitted_on or FitData(subject.data, subject.data_digest, subject.images)
            cells.append(replace(cell, fitted_on=seen))
    if not cells:
        names = ", ".join(dict.fromkeys(cell.row.name for cell in plan.cells))
        raise Unsupported(f"{names} attacks each image by itself: it learns nothing")
    return replace(plan, cells=tuple(cells))


def _print(out: Path, learned: dict[str, Any], names: dict[str, str]) -> None:
    from ..report.text.console import make_console

    console = make_console()
    for key, each in learned.items():
        text = f"failed: {names[key]}: {each}" if isinstance(each, str) else str(each)
        console.print(f"{out}/fits/{key}: {text}", highlight=False, markup=False, soft_wrap=True)
