"""The commands about whole evaluations: run one, see how it stands."""

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import InvalidInput
from .options import Json, Libraries, all_failed, read_parameters, read_whole, say_assumed, split_list, split_models
from .progress import show_progress

Folder = Annotated[Path, typer.Argument(help="a results folder, made by `davylamp evaluate`")]


def evaluate_models(  # noqa: PLR0913, PLR0917 - one argument per option
    config: Annotated[Path | None, typer.Argument(help="a TOML file; options win over it")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="the results folder")] = Path("results"),
    preset: Annotated[str | None, typer.Option(help="canary, robic, aisafety, fooling, hikdeepsec, autoattack")] = None,
    models: Annotated[list[str] | None, typer.Option(help="a model, or a pattern: demo:* (repeatable)")] = None,
    defence: Annotated[list[str] | None, typer.Option(help="FILE.py:FUNCTION: each model with it, too")] = None,
    attacks: Annotated[
        list[str] | None, typer.Option(help="pgd, foolbox:pgd, best(foolbox:pgd), FILE.py:ATTACK (repeatable)")
    ] = None,
    data: Annotated[str | None, typer.Option(help="demo:imagenet, imagefolder:PATH, npz:PATH, FILE.py:LOAD")] = None,
    limit: Annotated[int | None, typer.Option(help="only this many images")] = None,
    norm: Annotated[str | None, typer.Option(help="linf, l2, l1, l0 or unrestricted; of --attacks")] = None,
    epsilon: Annotated[list[str] | None, typer.Option(help="radius, as 4/255 (repeatable); of --attacks")] = None,
    target: Annotated[str | None, typer.Option(help="second-likely, least-likely, random or CLASS")] = None,
    param: Annotated[list[str] | None, typer.Option(help="name=value (repeatable); of --attacks")] = None,
    defaults: Annotated[bool, typer.Option("--defaults", help="each library's own defaults; of --attacks")] = False,
    metric: Annotated[list[str] | None, typer.Option(help="FILE.py:FUNCTION, of each image (repeatable)")] = None,
    library: Libraries = None,
    repaired: Annotated[bool, typer.Option("--repaired", help="the repaired rows as well")] = False,
    seed: Annotated[list[str] | None, typer.Option(help="of every random choice (repeatable)")] = None,
    max_queries: Annotated[int | None, typer.Option(help="forward plus backward passes per image, at most")] = None,
    batch_size: Annotated[int | None, typer.Option(help="images per library call")] = None,
    shard_size: Annotated[int | None, typer.Option(help="images saved at once: what a killed run loses")] = None,
    pixels: Annotated[bool, typer.Option("--pixels", help="success and distance count on 8-bit images")] = False,
    transfer: Annotated[str | None, typer.Option(help="no, simple or full")] = None,
    keep_images: Annotated[bool, typer.Option("--keep-images", help="every adversarial image, lossless")] = False,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, mps")] = None,
    executor: Annotated[str, typer.Option(help="local or ray")] = "local",
    workers: Annotated[int, typer.Option(help="processes on this machine")] = 1,
    address: Annotated[str | None, typer.Option(help="of a Ray cluster; without it one is started here")] = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="run failed cells again")] = False,
    trust_unknown: Annotated[
        bool,
        typer.Option("--trust-unknown", help="keep results of a model that is partly unknown: a session"),
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="exit code 2 if a cell failed")] = False,
    print_config: Annotated[bool, typer.Option("--print-config", help="write the TOML and stop")] = False,
    as_json: Json = False,
) -> None:
    """Run models x attacks x libraries on one data set into a folder; what is there already is skipped."""
    from ..engine.plan.config import Config, config_from, read_config, read_toml, write_config
    from ..engine.plan.make import check_config
    from ..engine.run.choose import choose_executor

    if config is not None and preset is not None:
        raise InvalidInput(f"expected a TOML file or a preset, got {config} and {preset}; start from --print-config")
    named = {} if config is None else read_toml(config)
    settings = config_from({}) if config is None else read_config(config)
    if preset is not None:
        from ..engine.plan.presets import find_preset

        settings = find_preset(preset).config
        named = {field.name: True for field in fields(Config) if getattr(settings, field.name) != field.default}
    given: dict[str, Any] = {"data": data, "limit": limit, "max_queries": max_queries, "batch_size": batch_size}
    given |= {"shard_size": shard_size, "transfer": transfer, "device": device}
    given |= {"models": split_models(models), "seeds": read_whole("--seed", seed)}
    given["libraries"] = split_list("--library", library)
    if metric:
        given["measures"] = (*settings.measures, *(name for name in metric if name not in settings.measures))
    flags = {"repaired": repaired, "pixels": pixels, "keep_images": keep_images}
    given |= {name: True for name, flag in flags.items() if flag}
    of_attacks = (norm, epsilon, target, param, defaults or None)
    if attacks:
        where = {"libraries": given["libraries"] or settings.libraries, "repaired": repaired or settings.repaired}
        shared = {"norm": norm, "target": target or "", "defaults": defaults}
        given["attacks"] = _choices(split_list("--attacks", attacks) or [], shared, epsilon, param, where)
    elif any(option is not None for option in of_attacks):
        raise InvalidInput("expected --attacks beside --norm, --epsilon, --target, --param or --defaults, got none")
    given = {name: value for name, value in given.items() if value is not None}
    settings = replace(settings, **given)
    if defence:
        from ..engine.plan.config import expand_models

        settings = expand_models(settings)
        defended = [f"{model}+{function}" for model in settings.models for function in defence]
        settings = replace(settings, models=(*settings.models, *defended))
    check_config(settings)
    if print_config:
        print(write_config(settings), end="")  # noqa: T201 - standard output is the product
        return
    chosen = choose_executor(executor, workers=workers, address=address, device=settings.device)
    code = _run(
        settings, out, chosen, {*named, *given}, retry_failed=retry_failed, trust_unknown=trust_unknown, as_json=as_json
    )
    if code:
        raise typer.Exit(2 if strict else code - 1)


