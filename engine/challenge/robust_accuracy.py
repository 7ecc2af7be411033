"""Robust accuracy of one model under an ensemble of attacks. Each attack runs on the images that are not fooled yet."""

import math
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ...adapters import Classifier
from ...adapters.catalogue.default_threat_model import default_epsilon
from ...adapters.data.datasets import Data, load_data_for, open_data_for
from ...adapters.display_text import format_radius
from ...adapters.models.classifier import DRAWS
from ...adapters.result import VARYING
from ...adapters.running.run import DEFAULT_BATCH_SIZE
from ...errors import AttackFailed, InvalidInput
from ..cell_defaults import SHARD_SIZE
from ..checks.check_folder import check_folder
from ..finding import Finding, plain
from ..plan.build_plan import make_plan
from ..plan.cells import short_steps_warnings
from ..plan.config import AttackChoice, Config
from ..plan.plan import Plan
from ..run.evaluate import EvaluationSummary, evaluate
from ..run.executor import Progress
from ..sequential.evaluate_until import evaluate_until
from ..sequential.question import Question
from ..sources import LOADED_HERE, DrawnImages, LoadOptions
from ..statistics.bootstrap import Estimate
from ..store.notes import list_model_hints, list_unsteady
from ..store.results import RunResult, read_outcomes
from ..store.store import ResultsStore
from ..tables.estimates import NOTHING
from ..tables.table import build_table
from .suite import ENOUGH, ON_MARGIN, check_norm, choose_row

STEPS, QUERIES, CANDIDATES, EOT = 100, 5000, 10, 20  # as in AutoAttack's standard and, for EOT, rand versions
_AUTHORS = "pyautoattack"
_CHANCE = 0.002  # rate of images that Square may fool beyond the gradient attacks, as in AutoAttack


@contextmanager
def no_progress(_plan: Plan) -> Iterator[None]:
    """Context manager for `measure_robust_accuracy` that shows no progress."""
    yield None


class Ensemble(NamedTuple):
    """An ensemble of attacks.

    Args:
        title: name of the ensemble, such as "AutoAttack standard".
        attacks: the attacks, in the order in which they run: cheap attacks first.
    """

    title: str
    attacks: tuple[AttackChoice, ...]


class EnsembleStep(NamedTuple):
    """Result of one attack of an ensemble.

    Args:
        attack: implementation, such as "pyautoattack:apgd-ce".
        attacked: number of attacked images, which no earlier attack fooled. For a randomised model, an image is also
            attacked if at least one sample was still classified correctly.
        fooled: number of images that the attack fooled. For a randomised model, an image counts if at least half of the
            samples are fooled.
    """

    attack: str
    attacked: int
    fooled: int

    def __str__(self) -> str:
        return f"{self.attack}: fooled {self.fooled} of {self.attacked}"


