"""The commands about detectors: which there are, train one beside a model, measure it on a results folder."""

import json
import math
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import InvalidInput
from .config_options import Given
from .input_options import InputOptions
from .loading import LOADING, LOADING_AT_FULL_RATE, loading_from, say_traffic
from .options import (
    Data,
    Json,
    Latex,
    LatexWords,
    Model,
    latex_style,
    one_format,
    read_parameters,
    split_list,
    split_settings,
)
from .table_options import TableOptions
from .train import Lesson, is_attack, train_attack

_FILE = Path("detector.pt")


@dataclass(frozen=True)
class AskedAttack:
    """The attack whose examples a detector learns."""

    attack: str | None
    norm: str | None
    epsilon: str | None
    target: str | None
    param: list[str]


def list_detectors(
    *,
    detector: Annotated[str | None, typer.Argument(help="show this one, with its parameters")] = None,
    view: TableOptions,
    as_json: Json = False,
) -> None:
    """List every detector of adversarial images: what it learns, its defaults, whether an attack can go around it."""
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
            console.print(f"not here: {name}: {reason}", highlight=False, markup=False)


def _print_detectors(rows: list[Any], chosen: list[Any], console: Any) -> None:
    """Detectors; the chosen one with its parameters explained."""
    from ..report.text.console import print_table

    shown = ("detector", "title", "learns", "defaults", "differentiable", "source")
    print_table(
        "", shown, [[row[name] for name in shown] for row in rows], console, rest="blocks" if chosen else "drop"
    )
    if chosen:
        meanings = {name: parameter.meaning for row in chosen for name, (parameter, _) in row.params.items()}
        print_table("Parameters", ("name", "meaning"), list(meanings.items()), console)


def train_beside(
    *,
    what: Annotated[
        str, typer.Argument(help="a detector from `davylamp detectors`, or an attack that is trained once (uap)")
    ],
    model: Model = "demo:efficientnet-lite0",
    seen: InputOptions,
    data: Data = "demo:imagenet",
    limit: Annotated[
        int | None, typer.Option(help="use the first N images of --data; 30 % of them calibrate the threshold")
    ] = None,
    attack: Annotated[
        str | None, typer.Option(help="attack whose examples the detector is trained on: foolbox:pgd")
    ] = None,
    norm: Annotated[str | None, typer.Option(help="norm of the attack")] = None,
    epsilon: Annotated[str | None, typer.Option("--epsilon", "--eps", help="radius of the attack: 4/255")] = None,
    target: Annotated[
        str | None, typer.Option(help="target class of the attack: second-likely, random or a class")
    ] = None,
    attack_param: Annotated[
        list[str] | None, typer.Option(help="parameter name=value of the attack (repeatable)")
    ] = None,
    param: Annotated[
        list[str] | None, typer.Option(help="parameter name=value of the detector or attack being trained (repeatable)")
    ] = None,
    seed: Annotated[int, typer.Option(help="random seed")] = 0,
    device: Annotated[str, typer.Option(help="device: cpu, cuda, cuda:1, mps")] = "cpu",
    how: Annotated[Given, LOADING],
    out: Annotated[Path, typer.Option("--out", "-o", help="file for the detector, or folder for the attack")] = _FILE,
    as_json: Json = False,
) -> None:
    """Train a detector for a model (a file for `davylamp detect`), or an attack that is trained once (a folder).

    What an attack learned is used by `davylamp evaluate --fit-data` with the same settings, into that folder.
    """
    from ..adapters.data.datasets import load_data_for
    from ..adapters.models.detectors.detector_file import read_detector_name
    from ..engine.detection.train_detector import check_shown, save_detector, train_detector
    from ..engine.store.files import check_place
    from ..report.text.console import make_console, print_error

    model = seen.of(model)
    if seed < 0:
        raise InvalidInput(f"expected seed >= 0, got {seed}")
    if is_attack(what):
        if out == _FILE or attack or target or attack_param:
            wanted = "-o FOLDER, and neither --attack, --target nor --attack-param"
            raise InvalidInput(f"expected {wanted} to train {what}, which is an attack")
        lesson = Lesson(model, data, limit, norm, epsilon, param or [], seed, device, how)
        train_attack(what, lesson, out, as_json=as_json)
        return
    row, values = read_detector_name(what, split_settings(param or []))
    asked = AskedAttack(attack, norm, epsilon, target, attack_param or [])
    check_shown(row, None if attack is None else _named(attack))
    check_place(out)
    classifier = loading_from(how, [model]).load(model, device)
    images = load_data_for(classifier, data, limit)
    shown = _shown(asked, images.inputs[0].numel())
    if shown is not None:
        rules = shown.threat_model
        print_error(f"chosen: {shown.attack}, norm {rules.norm}, epsilon {rules.epsilon}, seed {seed}")
    trained = train_detector(row.full_name, classifier, images, shown, model=model, seed=seed, **values)
    save_detector(trained, out)
    say_traffic([classifier])
    if as_json:
        print(json.dumps({"file": str(out), **trained.card}, indent=2))  # noqa: T201 - the product
        return
    counts, file = trained.card["trained_on"], shlex.quote(str(out))
    lines = [
        f"{out}: {row.full_name} beside {model}, learned from {counts['clean']} clean and {counts['adversarial']} "
        f"adversarial images; its line is drawn on {trained.card['calibrated_on']} other clean ones",
        f"- davylamp detect FOLDER --detector {file}: on examples of other images, kept by --keep-images",
    ]
    for line in lines:
        make_console().print(line, highlight=False, markup=False, soft_wrap=True)


