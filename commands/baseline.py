"""`davylamp evaluate --models NEW --against BASELINE`: runs a baseline's attacks on new models, and ranks them."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from ..engine.plan.config import Config
from ..errors import InvalidInput
from ..report.text.progress import show_progress
from .config_options import Given, in_options
from .input_options import InputOptions
from .loading import APART, loading_settings, prestart_processes

_PANEL = "New models among evaluated ones"


@dataclass(frozen=True)
class BaselineOptions:
    """Options for ranking new models among the models of a baseline folder."""

    against: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=_PANEL,
            help="attack new models as in this results folder, and rank each among the folder's models",
        ),
    ] = None
    adaptive: Annotated[
        bool,
        typer.Option(
            "--adaptive",
            rich_help_panel=_PANEL,
            help="--against: attack only the most informative images, until the rank is known",
        ),
    ] = False
    max_rank_width: Annotated[
        int | None,
        typer.Option(
            rich_help_panel=_PANEL,
            min=0,
            help="--adaptive: stop when the rank interval is at most this wide (default: 1)",
        ),
    ] = None
    batch_images: Annotated[
        int | None, typer.Option(rich_help_panel=_PANEL, min=1, help="--adaptive: images per batch (default: 8)")
    ] = None

    @property
    def is_given(self) -> bool:
        """Whether `--against` was given.

        Raises:
            InvalidInput: if `--against` was not given, but options that need it were given.
        """
        given = {
            "--adaptive": self.adaptive,
            "--max-rank-width": self.max_rank_width is not None,
            "--batch-images": self.batch_images is not None,
        }
        names = [name for name, value in given.items() if value]
        if names and self.against is None:
            raise InvalidInput(f"{', '.join(names)} needs --against BASELINE")
        return self.against is not None


def place_newcomers(
    given: Given, seen: InputOptions, against: BaselineOptions, out: Path, run: Any, *, as_json: bool
) -> int:
    """Attack new models with the attacks of a baseline folder, and print their ranks. Returns 0, or 1 if a run failed.

    Args:
        given: values of other options, by argument name of `evaluate`.
        seen: options for the models' inputs and outputs.
        against: options for the baseline and the selection of images.
        out: results folder of the new models.
        run: options for the execution.
        as_json: whether to print one JSON document instead of tables.
    """
    from ..api.baseline_placement import place
    from ..report.text.console import print_error
    from ..report.text.ranking import PlacementOutput

    if run.part is not None:
        raise InvalidInput("--against and --part cannot be combined; omit --part")
    if run.until is not None:
        raise InvalidInput("--against and --until cannot be combined; use --adaptive")
    if seen.is_given:
        raise InvalidInput(
            "--against cannot be combined with options for input and output; give them in the model's name: "
            "MODEL+input:crop=224,... or MODEL+outputs:labels"
        )
    settings = loading_settings({name: value for name, value in given.items() if value not in (None, ())})
    if "models" not in settings:
        raise InvalidInput("--against needs --models: name the new model")

    def tell(name: str, step: Any) -> None:
        where = f"ranks {step.rank_low} to {step.rank_high}, ability {step.low:.2f} to {step.high:.2f}"
        print_error(f"{name}: {step.images} images: {where}")

    prestart_processes(
        Config(**{name: settings[name] for name in APART.names if name in settings}).isolation, settings["models"]
    )
    where = {name: value for name, value in run.given.items() if name not in ("part", "until")}
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