@dataclass(frozen=True, repr=False)
class RobustAccuracy:
    """Clean accuracy of a model, and its robust accuracy under an ensemble of attacks.

    Args:
        model: name of the model.
        norm: norm of the threat model.
        epsilon: radius, for pixels in [0, 1].
        ensemble: name of the ensemble. If attacks cannot run on the model, "without ..." and their names follow.
        clean: accuracy on clean images, with a 95 % interval and the number of images.
        robust: accuracy under attack, over the same images. Invalid results count as not robust, and as robust in the
            upper bound of the interval unless the model is at fault. NaN for a model that is random but not declared
            so: its attacked images are not judged.
        steps: results of each attack, in the order of the ensemble; empty if they are not judged.
        queries: forward plus backward passes, mean over the attacked images; NaN if none was attacked.
        warnings: warnings to read first, most important first.
        folder: results folder; None if the results were not stored.
        stopped: with `until`, where the sequence of images stopped and what it decided. `robust` and `clean` then have
            the images so far, and intervals that hold at every number of images (`engine.statistics.anytime`).
    """

    model: str
    norm: str
    epsilon: float
    ensemble: str
    clean: Estimate
    robust: Estimate
    steps: tuple[EnsembleStep, ...]
    queries: float
    warnings: tuple[str, ...] = ()
    folder: Path | None = None
    stopped: str = ""

    @property
    def sentence(self) -> str:
        """One line of text with robust and clean accuracy, their intervals, the number of images and the ensemble."""
        images = f"{self.robust.n} image{'' if self.robust.n == 1 else 's'}"
        threat = f"{self.norm} {format_radius(self.norm, self.epsilon)}"
        if math.isnan(self.robust.value):
            return f"{self.model}, {threat}: not judged: {VARYING}; {images}"
        return (
            f"{self.model}, {threat}: robust accuracy {_share(self.robust)}, "
            f"clean accuracy {_share(self.clean)}, {images}, {self.ensemble}"
            f"{self.stopped and f'; {self.stopped}'}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON types."""
        return {
            "model": self.model,
            "norm": self.norm,
            "epsilon": self.epsilon,
            "ensemble": self.ensemble,
            "clean": plain(self.clean._asdict()),
            "robust": plain(self.robust._asdict()),
            "steps": [step._asdict() for step in self.steps],
            "queries": plain(self.queries),
            "warnings": list(self.warnings),
            "folder": None if self.folder is None else str(self.folder),
            "stopped": self.stopped,
        }

    def to_frame(self) -> pd.DataFrame:
        """Return a data frame with a row for each attack. The columns are the fields of `EnsembleStep`."""
        return pd.DataFrame(self.steps, columns=EnsembleStep._fields)

    def __repr__(self) -> str:
        return "\n".join([*(f"warning: {line}" for line in self.warnings), self.sentence])

    def _repr_html_(self) -> str:
        import html

        lines = "".join(f"<p>{html.escape(line)}</p>" for line in repr(self).splitlines())
        return lines + self.to_frame().to_html(index=False)


def standard_ensemble(norm: str, epsilon: float, classes: int, *, is_random: bool = False) -> Ensemble:
    """Return the attacks of AutoAttack or, for a model with few classes, similar attacks.

    AutoAttack needs four classes, because APGD-DLR and the targeted attacks use a ratio of logit differences. With
    fewer classes, APGD on the plain margin of the logits and untargeted FAB are used instead.

    Args:
        norm: norm of the threat model, "linf" or "l2".
        epsilon: radius.
        classes: number of classes of the model.
        is_random: whether the model is randomised. AutoAttack's "rand" version then replaces its "standard" version.

    Raises:
        InvalidInput: If the norm is neither "linf" nor "l2".
        Unsupported: If no installed library implements one of the attacks.
    """
    few = classes < ENOUGH
    aimed = {"steps": STEPS, "candidates": min(CANDIDATES, classes)}
    second = (ON_MARGIN if few else "apgd-dlr", {"steps": STEPS})
    if is_random:
        rest = [second]
    elif few:
        rest = [second, ("fab", {"steps": STEPS}), ("square", {"steps": QUERIES})]
    else:
        rest = [("apgd-t", aimed), ("fab-t", aimed), ("square", {"steps": QUERIES})]
    title = f"AutoAttack {'rand' if is_random else 'standard'}"
    if few:
        title = f"margin ensemble (APGD-CE, APGD on the plain margin{'' if is_random else ', FAB, Square'})"
    names: list[tuple[str, Mapping[str, Any]]] = [("apgd-ce", {"steps": STEPS}), *rest]
    return Ensemble(title, tuple(choose_row(name, check_norm(norm), epsilon, given) for name, given in names))


def measure_robust_accuracy(  # noqa: PLR0913 - what is attacked by position, the choices by keyword
    model: str | Classifier,
    data: str | Data = "demo:imagenet",
    *,
    norm: str = "linf",
    epsilon: float | None = None,
    limit: int | None = None,
    batch_size: int | None = None,
    seed: int = 0,
    device: str = "cpu",
    out: str | Path | None = None,
    loading: LoadOptions = LOADED_HERE,
    until: Question | None = None,
    progress: Callable[[Plan], AbstractContextManager[Progress | None]] = no_progress,
) -> RobustAccuracy:
    """Measure the robust accuracy of a model under the standard ensemble (`standard_ensemble`).

    An image counts as robust if no attack of the ensemble fools the image.

    Args:
        model: name of the model, or a classifier.
        data: name of the data, or images with labels.
        norm: norm of the threat model, "linf" or "l2".
        epsilon: radius, for pixels in [0, 1]. None for the customary radius of the norm and image size.
        limit: number of images to use. None for all.
        batch_size: number of images per call of a library. None for the default.
        seed: random seed.
        device: device of a model given by name.
        out: results folder. An interrupted call with the same folder resumes. None stores no results.
        loading: options for loading models by name.
        until: question to decide. Images are evaluated in random order until the question is decided. None evaluates
            all images.
        progress: function that is called with the plan, and returns a context manager. The context manager yields the
            progress callback of `evaluate`, or None.

    Raises:
        AttackFailed: If the attacks could not be run.
        DavylampError: If a name is unknown, or if the model cannot be used on these images.
    """
    check_norm(norm)
    classifier = loading.load(model, device=device) if isinstance(model, str) else model
    name = model if isinstance(model, str) else model.name
    if not isinstance(data, str):
        images, data_name, first = data, "given", data.take([0])
    elif until is None:
        images, data_name = load_data_for(classifier, data, limit), data
        first = images.take([0])
    else:
        images, data_name, first = None, data, open_data_for(classifier, data, limit).take([0])
    radius = default_epsilon(check_norm(norm), first.inputs.numel()) if epsilon is None else epsilon
    assert radius is not None
    classes = classifier.check(first.inputs.to(classifier.device), first.labels).shape[1]
    ensemble = standard_ensemble(norm, radius, classes, is_random=classifier.random)
    config = Config(
        models=(name,),
        attacks=ensemble.attacks,
        data=data_name,
        limit=limit,
        measures=(),
        seeds=(seed,),
        batch_size=batch_size,
        stop_when_fooled=True,
        shard_size=SHARD_SIZE if until is None else batch_size or DEFAULT_BATCH_SIZE,
        judge_samples=DRAWS,
        eot=EOT if classifier.random else 1,
    )
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()) if out is None else out)
        if folder.is_file():
            raise InvalidInput(f"expected a folder for the results, got the file {out}")
        done = _measure(config, classifier, images, folder, until, progress)
    left_out = [choice.attack for choice in ensemble.attacks if choice.attack not in done.ran_attacks]
    warnings = [
        *done.unsteady,
        *_left_out(left_out, done.refused),
        *(() if done.unsteady else _doubts(done.outcome, done.steps)),
        *done.warnings,
    ]
    return RobustAccuracy(
        name,
        norm,
        radius,
        ensemble.title + (f" without {_attacks(left_out)}" if left_out else ""),
        done.clean,
        done.robust,
        done.steps,
        float(done.queries.mean()) if len(done.queries) else math.nan,
        tuple(dict.fromkeys(warnings)),
        None if out is None else Path(out),
        done.stopped,
    )