def detect_examples(
    *,
    folder: Annotated[Path, typer.Argument(help="a results folder of `davylamp evaluate --keep-images`")],
    detector: Annotated[list[Path], typer.Option(help="file of a trained detector (repeatable)")],
    false_alarms: Annotated[
        list[str] | None, typer.Option("--false-alarms", "--rate", help="false-positive rates (default: 0.01,0.05)")
    ] = None,
    device: Annotated[str, typer.Option(help="device: cpu, cuda, cuda:1, mps")] = "cpu",
    how: Annotated[Given, LOADING_AT_FULL_RATE],
    view: TableOptions,
    as_latex: Latex = False,
    latex_words: LatexWords = None,
    as_json: Json = False,
) -> None:
    """Measure detectors on kept examples: ROC AUC, detection at given false-positive rates, undetected successes."""
    from ..adapters.parameters import parse_number
    from ..engine.detection.detect import list_unscored, measure_detectors, read_detectors
    from ..engine.detection.judging import RATES
    from ..engine.store.outcomes import outcomes_of

    form, style = one_format({"latex": as_latex, "json": as_json}), latex_style(latex_words)
    view.check(form)
    texts = split_list("--false-alarms", false_alarms) or []
    rates = tuple(parse_number(text, "false-alarms") for text in texts) or RATES
    detectors, outcomes = read_detectors(detector, rates), outcomes_of(folder)
    loading = loading_from(how, list_unscored(outcomes, detectors), folder=outcomes.store.folder)
    measured = measure_detectors(outcomes, detectors, rates=rates, device=device, loading=loading)
    if form == "latex" and measured.rows:
        from ..report.text.latex_documents import detections_latex

        print(detections_latex(measured.rows, style), end="")  # noqa: T201 - the product
    elif form == "json":
        print(json.dumps(detections_document(measured), indent=2))  # noqa: T201 - the product
    else:
        with view.open() as console:
            print_detections(measured, console)
    if not measured.rows:
        why = next(iter(measured.notes), "no finished cell; evaluate with --keep-images")
        raise InvalidInput(f"expected examples in {folder} that the detectors can be measured on, got none: {why}")


def detections_document(measured: Any) -> dict[str, Any]:
    """What detectors came to, as JSON types."""
    return {"detections": [_as_json(row) for row in measured.rows], "notes": _notes(measured)}


