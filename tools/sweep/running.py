"""Runs one case on a model of its shape, and checks the result."""

import json
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

import davylamp
from davylamp.adapters.catalogue.known_issues import FINDINGS
from davylamp.adapters.catalogue.lookup import accepts_parameter
from davylamp.adapters.result import fault_of
from davylamp.engine.plan.config import AttackChoice
from davylamp.errors import InvalidInput, Unsupported
from davylamp.tools.fuzz.fixture import call, in_folder
from davylamp.tools.sweep.cases import SweepCase, rows_of

_FITTED = " fitted on the evaluation images"
SIDE = 8
NET = """
from davylamp.tools.sweep.running import make_model


def of_{0}_{1}():
    return make_model({0}, {1})
"""
ATTACK_FILE = "from davylamp.tools.sweep.running import nudge\n"


class SweepAnswer(NamedTuple):
    """Result of a call: the implementations that ran, the faults, and in `refused` the reason if none ran."""

    ran: frozenset[str] = frozenset()
    faults: tuple[str, ...] = ()
    refused: str = ""


@cache
def make_model(classes: int, channels: int) -> nn.Module:
    """Return a convolution and a linear layer around grey 0.5, so that noise is assigned to every class."""
    torch.manual_seed(classes)
    last = nn.Linear(4 * SIDE * SIDE, classes)
    model = nn.Sequential(nn.Conv2d(channels, 4, 3, padding=1), nn.Tanh(), nn.Flatten(), last)
    with torch.no_grad():
        noise = torch.rand(64, channels, SIDE, SIDE)
        last.bias -= model(noise).mean(0)
        last.weight *= 20
        last.bias *= 20
    return model.eval()


@cache
def make_images(classes: int, channels: int, count: int) -> tuple[Tensor, Tensor]:
    """Return noise images, with the model's predictions as labels."""
    generator = torch.Generator().manual_seed(1)
    inputs = torch.rand(count, channels, SIDE, SIDE, generator=generator)
    inputs = (inputs * 255).round() / 255
    return inputs, make_model(classes, channels)(inputs).argmax(1)


def faults_of(case: SweepCase) -> list[str]:
    """Return the faults of a case's result. Empty if it ran, or was refused with a reason."""
    try:
        first = by_terminal(case) if case.verb == "terminal" else by_python(case)
        faults = list(first.faults)
        if first.refused and case.form not in ("search", "saturation"):
            faults += [f"`compare` refuses a case that {name} runs: {first.refused}" for name in _alone(case)]
        if case.verb == "evaluate" or first.refused:
            second = by_evaluate(case)
            faults += second.faults
            alone = first.ran <= {"user:nudge", "best(foolbox:pgd)"}  # beside an attack that nobody can run so
            if bool(first.refused) != bool(second.refused) and not (alone and second.refused):
                faults.append(f"compare: {first.refused or 'runs'}; evaluate: {second.refused or 'runs'}")
            elif first.ran and second.ran and first.ran != second.ran:
                faults.append(f"compare runs {sorted(first.ran)}, evaluate {sorted(second.ran)}")
    except Exception as error:
        faults = [f"{type(error).__name__}: {error}"]
    return faults


def by_python(case: SweepCase) -> SweepAnswer:
    """Run a case by `davylamp.compare`."""
    inputs, labels = make_images(case.classes, case.channels, case.images)
    try:
        comparison = davylamp.compare(
            case.name,
            make_model(case.classes, case.channels),
            inputs,
            labels,
            **_rules(case),
            fixed=case.form == "repaired",
            defaults=case.form == "defaults",
            also=_beside(case, nudge),
            **case.parameters,
        )
    except (Unsupported, InvalidInput) as error:
        return _refused(str(error))
    faults = []
    for row in comparison.rows:
        error = row.error or next(iter(row.result.errors if row.result else ()), "")
        if error and not row.excused and not _may_crash(row.findings):
            faults.append(f"{row.implementation.name}: {error}")
        if row.excused and not row.error:
            faults.append(f"{row.implementation.name} is omitted without a reason")
    guilty = {row.implementation.name for row in comparison.rows if not row.excused and (row.error or _broke(row))}
    for pair in comparison.pairs:
        if pair.verdict == "broken" and not set(pair.weaker.split(" and ")) <= guilty:
            faults.append(f"broken: {pair.weaker}: {pair.judgement.reason}")
    ran = frozenset(row.implementation.name for row in comparison.rows if row.result is not None)
    return SweepAnswer(
        ran, tuple(faults), comparison.rows[0].error if all(row.excused for row in comparison.rows) else ""
    )


