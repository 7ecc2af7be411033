"""`davylamp train` of an attack that learns once: what it learned is kept for the evaluations that follow."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer

from ..errors import InvalidInput, Unsupported
from .config_options import Given
from .loading import loading_settings, start_rooms
from .options import read_parameters


@dataclass(frozen=True)
class Lesson:
    """From what an attack learns, and how.

    Args:
        model: name of the model.
        data: name of the data.
        limit: only so many images.
        norm: None: the one that most libraries have.
        epsilon: as a text; None: the customary radius.
        param: "name=value" each.
        seed: random seed.
        device: where to compute.
        how: the options of `loading_settings`.
    """

    model: str
    data: str
    limit: int | None
    norm: str | None
    epsilon: str | None
    param: list[str]
    seed: int
    device: str
    how: Given


def is_attack(name: str) -> bool:
    """Whether a name is that of an attack in the catalogue, or of a search over one."""
    from ..adapters import ATTACKS, IMPLEMENTATIONS
    from ..engine.searches.kinds import parse_search

    return parse_search(name).inside in {*ATTACKS, *IMPLEMENTATIONS}


def train_attack(attack: str, lesson: Lesson, out: Path, *, as_json: bool) -> None:
    """Have an attack learn once from images, and keep it in a results folder.

    Raises:
        DavylampError: if it learns nothing, or cannot do what is asked.
        typer.Exit: with code 1 if all of its rows failed.
    """
    from ..engine.plan.choices import chosen_line
    from ..engine.plan.config import Config
    from ..engine.plan.config_file import choice_from
    from ..engine.plan.make import make_plan
    from ..engine.run.evaluate import learn
    from ..engine.store.other_records import describe_fit
    from ..engine.store.store import ResultsStore
    from ..report.text.console import print_error

    parameters = read_parameters({}, lesson.param, [attack])
    known = {"attack": attack, "norm": lesson.norm, "epsilon": lesson.epsilon, "parameters": parameters}
    more: dict[str, Any] = {"limit": lesson.limit, "seeds": (lesson.seed,), "device": lesson.device}
    more |= loading_settings(lesson.how)
    config = Config((lesson.model,), (choice_from(known),), lesson.data, **more)
    start_rooms(config.isolation, config.models)
    plan = _only_learning(make_plan(config))
    if line := chosen_line(config, plan.cells, {"models", "data", "limit", "seeds", "device"}):
        print_error(line)
    learned = learn(plan, ResultsStore(out), retry_failed=True)
    names = {cell.fit_key: f"{cell.row.name} on {cell.subject.model}" for cell in plan.cells}
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
    from ..engine.cell import FitData

    cells = []
    for cell in plan.cells:
        if cell.search.kind:
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
        console.print(f"{out}/fits/{key}: {text}", highlight=False, markup=False)
