"""Commands for detectors: list them, train one for a model, measure detectors on a results folder."""

import json
import math
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from .config_options import Given, Keyword
from .input_options import InputOptions
from .loading import LOADING, loading_keywords, tell
from .options import (
    Data,
    Json,
    Latex,
    LatexWords,
    Model,
    latex_style,
    one_format,
    split_list,
    split_settings,
)
from .table_options import TableOptions


def list_detectors(
    *,
    detector: Annotated[str | None, typer.Argument(help="show only this detector, with its parameters")] = None,
    view: TableOptions,
    as_json: Json = False,
) -> None:
    """List detectors with their training data, their defaults, and whether attacks can use their gradients."""
    from ..adapters.models.detectors.detector_rows import LEFT_OUT, ROWS, find_detector

    view.check("json" if as_json else "")
    chosen = ROWS if detector is None else [find_detector(detector)]
    rows = [_describe(row) for row in chosen]
    if as_json:
        print(json.dumps({"detectors": rows, "left_out": dict(LEFT_OUT)}, indent=2))  # noqa: T201 - the product
        return
    with view.open() as console:
        _print_detectors(rows, list(chosen) if detector is not None else [], console)
        for name, reason in {} if detector is not None else LEFT_OUT.items():
            console.print(f"not available: {name}: {reason}", highlight=False, markup=False)


def _print_detectors(rows: list[Any], chosen: list[Any], console: Any) -> None:
    """Print detectors. For those in `chosen`, the parameters are explained."""
    from ..report.text.console import print_table

    shown = ("detector", "title", "learns", "defaults", "differentiable", "source")
    print_table(
        "", shown, [[row[name] for name in shown] for row in rows], console, rest="blocks" if chosen else "drop"
    )
    if chosen:
        meanings = {name: parameter.meaning for row in chosen for name, (parameter, _) in row.params.items()}
        print_table("Parameters", ("name", "meaning"), list(meanings.items()), console)


