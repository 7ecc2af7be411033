"""`davylamp evaluate --models NEW --against BASELINE`: new models attacked as those of a folder were, and placed."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import InvalidInput
from .derived import Given, named_by_option, option_of
from .loading import loading_settings, start_rooms


@dataclass(frozen=True)
class BaselineOptions:
    """The baseline that new models are placed in, and the images they are asked about."""

    against: Annotated[
        Path | None,
        typer.Option(help="run the attacks of this results folder on its data, then place the model among its models"),
    ] = None
    adaptive: Annotated[
        bool,
        typer.Option("--adaptive", help="--against: use only the most informative images, until the rank is known"),
    ] = False
    width: Annotated[
        int | None,
        typer.Option(min=0, help="--adaptive: stop when the rank interval is at most this wide (default: 1)"),
    ] = None
    batch: Annotated[int | None, typer.Option(min=1, help="--adaptive: images per batch (default: 8)")] = None

    def check(self) -> None:
        """Refuse options that would be ignored."""
        given = {"--adaptive": self.adaptive, "--width": self.width is not None, "--batch": self.batch is not None}
        names = [name for name, value in given.items() if value]
        if names and self.against is None:
            raise InvalidInput(f"expected --against BASELINE with {', '.join(names)}")
        if names and not self.adaptive:
            raise InvalidInput(f"expected --adaptive with {', '.join(names)}")


def evaluate_newcomers(
    values: Given, fixed: bool, against: BaselineOptions, out: Path, run: Any, *, as_json: bool
) -> int:
    """Evaluate and place; 0, or 1 if something of it failed.

    Args:
        values: the options of `Config`, by field.
        fixed: whether a file, a preset, a threat model or a defence was given, too.
        against: the baseline and how many images.
        out: the results folder.
        run: where and how, see `Running`.
        as_json: one JSON document instead of tables.
    """
    from ..engine.run.choose import choose_executor
    from ..engine.store.store import ResultsStore
    from ..placing import FREE, WIDTH, Asking, place_models, read_baseline
    from ..report.text.console import print_error
    from ..report.text.ranking import Placed
    from ..scoring.adaptive import BATCH

    wrong = [option_of(name) for name, value in values.items() if value and name not in ("models", *FREE)]
    if wrong or fixed:
        raise InvalidInput(
            f"expected --against without {', '.join(wrong) or 'a file, a preset, a defence or a threat model'}: "
            "attacks, data and seeds are the baseline's"
        )
    given = loading_settings(values)
    if "models" not in given:
        raise InvalidInput("expected --models with --against, got none: the model that is new")
    width = WIDTH if against.width is None else against.width
    asking = Asking(against.adaptive, width, BATCH if against.batch is None else against.batch)
    baseline = read_baseline(_folder(against), adaptive=asking.adaptive)
    with named_by_option():
        config = replace(baseline.config, **given)
    executor = choose_executor(run.executor, workers=run.workers, address=run.address, device=config.device)
    store = ResultsStore(out)
    start_rooms(config.isolation, config.models)
    ranks = 1 + baseline.frame["model"].nunique()
    more = {"retry_failed": run.retry_failed, "trust_unknown": run.trust_unknown}

    def tell(name: str, step: Any) -> None:
        where = f"ranks {step.rank_low} to {step.rank_high} of {ranks}, ability {step.low:.2f} to {step.high:.2f}"
        print_error(f"{name}: {step.images} images: {where}")

    placements = place_models(
        baseline, store, config, asking, run=lambda plan: _run(plan, store, executor, more), tell=tell
    )
    placed = Placed(f"{out} against {against.against}", placements)
    if as_json:
        print(json.dumps(placed.document, indent=1, allow_nan=False))  # noqa: T201 - standard output is the product
    else:
        from ..report.text.console import make_console

        placed.print(0, make_console())
    return int(any(note.startswith("failed: ") for each in placements for note in each.notes))


def _folder(against: BaselineOptions) -> Path:
    """The baseline; a folder only: tables of metrics have no attacks to run."""
    folder = against.against or Path()
    if folder.suffix == ".csv" or str(folder).startswith("published:"):
        raise InvalidInput(f"expected a results folder for --against, got {folder}: rank FOLDER --against {folder}")
    return folder


def _run(plan: Any, store: Any, executor: Any, more: dict[str, bool]) -> Any:
    from ..engine.run.evaluate import evaluate
    from .progress import show_progress

    with show_progress(plan.images) as progress:
        return evaluate(plan, store, executor=executor, progress=progress, **more)
