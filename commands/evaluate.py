"""Command that runs an evaluation, or, with `--against`, ranks new models among those of a results folder."""

import json
import shlex
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..engine.plan.config import AttackChoice, in_usual_order
from ..errors import InvalidInput
from ..report.text.progress import show_plan
from .baseline import BaselineOptions, place_newcomers
from .config_options import FromConfig, Given, in_options
from .detectors import print_detections
from .errors import print_interrupted
from .estimate import EstimateOnly, print_estimate
from .evaluation_summary import print_summary
from .input_options import InputOptions
from .loading import default_isolate, set_attack_isolation
from .options import OUTPUT, Json, all_failed, read_parameters

if TYPE_CHECKING:
    from ..api.evaluation import Evaluation

Folder = Annotated[Path, typer.Argument(help="a results folder of `davylamp evaluate`")]
_THREAT = FromConfig(("norm", "epsilon", "target", "parameters", "defaults"), AttackChoice, several=("epsilon",))


@dataclass(frozen=True)
class ExecutionOptions:
    """Options for execution and for reuse of earlier results."""

    executor: Annotated[str, typer.Option(rich_help_panel="Execution", help="local or ray")] = "local"
    workers: Annotated[int, typer.Option(rich_help_panel="Execution", help="number of processes on this machine")] = 1
    address: Annotated[
        str | None, typer.Option(rich_help_panel="Execution", help="address of a Ray cluster (default: start one here)")
    ] = None
    part: Annotated[
        str | None,
        typer.Option(
            rich_help_panel="Execution",
            metavar="K/N",
            help="run only part K of N, counting from 1 (for job arrays)",
        ),
    ] = None
    until: Annotated[
        str | None,
        typer.Option(
            rich_help_panel="Execution",
            help='attack images in random order, and stop when decided: "RA >= 0.6", "RA_union >= 0.5", '
            '"width <= 0.05", "A > B", ranked',
        ),
    ] = None
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", rich_help_panel="Execution", help="repeat failed runs")
    ] = False
    trust_unknown: Annotated[
        bool,
        typer.Option(
            "--trust-unknown",
            rich_help_panel="Execution",
            help="reuse results even if davylamp cannot tell whether the code behind them has changed",
        ),
    ] = False

    @property
    def given(self) -> Given:
        """The options as keyword arguments of `davylamp.evaluate`."""
        return {**vars(self), "part": self.part or ""}


def evaluate_models(
    *,
    config: Annotated[Path | None, typer.Argument(help="a TOML file with settings; options take precedence")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="results folder")] = Path("results"),
    which: Annotated[Given, FromConfig(("preset", "models", "attacks", "data", "limit"))],
    threat: Annotated[Given, _THREAT],
    seen: InputOptions,
    defence: Annotated[
        list[str] | None,
        typer.Option(
            "--defence",
            "--defense",
            help="also evaluate each model with this defence: jpeg:quality=50, FILE.py:FUNCTION (repeatable)",
            rich_help_panel="Images and metrics",
        ),
    ] = None,
    how: Annotated[Given, FromConfig()],
    run: ExecutionOptions,
    against: BaselineOptions,
    detector: Annotated[
        list[Path] | None,
        typer.Option(
            rich_help_panel="Images and metrics",
            help="detector to measure on the examples, a file of `davylamp fit` (repeatable)",
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", rich_help_panel=OUTPUT, help="exit with code 2 if a run failed")
    ] = False,
    print_config: Annotated[
        bool, typer.Option("--print-config", rich_help_panel=OUTPUT, help="print the settings as TOML and exit")
    ] = False,
    estimate: EstimateOnly = False,
    as_json: Json = False,
) -> None:
    """Run attacks on models and store the results in a folder. Runs that are already in the folder are reused."""
    given = {**which, **how, **threat, "config": config, "defences": defence or (), "detectors": detector or ()}
    if estimate and (against.is_given or print_config):
        raise InvalidInput(f"--estimate and {'--against' if against.is_given else '--print-config'} cannot be combined")
    if against.is_given:
        code = place_newcomers(given, seen, against, out, run, as_json=as_json)
        raise typer.Exit(2 if code and strict else 0)
    given = _complete(given, seen)
    if print_config:
        _print_config(given)
        return
    from ..api.evaluation import evaluate

    if estimate:
        print_estimate(evaluate, **given, **run.given, out=out, as_json=as_json)
        return
    try:
        done = evaluate(**given, **run.given, out=out, progress=_begin)
    except KeyboardInterrupt:
        print_interrupted(out)
        raise
    _print_json(done) if as_json else _print(done, out)
    if all_failed(done.failed, done.attempted, "cells"):
        raise typer.Exit(2 if strict else 1)
    if done.failed and strict:
        raise typer.Exit(2)


def _complete(given: Given, seen: InputOptions) -> Given:
    """Return the keyword arguments for `davylamp.evaluate` from the values that the user gave.

    Metrics are added to those of the config file. By default, code from files runs in separate processes.
    """
    from ..engine.plan.config_file import base_config, expand_models

    base, stated = base_config(given["config"], given.get("preset"))
    set_attack_isolation(given, base if "isolate" in stated else None)
    given = {**({} if "isolate" in stated else {"isolate": default_isolate()}), **given}
    if "measures" in given:
        given["measures"] = in_usual_order((*base.measures, *given["measures"]))
    if seen.is_given:
        settled = expand_models(replace(base, **{name: given[name] for name in ("models", "data") if name in given}))
        given["models"] = [seen.of(model) for model in settled.models]
    if "parameters" in given:
        given["parameters"] = read_parameters({}, given["parameters"], given.get("attacks", ()))
    return given