class _Measured(NamedTuple):
    """Results of `_measure`, from which `measure_robust_accuracy` builds a `RobustAccuracy`."""

    outcome: RunResult
    clean: Estimate
    robust: Estimate
    steps: tuple[EnsembleStep, ...]
    queries: np.ndarray
    ran_attacks: frozenset[str]
    refused: tuple[str, ...]
    unsteady: tuple[str, ...]
    warnings: tuple[str, ...]
    stopped: str


def _measure(
    config: Config,
    classifier: Classifier,
    images: Data | None,
    folder: Path,
    until: Question | None,
    progress: Callable[[Plan], AbstractContextManager[Progress | None]],
) -> _Measured:
    (name,) = config.models
    drawn: dict[str, DrawnImages] | None = None if until is None else {}
    plan = make_plan(config, models={name: classifier}, data=images, drawn=drawn)
    store = ResultsStore(folder)

    def run(plan: Plan, _: object = None) -> EvaluationSummary:
        with progress(plan) as advance:
            return evaluate(plan, store, progress=advance)

    stopped = ""
    if until is None or drawn is None or not plan.cells:
        summary = run(plan)
    else:
        plan, summary, record = evaluate_until(plan, drawn, store, until, seed=config.seeds[0], workers=1, run=run)
        stopped = record.sentence
    if summary.failed or not plan.cells:
        raise AttackFailed("; ".join([*summary.failed.values(), *plan.failed.values()]))
    outcomes = read_outcomes(store.folder, ["CA", "RA"])
    (cell,) = plan.cells
    outcome = next((each for each in outcomes.done if each.cell.key == cell.key), None)
    if outcome is None:
        raise InvalidInput(
            f"{folder} already contains results of {name} on a larger number of images; choose a different folder"
        )
    outcomes = replace(outcomes, done=(outcome,), failed=())
    (row,) = build_table(outcomes, by="models", metrics=["CA", "RA"], bootstrap=1).rows
    unsteady = tuple(list_unsteady(store, plan.subjects, plan.cells))
    warnings = (
        *list_model_hints(store, plan.subjects),
        *short_steps_warnings(plan.cells),
        *plan.notes,
        *_failed_checks(check_folder(outcomes)),
    )
    ran = frozenset(member.attack for member in outcome.cell.members)
    queries = (outcome.columns["forwards"] + outcome.columns["backwards"])[outcome.results.attacked]
    refused = tuple(plan.failed.values())
    robust, steps = row.metrics["RA"], steps_of(outcome)
    if unsteady:  # chance decides what an example shows
        robust, steps, stopped = NOTHING._replace(n=robust.n), (), ""
    about = steps, queries, ran, refused, unsteady, warnings
    return _Measured(outcome, row.metrics["CA"], robust, *about, stopped)