def _choices(
    attacks: list[str],
    shared: dict[str, Any],
    epsilon: list[str] | None,
    param: list[str] | None,
    where: dict[str, Any],
) -> tuple[Any, ...]:
    """Every attack with every radius; a parameter goes to the attacks that have it."""
    from ..engine.plan.choices import check_one_norm, spread_parameters
    from ..engine.plan.config import choice_from
    from ..report.text.console import print_error

    own, notes = spread_parameters(attacks, read_parameters({}, param or [], attacks), **where)
    choices = tuple(
        choice_from({**shared, "attack": attack, "epsilon": radius, "parameters": parameters})
        for attack, parameters in zip(attacks, own, strict=True)
        for radius in split_list("--epsilon", epsilon) or [None]
    )
    check_one_norm(choices, **where)
    for note in notes:
        print_error(f"- {note}")
    return choices


def _run(
    settings: Any,
    out: Path,
    executor: Any,
    given: set[str],
    *,
    retry_failed: bool,
    trust_unknown: bool,
    as_json: bool,
) -> int:
    """Evaluate and say how it went; 0 if no cell failed, 1 if some did, 2 if all did."""
    from ..adapters.paths import expand_path
    from ..engine.attack.reach import list_unreachable
    from ..engine.plan.chosen import chosen_line
    from ..engine.plan.make import make_plan
    from ..engine.plan.presets import describe_preset
    from ..engine.run.evaluate import evaluate
    from ..engine.store.store import ResultsStore
    from ..report.text.console import print_error

    if expand_path(out).is_file():
        raise InvalidInput(f"expected a folder for -o, got the file {out}")
    plan = make_plan(settings)
    store = ResultsStore(out)
    line = chosen_line(plan.config, plan.cells, given)
    if line:
        print_error(line)
    warnings = list_unreachable(plan.cells)
    say_assumed(cell.row for cell in plan.cells)
    for told in (*describe_preset(plan.config.preset), *warnings):
        print_error(f"- {told}")
    rerun = {"retry_failed": retry_failed, "trust_unknown": trust_unknown}
    try:
        with show_progress(plan.images) as progress:
            summary = evaluate(plan, store, executor=executor, progress=progress, **rerun)
    except KeyboardInterrupt:
        print_error(f"davylamp: interrupted; {out} keeps what is finished, the same command goes on from there")
        raise
    if as_json:
        document = {**summary._asdict(), "left_out": dict(plan.failed), "chosen": line.removeprefix("chosen: ")}
        document["warnings"] = warnings
        print(json.dumps(document, indent=2))  # noqa: T201
    else:
        _print_summary(summary, plan, out)
    _say_hints(store, plan)
    reasons = [*summary.failed.values(), *plan.failed.values()]
    if all_failed(reasons, len(plan.cells) + len(plan.failed), "cells"):
        return 2
    return 1 if reasons else 0