def _print_config(given: Given) -> None:
    from ..api.evaluation import configure
    from ..engine.plan.config_file import write_config

    if given.pop("detectors"):
        raise InvalidInput("--print-config and --detector cannot be combined: pass --detector when you run the file")
    print(write_config(configure(**given)), end="")  # noqa: T201 - standard output is the product


def _begin(evaluation: "Evaluation") -> AbstractContextManager[Any]:
    """Print the defaults that were used and the notes, and return the context manager that shows progress."""
    from ..report.text.console import print_error

    for line in filter(None, (evaluation.chosen, *(f"- {in_options(note)}" for note in evaluation.notes))):
        print_error(line)
    return show_plan(evaluation.plan, evaluation.runs)


def _print_json(done: "Evaluation") -> None:
    summary: Any = done.summary
    plan: Any = done.plan
    document = {
        **summary._asdict(),
        "traffic": summary.traffic.spec,
        "left_out": dict(plan.failed),
        "chosen": done.chosen.removeprefix("chosen: "),
        "warnings": [*done.unsteady, *done.warnings],
        **({"stopped": done.stopped} if done.stopped else {}),
    }
    if done.detections is not None:
        document["detectors"] = done.detections.document()
    print(json.dumps(document, indent=2))  # noqa: T201 - standard output is the product
    _print_lines((*done.hints, *done.radii))


def _print(done: "Evaluation", out: Path) -> None:
    """Print the notes, the numbers of runs, and the robust accuracies of a finished evaluation."""
    from ..engine.store.store import ResultsStore
    from ..report.text.console import print_error

    store = ResultsStore(out)
    for note in done.unsteady:
        print_error(note)
    _print_lines(done.hints)
    _print_lines(list(filter(None, [done.stopped])))
    _print_summary(done.summary, done.plan, out)
    if done.detections is not None:
        print_detections(done.detections)
    _print_lines(done.radii)
    _say_next(done.summary, done.plan, store, out)


def _print_lines(lines: Sequence[str]) -> None:
    from ..report.text.console import print_error

    for line in lines:
        print_error(f"- {line}")


def _say_next(summary: Any, plan: Any, store: Any, out: Path) -> None:
    """Print the robust accuracies, or, if parts of a job array are unfinished, the command that shows them later."""
    from ..report.text.console import make_console

    if plan.part is not None and not _is_whole(plan, store):
        folder = shlex.quote(str(out))
        text = f"when every part is finished: davylamp status {folder}; davylamp table {folder}"
        make_console().print(text, highlight=False, markup=False, soft_wrap=True)
    elif len(summary.failed) < len(plan.cells):
        print_summary(plan, store, out)


def _is_whole(plan: Any, store: Any) -> bool:
    """Whether all runs of a plan are finished, including those of other parts of a job array."""
    return set(store.keys("cells")).issuperset(cell.key for cell in plan.cells)


def _print_summary(summary: Any, plan: Any, out: Path) -> None:
    from ..adapters.models.remote.answer_cache import format_usage
    from ..adapters.paths import expand_path
    from ..engine.store.notes import unmeasured_line
    from ..report.text.console import make_console

    console = make_console()
    kept = f", {summary.kept} reused" if summary.kept else ""
    part = "" if plan.part is None else f", part {plan.part}"
    waiting = f", {summary.unfinished} waiting for shards of other parts" if summary.unfinished else ""
    runs = "run" if summary.done == 1 else "runs"
    counts = f"{summary.done} {runs} done{kept}, {len(summary.failed)} failed{waiting}"
    console.print(f"{out}{part}: {counts}, {summary.seconds:.0f} s", highlight=False)
    if not summary.cells:
        console.print(f"- nothing to do in part {plan.part}: there are fewer shards than parts", highlight=False)
    if summary.traffic:
        console.print(f"- {summary.traffic.line}", highlight=False, markup=False)
    for line in format_usage(expand_path(out)):
        console.print(f"- {line}", highlight=False, markup=False)
    for name, reason in plan.failed.items():
        console.print(f"- omitted: {name}: {in_options(reason)}", highlight=False, markup=False)
    names = {cell.key: f"{cell.title} on {cell.subject.model}" for cell in plan.cells}
    for key, reason in summary.failed.items():
        console.print(f"- failed: {names[key]}: {in_options(reason)}", highlight=False, markup=False)
    for line in summary.damaged:
        console.print(f"- recomputed: {line}", highlight=False, markup=False)
    for name, reason in summary.unmeasured.items():
        console.print(f"- not measured: {name}: {reason}", highlight=False, markup=False)
    if line := unmeasured_line(plan.cells, out, kept=plan.config.keep_images):
        console.print(f"- {line}", highlight=False, markup=False)
    for name, reason in summary.unknown.items():
        message = f"- cannot identify {name} ({reason}); its runs are repeated every time without --trust-unknown"
        console.print(message, highlight=False, markup=False)