def steps_of(outcome: RunResult) -> tuple[EnsembleStep, ...]:
    """Return the result of each attack of an ensemble.

    Args:
        outcome: the finished run of the ensemble. If only one attack of the ensemble can run on the model, the run of
            this attack.
    """
    if "tried" not in outcome.columns:
        results, success = outcome.results, outcome.columns["success"]
        return (EnsembleStep(outcome.cell.attack, int(results.attacked.sum()), int(success.sum())),)
    tried, winner = outcome.columns["tried"], outcome.columns["winner"]
    return tuple(
        EnsembleStep(member.attack, int((tried > place).sum()), int((winner == place).sum()))
        for place, member in enumerate(outcome.cell.members)
    )


def _left_out(attacks: Sequence[str], reasons: Iterable[str]) -> list[str]:
    return [f"without {_attacks(attacks)}: {'; '.join(dict.fromkeys(reasons))}"] if attacks else []


def _attacks(names: Iterable[str]) -> str:
    return ", ".join(name.partition(":")[2] for name in names)


def _doubts(outcome: RunResult, steps: Iterable[EnsembleStep]) -> list[str]:
    members, lines = {each.attack: each for each in outcome.cell.members}, []
    if count := int(outcome.results.violated.sum()):
        of_model = int(outcome.results.by_model.sum())
        results = "1 result is" if count == 1 else f"{count} results are"
        fault = f" ({of_model} caused by the model, which always count as not robust)" if of_model else ""
        lines.append(f"{results} invalid{fault}. Invalid results count as not robust, and in the upper bound as robust")
    by_gradients = [member.knowledge == "white-box" for member in members.values()]
    for step in steps:
        beyond = step.fooled > _CHANCE * outcome.cell.subject.images
        if members[step.attack].knowledge != "white-box" and any(by_gradients) and beyond:
            lines.append(
                f"{_attacks([step.attack])}, a score-based attack, fools {step.fooled} of the {step.attacked} images "
                "that the gradient attacks did not: the gradients are misleading, and robust accuracy may be even "
                "lower; `davylamp challenge` runs adaptive attacks"
            )
    others = list(dict.fromkeys(member.row.library for member in members.values() if member.row.library != _AUTHORS))
    if others:
        lines.append(
            f"used {', '.join(others)} instead of AutoAttack's own code; to use AutoAttack's code, run: "
            f"pip install davylamp[{_AUTHORS}]"
        )
    return lines


def _failed_checks(checks: Iterable[Finding]) -> list[str]:
    failed: dict[str, list[str]] = {}
    for check in checks:
        if check.state == "fail":
            failed.setdefault(check.title, []).append(check.detail)
    return [f"{title}: {'; '.join(dict.fromkeys(details))}" for title, details in failed.items()]


def _share(estimate: Estimate) -> str:
    return f"{estimate.value:.1%} [{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]"