def by_terminal(case: SweepCase) -> SweepAnswer:
    """Run a case by the command `davylamp compare`."""
    folder = Path(_world(case.classes, case.channels).name)
    inputs, labels = make_images(case.classes, case.channels, case.images)
    arrays = folder / f"images_{case.images}.npz"
    if not arrays.exists():
        np.savez(arrays, inputs=(inputs.numpy() * 255).round().astype(np.uint8), labels=labels.numpy())
    words = ["compare", case.name, "--model", f"net.py:of_{case.classes}_{case.channels}"]
    words += ["--data", f"npz:{arrays.name}", "--norm", case.norm, "--isolate", "no"]
    words += [] if case.epsilon is None else ["--epsilon", str(case.epsilon)]
    words += ["--target", case.target] if case.target else []
    words += {"repaired": ["--fixed"], "defaults": ["--defaults"]}.get(case.form, [])
    words += [word for other in _beside(case, "own.py:nudge") for word in ("--also", other)]
    words += [word for name, value in case.parameters.items() for word in ("--param", f"{name}={value}")]
    with in_folder(folder):
        answer = call([*words, "--json"])
    if answer.crash or answer.code not in {0, 1}:
        return SweepAnswer(faults=(f"exit {answer.code}: {answer.crash or answer.err}",))
    if not answer.out:
        return _refused(answer.err)
    rows = json.loads(answer.out)["rows"]
    faults = [row["error"] for row in rows if "crash" in (row["error"] or "") and not _may_crash(row["findings"])]
    return SweepAnswer(frozenset(row["implementation"] for row in rows if not row["error"]), tuple(faults))


def by_evaluate(case: SweepCase) -> SweepAnswer:
    """Run a case by `davylamp.evaluate`."""
    inputs, labels = make_images(case.classes, case.channels, case.images)
    given = _rules(case)
    asked = AttackChoice(case.name, **given, parameters=case.parameters, defaults=case.form == "defaults")
    attacks = [asked, *(AttackChoice(each, **given) for each in _beside(case, nudge))]
    try:
        with tempfile.TemporaryDirectory() as folder:
            made = davylamp.evaluate(
                make_model(case.classes, case.channels),
                inputs,
                labels,
                attacks=attacks,
                out=folder,
                fixed=case.form == "repaired",
            )
            assert made.summary is not None
            names = () if made.summary.all_failed else made.to_frame()["implementation"]
            ran = {name.removesuffix(_FITTED) for name in names}
    except (Unsupported, InvalidInput) as error:
        return _refused(str(error))
    known = any(_may_crash(row.findings) for row in rows_of(case.attack))
    faults = [f"evaluate: {name}: {why}" for name, why in made.summary.failed.items() if not known]
    return SweepAnswer(frozenset(ran), tuple(faults))


def nudge(
    model: nn.Module,  # noqa: ARG001
    inputs: Tensor,
    labels: Tensor,  # noqa: ARG001
    epsilon: float = 0.1,
    targets: Tensor | None = None,  # noqa: ARG001
) -> Tensor:
    """Make every pixel slightly brighter, as an example of a user's attack."""
    return (inputs + epsilon / inputs[0].numel()).clamp(0, 1)


def _rules(case: SweepCase) -> dict[str, Any]:
    return {"norm": case.norm, "epsilon": case.epsilon, "target": case.target}


def _beside(case: SweepCase, function: Any) -> list[Any]:
    if case.form == "with" and case.norm != "unrestricted":
        return [function]
    if case.form == "search" and case.name == case.attack and case.norm in ("linf", "l2"):
        return ["best(foolbox:pgd)"]
    return []


def _alone(case: SweepCase) -> list[str]:
    """Return the implementations that run by themselves in a case."""
    model, data = make_model(case.classes, case.channels), make_images(case.classes, case.channels, case.images)
    ran = []
    for row in rows_of(case.attack):
        if case.norm in row.classes and (case.form == "repaired" or not row.variant):
            given = {name: value for name, value in case.parameters.items() if accepts_parameter(row, name)}
            try:
                davylamp.run_attack(row, model, *data, **_rules(case), **given)
            except (Unsupported, InvalidInput):
                continue
            ran.append(row.name)
    return ran


def _may_crash(findings: Iterable[str]) -> bool:
    """Return whether an error is a known defect of the library."""
    return any("crash" in FINDINGS[key] or "error" in FINDINGS[key] for key in findings)


def _broke(row: Any) -> bool:
    return any(fault_of(kinds) == "library" for kinds in row.result.violations)


def _refused(why: str) -> SweepAnswer:
    """Return the result for a refused call. A missing reason is a fault."""
    return SweepAnswer(refused=why or "?", faults=() if why.strip() else ("refused without a reason",))


@cache
def _world(classes: int, channels: int) -> tempfile.TemporaryDirectory[str]:
    """Create a folder with the model and the user's attack in files, which exists until the process ends."""
    made = tempfile.TemporaryDirectory(prefix="davylamp-sweep-")
    folder = Path(made.name)
    (folder / "net.py").write_text(NET.format(classes, channels), encoding="utf-8")
    (folder / "own.py").write_text(ATTACK_FILE, encoding="utf-8")
    return made