def print_detections(measured: Any, console: Any = None) -> None:
    """What detectors came to, as a table and notes."""
    from ..report.text.console import make_console, print_table

    console = console or make_console()
    lines = [line for row in measured.rows for line in _lines(row)]
    columns = ("detector", "model", "attack", "AUC", "rate", "detected", "false alarms", "fooled, not detected")
    order = ("AUC", "rate", "detected", "false alarms", "fooled, not detected")
    print_table("Detectors; value [95 % interval] (images)", columns, lines, console, keys=3, order=order, rest="stack")
    unknowing = "the attacks here did not know the detector: MODEL+detector:FILE is attacked together with it"
    for note in (*_notes(measured), unknowing):
        console.print(f"- {note}", highlight=False, markup=False)


def _notes(measured: Any) -> list[str]:
    return list(dict.fromkeys([*measured.notes, *(note for row in measured.rows for note in row.notes)]))


def _named(attack: str) -> Any:
    """An attack about which nothing is known but its name."""
    from ..adapters import ThreatModel
    from ..engine.detection.train_detector import LearnedAttack as Examples

    return Examples(attack, ThreatModel("linf"), {})


def _shown(asked: AskedAttack, components: int) -> Any:
    """The attack with its threat model; None without one."""
    from ..adapters.catalogue.customary import choose_threat_model
    from ..adapters.catalogue.lookup import row_of
    from ..adapters.parameters import parse_number
    from ..adapters.running.targets import check_target
    from ..engine.detection.train_detector import LearnedAttack as Examples

    if asked.attack is None:
        return None
    attacks = split_list("--attack", [asked.attack]) or []
    if len(attacks) != 1:
        raise InvalidInput(f"expected one attack, got {asked.attack}")
    row = row_of(attacks[0])
    radius = None if asked.epsilon is None else parse_number(asked.epsilon, "epsilon")
    target = check_target(asked.target) if asked.target else ""
    rules = choose_threat_model(row.attack, [row], components, norm=asked.norm, epsilon=radius, targeted=bool(target))
    given = read_parameters({}, asked.param, attacks)
    return Examples(row.name, rules, given, target or "second-likely")


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
    """A line for each rate of false alarms."""
    interval = "" if math.isnan(row.area.low) else f" [{row.area.low:.3f}, {row.area.high:.3f}]"
    area = f"{row.area.value:.3f}{interval} ({row.fooled})"
    head = [f"{row.name} ({row.detector})", row.cell.subject.name, row.cell.title, area]
    return [[*head, f"{at.rate:g}", *map(_share, (at.detected, at.false_alarms, at.missed))] for at in row.rates]


def _share(share: Any) -> str:
    return f"{share.value:.3f} [{share.low:.3f}, {share.high:.3f}] ({share.count} of {share.n})"


def _as_json(row: Any) -> dict[str, Any]:
    from dataclasses import asdict

    rates = [
        {**asdict(at), **{k: at_share(getattr(at, k)) for k in ("detected", "false_alarms", "missed")}}
        for at in row.rates
    ]
    said = {"detector": row.detector, "name": row.name, "model": row.cell.subject.name, "attack": row.cell.title}
    rules = row.cell.threat_model
    said |= {"cell": row.cell.key, "norm": rules.norm, "epsilon": rules.epsilon}
    numbers = {"fooled": row.fooled, "clean": row.clean, "left_out": row.left_out}
    area = {word: _number(value) for word, value in row.area._asdict().items()}
    return {**said, **numbers, "auc": area, "rates": rates}


def at_share(share: Any) -> dict[str, Any]:
    """A share as JSON has it."""
    return {word: _number(value) for word, value in {**share._asdict(), "value": share.value}.items()}


def _number(value: Any) -> Any:
    """A number, null where it is none."""
    return None if isinstance(value, float) and math.isnan(value) else value