def fit_beside(
    *,
    what: Annotated[
        str, typer.Argument(help="a detector from `davylamp detectors`, or an attack that is fitted in advance (uap)")
    ],
    model: Model = "demo:efficientnet-lite0",
    seen: InputOptions,
    data: Data = "demo:imagenet",
    limit: Annotated[
        int | None, typer.Option(help="use the first N images of --data; 30 % of them set the threshold")
    ] = None,
    attack: Annotated[str | None, typer.Option(help="attack that makes the training examples: foolbox:pgd")] = None,
    norm: Annotated[str | None, typer.Option(help="norm of the attack")] = None,
    epsilon: Annotated[str | None, typer.Option("--epsilon", "--eps", help="radius of the attack: 4/255")] = None,
    target: Annotated[
        str | None, typer.Option(help="target class of the attack: second-likely, random or a class")
    ] = None,
    attack_param: Annotated[
        list[str] | None,
        typer.Option(help="parameter name=value of the attack (repeatable)"),
        Keyword("attack_parameters"),
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(help="parameter name=value of the detector, or of the attack that is fitted (repeatable)"),
    ] = None,
    seed: Annotated[int, typer.Option(help="random seed")] = 0,
    device: Annotated[str, typer.Option(help="device: cpu, cuda, cuda:1, mps")] = "cpu",
    how: Annotated[Given, LOADING],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="file for the detector (default: detector.pt), or folder for the attack"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Train a detector for a model, or fit an attack such as a universal perturbation before an evaluation.

    A detector is written to a file for `davylamp detect`. A fitted attack is stored in a results folder, in which
    `davylamp evaluate --fit-data` finds it if the settings are the same.
    """
    from ..api.training import fit
    from ..report.text.console import make_console

    done = fit(
        what,
        seen.of(model),
        data,
        limit=limit,
        attack=attack,
        norm=norm,
        epsilon=epsilon,
        target=target,
        attack_parameters=split_settings(attack_param or []),
        parameters=split_settings(param or []),
        seed=seed,
        device=device,
        out=out,
        **loading_keywords(how),
    )
    if as_json:
        print(json.dumps(done.to_dict(), indent=2))  # noqa: T201 - the product
    else:
        more = []
        if file := done.document.get("file"):
            again = f"davylamp detect FOLDER --detector {shlex.quote(file)} measures it on other images, evaluated with"
            more = [f"- {again} --keep-images"]
        for line in (*done.headline.splitlines(), *more):
            make_console().print(line, highlight=False, markup=False, soft_wrap=True)
    for note in done.notes:
        tell(note)
    if all("failed" in each for each in done.document.get("fits", [{}])):
        raise typer.Exit(1)


def detect_examples(
    *,
    folder: Annotated[Path, typer.Argument(help="a results folder of `davylamp evaluate --keep-images`")],
    detector: Annotated[list[Path], typer.Option(help="file of a trained detector (repeatable)")],
    false_positive_rates: Annotated[
        list[str] | None,
        typer.Option("--false-positive-rates", help="false-positive rates (default: 0.01,0.05)"),
    ] = None,
    device: Annotated[str, typer.Option(help="device: cpu, cuda, cuda:1, mps")] = "cpu",
    how: Annotated[Given, LOADING],
    view: TableOptions,
    as_latex: Latex = False,
    latex_words: LatexWords = None,
    as_json: Json = False,
) -> None:
    """Measure how well detectors find the adversarial examples that a results folder stores."""
    from ..api.folders import detect

    form, style = one_format({"latex": as_latex, "json": as_json}), latex_style(latex_words)
    view.check(form)
    rates = split_list("--false-positive-rates", false_positive_rates)
    done = detect(folder, detector, false_positive_rates=rates, device=device, **loading_keywords(how))
    if form == "latex":
        from ..report.text.latex_documents import detections_latex

        print(detections_latex(done.made.rows, style), end="")  # noqa: T201 - the product
    elif form == "json":
        print(json.dumps(done.to_dict(), indent=2))  # noqa: T201 - the product
    else:
        with view.open() as console:
            print_detections(done.made, console)


def print_detections(measured: Any, console: Any = None) -> None:
    """Print measurements of detectors as a table and notes."""
    from ..report.text.console import make_console, print_table

    console = console or make_console()
    lines = [line for row in measured.rows for line in _lines(row)]
    columns = ("detector", "model", "attack", "AUC", "rate", "detected", "false alarms", "fooled, not detected")
    order = ("AUC", "rate", "detected", "false alarms", "fooled, not detected")
    print_table("Detectors; value [95 % interval] (images)", columns, lines, console, keys=3, order=order, rest="stack")
    unknowing = "these attacks did not know the detector; use MODEL+detector:FILE to attack both together"
    for note in (*measured.document()["notes"], unknowing):
        console.print(f"- {note}", highlight=False, markup=False)


def _describe(row: Any) -> dict[str, Any]:
    return {
        "detector": row.full_name,
        "name": row.name,
        "title": row.title,
        "learns": "clean and adversarial images" if row.learns_examples else "clean images",
        "defaults": {name: default for name, (_, default) in row.params.items()},
        "differentiable": row.differentiable,
        "source": row.source,
        "findings": list(row.findings),
    }


def _lines(row: Any) -> list[list[Any]]:
    interval = "" if math.isnan(row.area.low) else f" [{row.area.low:.3f}, {row.area.high:.3f}]"
    area = f"{row.area.value:.3f}{interval} ({row.fooled})"
    head = [f"{row.name} ({row.detector})", row.cell.subject.name, row.cell.title, area]
    return [[*head, f"{at.rate:g}", *map(_share, (at.detected, at.false_alarms, at.missed))] for at in row.rates]


def _share(share: Any) -> str:
    return f"{share.value:.3f} [{share.low:.3f}, {share.high:.3f}] ({share.count} of {share.n})"
