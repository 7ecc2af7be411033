"""The commands about whole evaluations: run one, see how it stands."""

import json
import shlex
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from ..engine.plan.config import AttackChoice
from ..errors import DavylampError, InvalidInput
from .config_options import FromConfig, Given, named_by_option
from .detectors import detections_document, print_detections
from .ending import say_result
from .failures import say_interrupted
from .input_options import InputOptions
from .loading import default_isolate, settle_attacks
from .newcomers import BaselineOptions, evaluate_newcomers
from .options import OUTPUT, Json, all_failed, read_parameters, say_assumed
from .progress import show_progress

Folder = Annotated[Path, typer.Argument(help="a results folder of `davylamp evaluate`")]


_THREAT = FromConfig(("norm", "epsilon", "target", "parameters", "defaults"), AttackChoice, several=("epsilon",))


@dataclass(frozen=True)
class Running:
    """Where an evaluation runs, and what of an earlier one it keeps."""

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
            help="run part K of N only (job arrays): each part runs its share of the work",
        ),
    ] = None
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", rich_help_panel="Execution", help="rerun failed cells")
    ] = False
    trust_unknown: Annotated[
        bool,
        typer.Option(
            "--trust-unknown",
            rich_help_panel="Execution",
            help="reuse results of code whose identity cannot be fully determined",
        ),
    ] = False


