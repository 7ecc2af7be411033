"""`davylamp evaluate --models NEW --against BASELINE`: new models attacked as those of a folder were, and placed."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from ..engine.plan.config import Config
from ..errors import InvalidInput
from .config_options import Given, in_options
from .input_options import InputOptions
from .loading import APART, loading_settings, prestart_processes
from .progress import show_progress

_PANEL = "New models among evaluated ones"


@dataclass(frozen=True)
class BaselineOptions:
    """The baseline that new models are placed in, and the images they are asked about."""

    against: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=_PANEL,
            help="run the attacks of this results folder on its data, then place the model among its models",
        ),
    ] = None
    adaptive: Annotated[
        bool,
        typer.Option(
            "--adaptive",
            rich_help_panel=_PANEL,
            help="--against: use only the most informative images, until the rank is known",
        ),
    ] = False
    width: Annotated[
        int | None,
        typer.Option(
            rich_help_panel=_PANEL,
            min=0,
            help="--adaptive: stop when the rank interval is at most this wide (default: 1)",
        ),
    ] = None
    batch: Annotated[
        int | None, typer.Option(rich_help_panel=_PANEL, min=1, help="--adaptive: images per batch (default: 8)")
    ] = None

    @property
    def is_given(self) -> bool:
        """Whether a baseline was given; InvalidInput for the other options without one."""
        given = {"--adaptive": self.adaptive, "--width": self.width is not None, "--batch": self.batch is not None}
        names = [name for name, value in given.items() if value]
        if names and self.against is None:
            raise InvalidInput(f"expected --against BASELINE with {', '.join(names)}")
        return self.against is not None


def place_newcomers(
    given: Given, seen: InputOptions, against: BaselineOptions, out: Path, run: Any, *, as_json: bool
) -> int:
    """Evaluate and place; 0, or 1 if something of it failed.

    Args:
        given: the other options, by argument of the verb `evaluate`.
        seen: how models are shown images.
        against: the baseline and how many images.
        out: the results folder.
        run: where and how, see `ExecutionOptions`.
        as_json: one JSON document instead of tables.
    """
    from ..api.baseline_placement import place
    from ..report.text.console import print_error
    from ..report.text.ranking import PlacementOutput

    if run.part is not None:
        raise InvalidInput("expected --against without --part, got both: a new model is placed in one run")
    if seen.is_given:
        raise InvalidInput("expected MODEL+input:crop=224,... or MODEL+outputs:labels with --against, got options")
    settings = loading_settings({name: value for name, value in given.items() if value not in (None, ())})
    if "models" not in settings:
        raise InvalidInput("expected --models with --against, got none: the model that is new")

    def tell(name: str, step: Any) -> None:
        where = f"ranks {step.rank_low} to {step.rank_high}, ability {step.low:.2f} to {step.high:.2f}"
        print_error(f"{name}: {step.images} images: {where}")

    prestart_processes(
        Config(**{name: settings[name] for name in APART.names if name in settings}).isolation, settings["models"]
    )
    where = {name: value for name, value in run.given.items() if name != "part"}
    placements = place(**vars(against), **settings, **where, out=out, progress=_begin, tell=tell)
    placed = PlacementOutput(f"{out} against {against.against}", placements).reworded(in_options)
    if as_json:
        print(json.dumps(placed.document, indent=1, allow_nan=False))  # noqa: T201 - standard output is the product
    else:
        from ..report.text.console import make_console

        placed.print(0, make_console())
    return int(any(note.startswith("failed: ") for each in placements for note in each.notes))


def _begin(evaluation: Any) -> Any:
    return show_progress(evaluation.plan.images)