def _print_summary(summary: Any, plan: Any, out: Path) -> None:
    from ..report.text.console import make_console

    console = make_console()
    kept = f", {summary.kept} kept" if summary.kept else ""
    console.print(
        f"{out}: {summary.done} cells run{kept}, {len(summary.failed)} failed, {summary.seconds:.0f} s", highlight=False
    )
    for name, reason in plan.failed.items():
        console.print(f"- left out: {name}: {reason}", highlight=False, markup=False)
    names = {cell.key: f"{cell.attack} on {cell.subject.model}" for cell in plan.cells}
    for key, reason in summary.failed.items():
        console.print(f"- failed: {names[key]}: {reason}", highlight=False, markup=False)
    for line in summary.damaged:
        console.print(f"- computed again: {line}", highlight=False, markup=False)
    for name, reason in summary.unknown.items():
        told = f"- identity unknown: {name}: {reason}; its cells are run again each time, but for --trust-unknown"
        console.print(told, highlight=False, markup=False)


def _say_hints(store: Any, plan: Any) -> None:
    """Print why a model may get nothing right, a line on standard error for each."""
    from ..adapters.models.outputs import explain_accuracy
    from ..engine.store.outcomes import clean_predictions
    from ..report.text.console import print_error

    for subject, _ in plan.subjects:
        predictions = clean_predictions(store, subject)
        if predictions is not None and (hint := explain_accuracy(*predictions)):
            print_error(f"- {subject.model}: {hint}")


def show_status(folder: Folder, as_json: Json = False) -> None:
    """Show the cells of a results folder: done, failed (with the reason), running or waiting; and damaged files."""
    from collections import Counter

    from ..engine.store.frames import list_cells, list_damaged, list_left_out
    from ..engine.store.outcomes import remedy
    from ..report.text.console import make_console, print_table

    states, damaged, left_out = list_cells(folder), list_damaged(folder), list_left_out(folder)
    rows = [
        {
            "cell": state.key,
            "model": state.cell.subject.model,
            "attack": state.cell.attack,
            "norm": state.cell.threat_model.norm,
            "epsilon": state.cell.threat_model.epsilon,
            "images": state.cell.subject.images,
            "seed": state.cell.seed,
            "status": state.status,
            "seconds": state.meta.get("seconds"),
            "reason": state.reason,
        }
        for state in states
    ]
    if as_json:
        print(json.dumps({"cells": rows, "damaged": damaged, "left_out": left_out}, indent=2))  # noqa: T201
        return
    console = make_console()
    counts = Counter(state.status for state in states)
    title = ", ".join(f"{number} {status}" for status, number in sorted(counts.items())) or "no cells"
    print_table(f"{folder}: {title}", list(rows[0]) if rows else [], [list(row.values()) for row in rows], console)
    for name, reason in left_out.items():
        console.print(f"- left out: {name}: {reason}", highlight=False, markup=False)
    for line in damaged:
        console.print(f"- {line}{remedy(line)}", highlight=False, markup=False)