def evaluate_models(
    *,
    config: Annotated[Path | None, typer.Argument(help="a TOML file with settings; options take precedence")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="results folder")] = Path("results"),
    which: Annotated[Given, FromConfig(("preset", "models"))],
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
    on: Annotated[Given, FromConfig(("attacks", "data", "limit", "images"))],
    threat: Annotated[Given, _THREAT],
    how: Annotated[Given, FromConfig()],
    run: Running,
    against: BaselineOptions,
    detector: Annotated[
        list[Path] | None,
        typer.Option(
            rich_help_panel="Images and metrics",
            help="detector to measure on the examples, a file of `davylamp train` (repeatable)",
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", rich_help_panel=OUTPUT, help="exit with code 2 if a cell failed")
    ] = False,
    print_config: Annotated[
        bool, typer.Option("--print-config", rich_help_panel=OUTPUT, help="print the settings as TOML and exit")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run models x attacks x libraries on one data set into a folder; finished cells are skipped."""
    from ..adapters.models.room.isolated import prepare_rooms
    from ..engine.plan.config_file import write_config
    from ..engine.plan.make import check_config
    from ..engine.run.choose import choose_executor

    values = {**which, **on, **how}
    against.check()
    if against.against is not None:
        if run.part is not None:
            raise InvalidInput("expected --against without --part, got both: a new model is placed in one run")
        if seen.is_given:
            raise InvalidInput("expected MODEL+input:crop=224,... or MODEL+outputs:labels with --against, got options")
        fixed = any((config, values.pop("preset", None), defence, threat, print_config, detector))
        code = evaluate_newcomers(values, fixed, against, out, run, as_json=as_json)
        raise typer.Exit(2 if code and strict else 0)
    settle_attacks(values)
    settings, named = _start_from(config, values.pop("preset", None))
    settle_attacks(values, settings if "isolate" in named else None)
    settings, given = _apply(settings, values, threat)
    settings = _add_defences(_add_input(settings, seen), defence or [])
    if "isolate" not in named | given:
        settings = replace(settings, isolate=default_isolate())
    prepare_rooms(settings.isolation, (*settings.models, *settings.surrogate))
    check_config(settings)
    _check_part(run, detector)
    detectors = _read_detectors(detector or [])
    settings = replace(settings, keep_images=settings.keep_images or bool(detectors))
    if print_config and detectors:
        raise InvalidInput("expected --print-config without --detector, which no TOML file has: give it with the file")
    if print_config:
        print(write_config(settings), end="")  # noqa: T201 - standard output is the product
        return
    chosen = choose_executor(run.executor, workers=run.workers, address=run.address, device=settings.device)
    code = _run(settings, out, chosen, named | given, run, detectors, as_json=as_json)
    if code:
        raise typer.Exit(2 if strict else code - 1)


def _check_part(run: Running, detectors: list[Path] | None) -> None:
    """Refuse a part that is none, or beside what needs all parts."""
    from ..engine.plan.plan import read_part

    if run.part is None:
        return
    with named_by_option():
        read_part(run.part)
    if run.executor != "local":
        raise InvalidInput(
            f"expected --part without --executor {run.executor}, got both: Ray hands the work to its machines itself"
        )
    if detectors:
        raise InvalidInput("expected --part without --detector, got both: measure them when all parts are done")


def _start_from(config: Path | None, preset: str | None) -> tuple[Any, set[str]]:
    """The settings that options win over, and the names of those that a file or a preset states."""
    from ..engine.plan.config import Config
    from ..engine.plan.config_file import config_from, read_config, read_toml
    from ..engine.plan.presets import find_preset

    if config is not None and preset is not None:
        raise InvalidInput(f"expected a TOML file or a preset, got {config} and {preset}; start from --print-config")
    if preset is not None:
        settings = find_preset(preset).config
        return settings, {field.name for field in fields(Config) if getattr(settings, field.name) != field.default}
    if config is not None:
        return read_config(config), set(read_toml(config))
    return config_from({}), set()


def _apply(settings: Any, values: Given, threat: Given) -> tuple[Any, set[str]]:
    """The settings with what options gave, and the names of that."""
    attacks, given = values.pop("attacks", None), values
    if "measures" in given:
        given["measures"] = tuple(dict.fromkeys((*settings.measures, *given["measures"])))
    if attacks:
        libraries, repaired = given.get("libraries", settings.libraries), "repaired" in given or settings.repaired
        where = {"libraries": libraries, "repaired": repaired}
        with named_by_option():
            given["attacks"] = _choices(attacks, threat, where)
    elif threat:
        raise InvalidInput("expected --attacks beside --norm, --epsilon, --target, --param or --defaults, got none")
    with named_by_option():
        return replace(settings, **given), set(given)


def _add_input(settings: Any, seen: InputOptions) -> Any:
    """The settings with each model as it is to be shown images."""
    from ..engine.plan.config_file import expand_models

    if not seen.is_given:
        return settings
    settings = expand_models(settings)
    return replace(settings, models=tuple(seen.of(model) for model in settings.models))


def _add_defences(settings: Any, defences: list[str]) -> Any:
    """The settings with each model once more under each of the defences."""
    from ..engine.plan.config_file import expand_models

    if not defences:
        return settings
    settings = expand_models(settings)
    defended = [f"{model}+{function}" for model in settings.models for function in defences]
    return replace(settings, models=(*settings.models, *defended))


def _choices(attacks: list[str], threat: Given, where: dict[str, Any]) -> tuple[Any, ...]:
    """Every attack with every radius; a parameter goes to the attacks that have it."""
    from ..engine.plan.choices import check_one_norm, spread_parameters
    from ..engine.plan.config_file import choice_from
    from ..report.text.console import print_error

    parameters_of, notes = spread_parameters(
        attacks, read_parameters({}, threat.get("parameters", []), attacks), **where
    )
    shared = {name: threat[name] for name in ("norm", "target", "defaults") if name in threat}
    choices = tuple(
        choice_from({**shared, "attack": attack, "epsilon": radius, "parameters": parameters})
        for attack, parameters in zip(attacks, parameters_of, strict=True)
        for radius in threat.get("epsilon", [None])
    )
    check_one_norm(choices, **where)
    for note in notes:
        print_error(f"- {note}")
    return choices


def _read_detectors(files: list[Path]) -> list[Any]:
    """Trained detectors, read before anything is computed."""
    from ..engine.detection.detect import read_detectors
    from ..report.text.console import print_error

    if files:
        print_error("- examples are kept (--keep-images), which the detectors are measured on")
    return read_detectors(files)


def _measure_detectors(detectors: list[Any], settings: Any, out: Path, executor: Any) -> Any:
    """What the detectors see of the examples; None without detectors."""
    from ..adapters.models.remote.kept_answers import FILE as ANSWERS
    from ..adapters.paths import expand_path
    from ..engine.detection.detect import Measured, measure_detectors
    from ..engine.sources import Loading

    if not detectors:
        return None
    transport = settings.transport(expand_path(out) / ANSWERS, getattr(executor, "workers", 1))
    loading = Loading(transport, settings.isolation)
    try:
        return measure_detectors(out, detectors, device=settings.device, loading=loading)
    except DavylampError as error:  # the evaluation is finished, and is to be told of
        return Measured((), (str(error),))


def _run(
    settings: Any,
    out: Path,
    executor: Any,
    given: set[str],
    run: Running,
    detectors: list[Any],
    *,
    as_json: bool,
) -> int:
    """Evaluate and say how it went; 0 if no cell failed, 1 if some did, 2 if all did."""
    from ..adapters.paths import expand_path
    from ..engine.detection.detect import check_beside
    from ..engine.expected_passes import expected_work
    from ..engine.plan.cells import list_unreachable
    from ..engine.plan.choices import chosen_line
    from ..engine.plan.presets import describe_preset
    from ..engine.run.evaluate import evaluate
    from ..engine.store.notes import list_unsteady
    from ..engine.store.store import ResultsStore
    from ..report.text.console import print_error

    if expand_path(out).is_file():
        raise InvalidInput(f"expected a folder for -o, got the file {out}")
    store = ResultsStore(out)
    plan = _make_plan(settings, store, executor, run.part)
    check_beside(detectors, [subject for subject, _ in plan.subjects], settings.isolation)
    line = chosen_line(plan.config, plan.cells, given)
    warnings = list_unreachable(plan.cells)
    say_assumed(cell.row for cell in plan.cells)
    notes = (*describe_preset(plan.config.preset), *plan.notes, *_list_notes(settings, plan, store, warnings))
    for note in filter(None, (line, *(f"- {note}" for note in notes))):
        print_error(note)
    rerun = {"retry_failed": run.retry_failed, "trust_unknown": run.trust_unknown}
    try:
        with show_progress(plan.images, expected_work(plan)) as progress:
            summary = evaluate(plan, store, executor=executor, progress=progress, **rerun)
    except KeyboardInterrupt:
        say_interrupted(out)
        raise
    unsteady = list_unsteady(store, plan.subjects, plan.cells)
    for note in unsteady:
        print_error(note)
    measured = _measure_detectors(detectors, settings, out, executor)
    if as_json:
        document = {
            **summary._asdict(),
            "traffic": summary.traffic.spec,
            "left_out": dict(plan.failed),
            "chosen": line.removeprefix("chosen: "),
        }
        document["warnings"] = [*unsteady, *warnings]
        if measured is not None:
            document["detectors"] = detections_document(measured)
        print(json.dumps(document, indent=2))  # noqa: T201
    else:
        _print_summary(summary, plan, out)
        if measured is not None:
            print_detections(measured)
    _say_radii(store, plan)
    _say_hints(store, plan)
    if not as_json:
        _say_next(summary, plan, store, out)
    reasons = [*summary.failed.values(), *plan.failed.values()]
    if all_failed(reasons, summary.cells + len(plan.failed), "cells"):
        return 2
    return 1 if reasons else 0


def _list_notes(settings: Any, plan: Any, store: Any, warnings: list[str]) -> list[str]:
    """How models and defences are asked, what no attack can reach, and which models have changed."""
    from ..adapters.models.defences.names import describe_draws, describe_gradients
    from ..adapters.models.room.isolated import describe_isolated
    from ..engine.plan.cells import list_repeated_draws
    from ..engine.store.notes import list_changed

    passed = {name: describe_gradients(name) for name in plan.config.models}
    gradients = [f"{name}: {line}" for name, line in passed.items() if line]
    changed = list_changed(store, plan.subjects)
    drawn = [
        f"{name}: {describe_draws(name, is_random=True, draws=settings.draws, eot=settings.eot)}"
        for name in dict.fromkeys(cell.subject.model for cell in plan.cells if cell.draws)
    ]
    apart = describe_isolated(plan.config.isolation, (*plan.config.models, *plan.config.surrogate))
    return [*apart, *warnings, *gradients, *drawn, *list_repeated_draws(plan.cells), *changed]


def _make_plan(settings: Any, store: Any, executor: Any, part: str | None) -> Any:
    """The plan of an evaluation, or of a part of it; servers are asked at a rate that all parts at once keep to."""
    from ..adapters.models.remote.kept_answers import FILE as ANSWERS
    from ..engine.plan.make import make_plan
    from ..engine.plan.plan import count_processes, read_part, take_part

    chosen = read_part(part) if part else None
    at_once = count_processes(getattr(executor, "workers", 1), chosen)
    plan = make_plan(settings, transport=settings.transport(store.folder / ANSWERS, at_once))
    return take_part(plan, chosen) if chosen else plan


def _say_next(summary: Any, plan: Any, store: Any, out: Path) -> None:
    """Print the result, or of a part that others have yet to complete how to look at it."""
    from ..report.text.console import make_console

    if plan.part is not None and not _is_whole(plan, store):
        folder = shlex.quote(str(out))
        text = f"next, when every part is done: davylamp status {folder}; davylamp table {folder}"
        make_console().print(text, highlight=False, markup=False, soft_wrap=True)
    elif len(summary.failed) < len(plan.cells):
        say_result(plan, store, out)


def _is_whole(plan: Any, store: Any) -> bool:
    """Whether every cell of a plan is there, whichever part made it."""
    return set(store.keys("cells")).issuperset(cell.key for cell in plan.cells)


def _print_summary(summary: Any, plan: Any, out: Path) -> None:
    from ..adapters.models.remote.kept_answers import spent_lines
    from ..adapters.paths import expand_path
    from ..report.text.console import make_console

    console = make_console()
    kept = f", {summary.kept} kept" if summary.kept else ""
    part = "" if plan.part is None else f", part {plan.part}"
    waiting = f", {summary.unfinished} wait for pieces of other parts" if summary.unfinished else ""
    cells = "cell" if summary.done == 1 else "cells"
    counts = f"{summary.done} {cells} run{kept}, {len(summary.failed)} failed{waiting}"
    console.print(f"{out}{part}: {counts}, {summary.seconds:.0f} s", highlight=False)
    if not summary.cells:
        console.print(f"- part {plan.part} has nothing to do: there are fewer pieces than parts", highlight=False)
    if summary.traffic:
        console.print(f"- {summary.traffic.line}", highlight=False, markup=False)
    for line in spent_lines(expand_path(out)):
        console.print(f"- {line}", highlight=False, markup=False)
    for name, reason in plan.failed.items():
        console.print(f"- left out: {name}: {reason}", highlight=False, markup=False)
    names = {cell.key: f"{cell.title} on {cell.subject.model}" for cell in plan.cells}
    for key, reason in summary.failed.items():
        console.print(f"- failed: {names[key]}: {reason}", highlight=False, markup=False)
    for line in summary.damaged:
        console.print(f"- computed again: {line}", highlight=False, markup=False)
    for name, reason in summary.unmeasured.items():
        console.print(f"- not measured: {name}: {reason}", highlight=False, markup=False)
    for name, reason in summary.unknown.items():
        message = f"- identity unknown: {name}: {reason}; its cells are run again each time, but for --trust-unknown"
        console.print(message, highlight=False, markup=False)


def _say_radii(store: Any, plan: Any) -> None:
    """Print at which radius each attack at saturation was run, and why, a line on standard error for each."""
    from ..engine.cell import Cell
    from ..engine.store.notes import saturation_line
    from ..report.text.console import print_error

    for cell in plan.cells:
        if cell.search.kind == "at-saturation" and store.path("cells", cell.key).is_file():
            meta = store.read("cells", cell.key).meta
            if line := saturation_line(Cell.from_record(meta), meta):
                print_error(f"- {line}")


def _say_hints(store: Any, plan: Any) -> None:
    """Print how a model's output was read, where there was a choice, and why it may get nothing right."""
    from ..engine.store.notes import list_model_hints
    from ..report.text.console import print_error

    for line in list_model_hints(store, plan.subjects):
        print_error(f"- {line}")
