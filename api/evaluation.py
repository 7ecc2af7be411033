"""Runs attacks on models, stores the results in a folder, and represents the folder as an `Evaluation`."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pandas as pd
from torch import nn

from ..adapters.coercion import (
    read_int,
    read_list,
    read_mapping,
    read_path,
    read_radii,
    read_target,
    read_text,
)
from ..adapters.display_text import format_threat_labels
from ..adapters.models.defences.names import describe_gradients, describe_sampling
from ..adapters.models.remote.answer_cache import FILE as ANSWERS
from ..adapters.models.sandbox.isolated import describe_isolated, prestart_processes
from ..adapters.models.sandbox.isolation import attack_isolation_context
from ..adapters.models.temporary_classifier import as_classifier
from ..adapters.models.zoo.load import add_parts, check_device
from ..adapters.paths import expand_path
from ..adapters.result import UNSTEADY
from ..adapters.torch_state import with_gradients
from ..deprecation import takes_old_names
from ..engine import AttackChoice, Config, ResultsStore, build_table, load, make_plan
from ..engine import evaluate as evaluate_plan
from ..engine.detection.detect import DetectionSummary, check_detectors_match, measure_detectors, read_detectors
from ..engine.plan.build_plan import check_config
from ..engine.plan.cells import list_repeated_draws, short_steps_warnings
from ..engine.plan.choices import assumed_texts, check_one_norm, format_defaults_taken, spread_parameters
from ..engine.plan.config_file import base_config, expand_models, parameters_of, parse_attack_choice, read_parameter
from ..engine.plan.plan import Part, Plan, count_processes, plan_for_part, read_part
from ..engine.plan.presets import describe_preset
from ..engine.run.choose import choose_executor, spread_over_devices
from ..engine.run.evaluate import EvaluationSummary
from ..engine.run.run_index import with_stored_runs
from ..engine.sequential.evaluate_until import evaluate_until
from ..engine.sequential.question import Question, parse_question
from ..engine.sources import DrawnImages, LoadOptions
from ..engine.store.notes import list_changed, list_model_hints, list_saturations, list_unsteady, unsteady_subjects
from ..engine.store.results import read_outcomes
from ..engine.store.sequence import SequenceRecord
from ..engine.store.versions import mark_evaluated
from ..engine.tables.table import By, Table, TableRow
from ..errors import DavylampError, InvalidInput
from ..report.text.progress import describe_runs, show_plan
from ..scoring import Ranking
from .python_inputs import (
    classifiers_from_modules,
    coerce_data,
    coerce_fit_data,
    name_models,
    name_surrogates,
    progress_of,
    split_settings,
)

_MOST = 2**31 - 1  # of a whole number
_SHOWN = 5  # models in a repr
_MANY = 400  # runs; a repr that reads more of them would be slow
_THREAT = ("norm", "epsilon", "target", "parameters", "defaults")


@dataclass(frozen=True, repr=False)
class Evaluation(os.PathLike[str]):
    """A results folder, together with a description of the call of `evaluate` that wrote to the folder.

    An `Evaluation` can be used wherever a results folder is expected. Only the models and images of the call are then
    used, with all their results in the folder. An `Evaluation(folder)` without a call stands for the whole folder.

    Attributes:
        folder: the results folder.
        summary: numbers of finished, reused and failed runs of the call. None before the evaluation has started, and
            for a folder that was only opened.
        notes: all notes for the reader, including `chosen`, `warnings`, `unsteady` and `hints`.
        plan: the plan with the runs of the call. None for a folder that was only opened.
        chosen: sentence that lists the defaults that were used.
        warnings: warnings on attacks whose steps are too short to reach the radius.
        unsteady: messages on models that return different outputs for the same image.
        radii: for attacks at their saturation radius, sentences with the radius that was found.
        hints: notes on how the models' outputs were interpreted, and on models whose accuracy is at chance level.
        detections: results of the detectors. None without detectors.
        stopped: with `until`, sentence with the number of attacked images and the decision. Otherwise "".
        runs: if several libraries have one of the attacks, sentence with the number of runs and the libraries.
            Otherwise "".
    """

    folder: Path
    summary: EvaluationSummary | None = None
    notes: tuple[str, ...] = ()
    plan: Plan | None = None
    chosen: str = ""
    warnings: tuple[str, ...] = ()
    unsteady: tuple[str, ...] = ()
    radii: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    detections: DetectionSummary | None = None
    stopped: str = ""
    runs: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", Path(self.folder))

    @cached_property
    def evaluated(self) -> frozenset[str]:
        """Keys of the evaluated models, each together with its images. Empty if the folder was only opened."""
        return frozenset(() if self.plan is None else (subject.key for subject, _ in self.plan.subjects))

    def __fspath__(self) -> str:
        return str(self.folder)

    @property
    def failed(self) -> tuple[str, ...]:
        """Reasons why runs failed, and why models or attacks were omitted."""
        reasons = () if self.summary is None else tuple(self.summary.failed.values())
        return (*reasons, *(() if self.plan is None else self.plan.failed.values()))

    @property
    def attempted(self) -> int:
        """Number of runs, plus the number of models and attacks that were omitted before any run."""
        if self.summary is None or self.plan is None:
            return 0
        return self.summary.cells + len(self.plan.failed)

    def table(self, by: By = "attacks", **options: Any) -> Table:
        """Build a table of metrics with intervals from the results, see `davylamp.engine.build_table`."""
        return build_table(self, by=by, **options)

    def to_frame(self, *, heavy: bool = False) -> pd.DataFrame:
        """Return the results as a frame with one row per image and run, see `davylamp.engine.load`."""
        return load(self, heavy=heavy)

    def rank(
        self, subjects: Literal["models", "attacks", "implementations", "defences"] = "models", **options: Any
    ) -> Ranking:
        """Rank the models, attacks, implementations or defences in the folder, see `davylamp.rank`."""
        from .rankings import rank

        return rank(self, subjects, **options)

    def report(self, path: str | Path = "report.html") -> Path:
        """Write the HTML report of the folder to a file, and return the file's path. See `davylamp.report`."""
        from ..report.page.build import build_report, write_file

        write_file(build_report(self), Path(path))
        return Path(path)

    def __repr__(self) -> str:
        count = 0 if self.summary is None else self.summary.done
        done = (
            "" if self.summary is None else f": {count} run{'' if count == 1 else 's'} done, {self.summary.kept} reused"
        )
        reasons = dict.fromkeys(self.summary.failed.values()) if self.summary else {}
        failed = f", {len(self.summary.failed)} failed ({'; '.join(reasons)})" if self.summary and reasons else ""
        failed += "".join(f"; {note}" for note in self.notes)
        first = f"Evaluation in {self.folder}{done}{failed}; .table(), .to_frame(), .rank(), .report(path)"
        return "\n".join([first, *self._numbers()])

    def _numbers(self) -> list[str]:
        """Return clean and robust accuracy for each model and threat model, as text."""
        if self.plan is not None and len(self.plan.cells) > _MANY:
            return []
        try:
            outcomes = read_outcomes(self, ["CA", "RA"])
            rows = build_table(outcomes, by="models", metrics=["CA", "RA"], bootstrap=1).rows
        except (DavylampError, OSError):  # nothing is there yet
            return []
        unsteady = {subject.name for subject in unsteady_subjects(outcomes).values()}
        return [_row_text(row, is_unsteady=row.labels["model"] in unsteady) for row in rows[:_SHOWN]]

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def _row_text(row: TableRow, *, is_unsteady: bool) -> str:
    """Return clean and robust accuracy of a model under a threat model, as text."""
    about = f"{row.labels['model']}, {format_threat_labels(row.labels)}: "
    if is_unsteady:
        return f"{about}not judged: {UNSTEADY}"
    numbers = (f"{symbol} {each.value:.3f} [{each.low:.3f}, {each.high:.3f}]" for symbol, each in row.metrics.items())
    count = row.labels["violations"]
    return about + ", ".join(numbers) + (f", {count} invalid results" if count else "")


class _Settled(NamedTuple):
    """Result of `_settle`: the config, names of the settings that the user gave, and notes on attack parameters."""

    config: Config
    given: set[str]
    notes: tuple[str, ...]


@takes_old_names(Config)
def configure(
    models: str | Iterable[str] | None = None,
    *,
    config: Config | str | Path | None = None,
    attacks: Any = None,
    defences: Iterable[str] = (),
    **settings: Any,
) -> Config:
    """Build the `Config` that `evaluate` would use for the same arguments, without running anything.

    Raises:
        DavylampError: if an argument is wrong, see `evaluate`.
    """
    settings |= {} if models is None else {"models": name_models(models)}
    settled = _settle(config, attacks, defences, settings)
    with attack_isolation_context(settled.config.isolation):
        check_config(settled.config)
    return settled.config


@takes_old_names(Config)
@with_gradients
def evaluate(
    models: nn.Module | str | Mapping[str, nn.Module] | Iterable[str] | None = None,
    inputs: Any = None,
    labels: Any = None,
    *,
    config: Config | str | Path | None = None,
    attacks: Any = None,
    out: str | Path = "results",
    norm: str | None = None,
    epsilon: float | str | Sequence[float | str] | None = None,
    target: str = "",
    parameters: Mapping[str, Any] | None = None,
    defaults: bool = False,
    defences: Iterable[str] = (),
    names: Iterable[str] | None = None,
    executor: str = "local",
    workers: int = 1,
    address: str | None = None,
    part: str = "",
    until: str | None = None,
    surrogate: Any = None,
    detectors: Iterable[str | Path] = (),
    retry_failed: bool = False,
    trust_unknown: bool = False,
    version: str = "",
    progress: Callable[[Evaluation], AbstractContextManager[Any]] | bool = True,
    **settings: Any,
) -> Evaluation:
    """Run attacks on models, and store the results in a folder.

    After an interruption, a second call with the same arguments continues from the finished results in the folder.

    Args:
        models: a module, modules by name, or names that `load_model` accepts. Modules are not changed. None for the
            models in the config.
        inputs: images in [0, 1], shape (N, C, H, W). None to load images by name, with a setting such as
            `data="imagefolder:PATH"`.
        labels: ground truth, shape (N,).
        config: a `Config` or a TOML file. Keywords of this call override its settings.
        attacks: one attack or several: names such as "pgd", "foolbox:pgd", "best(foolbox:pgd)", "best" and
            "my_attack.py:MyAttack", attack objects, and `AttackChoice`s. None for the attacks in the config, or for
            "pgd" without a config.
        out: the results folder.
        norm: norm of the attacks, see `run_attack`. An `AttackChoice` has a norm of its own.
        epsilon: radius, see `run_attack`, or several radii. Each attack is run at every radius.
        target: target rule or target class, see `run_attack`.
        parameters: parameters of the attacks by their canonical names, such as {"steps": 5}. Parameters can also be
            given as keywords, such as `steps=5`. Each attack gets only the parameters that it accepts.
        defaults: which values parameters have that are not given. If True, each library's own defaults. If False, the
            same values in all libraries.
        defences: defences, such as "jpeg:quality=50". Each model is evaluated without a defence and with each defence.
        names: names of the images, length N. None for the indices 0 to N - 1.
        executor: "local" to run in processes on this machine, or "ray" to run on a Ray cluster.
        workers: number of processes on this machine. With `device="cuda:all"`, at least one for each GPU.
        address: address of a Ray cluster. None to start a cluster on this machine.
        part: part of the work that this call does, for a job of a job array. "3/64" is the third of 64 parts. "" for
            all work.
        until: question about the worst-case robust accuracy (RA) over all images. Images are attacked in random order,
            and the evaluation stops when the question is decided. Examples are "RA >= 0.6", "width <= 0.05" (of the
            interval of RA) and "A > B" for two models, each optionally followed by "@ linf 8/255". "ranked" asks for
            the order of all models, and "RA_union >= 0.5" is about all threat models together. The intervals remain
            valid although the number of images is not fixed in advance. None to attack all images.
        surrogate: model on which the examples are made: a module, a name, or several of these, whose logits are
            averaged. The examples are then tested on each of `models`, which the attack does not query. None to attack
            each of `models` itself.
        detectors: files of trained detectors. Each detector is measured on the adversarial examples, which are stored.
        retry_failed: whether to repeat failed runs.
        trust_unknown: whether to reuse results of code whose identity cannot be fully determined.
        version: a version label for the models. Results of a different version are never reused. Change the label
            after a change that davylamp cannot detect, such as a change of a file that the model reads during a pass.
        progress: whether to show a progress bar on a terminal, or a line in a notebook. Or a function that is called
            with the evaluation and returns a context manager. The value of the `with` statement is a function, which is
            called with the name of a run and the number of images done since the previous call.
        **settings: settings of `davylamp.Config`: limit, fit_data (a name, or images and labels), fit_limit, seeds,
            libraries, transfer, keep_images, max_queries, eight_bit, measures (groups of metrics, and
            "my_metrics.py:f") ... Also `preset`, the name of a paper whose settings are used unless they are given.

    Raises:
        DavylampError: see `davylamp.engine.make_plan` and `davylamp.engine.evaluate`.
    """
    workers, detectors = read_int(workers, "workers from 0", 0, _MOST), list(detectors)
    chosen_part = _read_part(part, executor, detectors, until)
    question = None if until is None else parse_question(read_text(until, "`until` as text"))
    trained = read_detectors(detectors)
    images, rounded = coerce_data(inputs, labels, names)
    settings |= {"norm": norm, "epsilon": epsilon, "target": target, "parameters": parameters, "defaults": defaults}
    with ExitStack() as stack:
        given, settings = (
            (None, settings) if models is None else classifiers_from_modules(models, stack, settings, version)
        )
        seen, settings = coerce_fit_data(settings)
        made_on = {} if surrogate is None else name_surrogates(surrogate)
        lent = {name: stack.enter_context(as_classifier(model)) for name, model in made_on.items() if model is not None}
        settings |= {"surrogate": tuple(made_on)} if surrogate is not None else {}
        settings |= {"keep_images": True} if trained else {}
        if images is not None:
            settings.setdefault("data", "given")
        chosen, stated, spread = _settle(config, attacks, defences, settings)
        chosen = chosen if given is not None else _of_version(chosen, version)
        stack.enter_context(attack_isolation_context(chosen.isolation))
        if given is None:
            prestart_processes(chosen.isolation, (*chosen.models, *chosen.surrogate))
        chosen, workers, devices = spread_over_devices(chosen, workers, executor)
        check_config(chosen)
        check_device(chosen.device)
        store = ResultsStore(_folder(out))
        work = choose_executor(executor, workers=workers, address=address, devices=devices)
        transport = chosen.transport(store.folder / ANSWERS, count_processes(workers, chosen_part))
        drawn: dict[str, DrawnImages] | None = None if question is None else {}
        named = {"models": given, "data": images, "surrogates": lent, "fit_data": seen, "drawn": drawn}
        plan = make_plan(chosen, **named, transport=transport)
        plan = plan if question is not None else with_stored_runs(plan, store)  # each block looks for its own
        if chosen_part:
            plan = plan_for_part(plan, chosen_part)
        check_detectors_match(trained, [subject for subject, _ in plan.subjects], chosen.isolation)
        line = format_defaults_taken(plan.config, plan.cells, stated | ({"models"} if given is not None else set()))
        warnings = short_steps_warnings(plan.cells)
        kept = "keeping adversarial images (keep_images), because the detectors need them" if trained else ""
        notes = [
            *assumed_texts(cell.row for cell in plan.cells),
            *spread,
            *filter(None, [rounded, kept]),
            *warnings,
            *_plan_notes(plan, given),
            *list_changed(store, plan.subjects),
        ]
        runs = describe_runs([cell.attack for cell in plan.runs_in_this_part], len(plan.subjects_here))
        begun = Evaluation(Path(out), None, tuple(notes), plan, line, tuple(warnings), runs=runs)
        how = {"executor": work, "retry_failed": retry_failed, "trust_unknown": trust_unknown}
        begun = _run(begun, store, question, drawn, workers, progress_of(progress, show_evaluation), how)
        plan = begun.plan or plan
        mark_evaluated(store, plan.subjects)
        detections = _detect(trained, begun, given, images, transport)
        unsteady = tuple(list_unsteady(store, plan.subjects, plan.cells))
        hints = tuple(list_model_hints(store, plan.subjects))
        left_out = (f"omitted: {name}: {reason}" for name, reason in plan.failed.items())
        radii = tuple(list_saturations(store, plan.cells))
        every = (
            begun.stopped,
            *unsteady,
            line,
            *begun.notes,
            *left_out,
            *radii,
            *hints,
            begun.summary.traffic.line if begun.summary else "",
        )
        return replace(
            begun,
            notes=tuple(filter(None, every)),
            unsteady=unsteady,
            radii=radii,
            hints=hints,
            detections=detections,
        )


def _read_part(part: str, executor: str, detectors: Sequence[Any], until: str | None) -> Part | None:
    """Parse the argument `part`, such as "3/64". Returns None for "", which stands for all work.

    Raises:
        InvalidInput: if `part` cannot be combined with one of the other arguments.
    """
    if not read_text(part, 'a part as text, such as "3/64"'):
        return None
    excluded = {
        f"`executor` {executor}": (executor != "local", "Ray distributes the runs itself"),
        "`detectors`": (detectors, "measure the detectors when all parts are done"),
        "`until`": (until is not None, "start the same command several times, and they share each block of images"),
    }
    for name, (is_given, advice) in excluded.items():
        if is_given:
            raise InvalidInput(f"`part` and {name} cannot be combined: {advice}")
    return read_part(part)


def _run(
    begun: Evaluation,
    store: ResultsStore,
    question: Question | None,
    drawn: Mapping[str, DrawnImages] | None,
    workers: int,
    progress: Callable[[Evaluation], AbstractContextManager[Any]],
    how: Mapping[str, Any],
) -> Evaluation:
    """Run the plan of an evaluation, and return the evaluation with the summary of the runs.

    If `question` is given, the images are attacked in blocks until the question is decided.
    """

    def run(plan: Plan, record: SequenceRecord | None = None) -> EvaluationSummary:
        shown = replace(begun, plan=plan)
        if record is not None and record.answers:
            shown = Evaluation(begun.folder, notes=(record.progress,), plan=plan)
        with progress(shown) as advance:
            return evaluate_plan(plan, store, progress=advance, **how)

    assert begun.plan is not None
    if question is None or drawn is None:
        return replace(begun, summary=run(begun.plan))
    seed = begun.plan.config.seeds[0]
    made = evaluate_until(begun.plan, drawn, store, question, seed=seed, workers=workers, run=run)
    notes = dict.fromkeys((*begun.notes, *made.plan.notes))
    return replace(begun, plan=made.plan, summary=made.summary, stopped=made.record.sentence, notes=tuple(notes))


def table(folder: str | PathLike[str], by: By = "attacks", **options: Any) -> Table:
    """Build a table of metrics of a results folder with intervals, see `davylamp.engine.build_table`."""
    return build_table(folder, by=by, **options)


def _of_version(config: Config, version: str) -> Config:
    """Return the config with the version label in each model name. If `version` is "", the config is unchanged."""
    expanded = expand_models(config) if version else config
    return replace(expanded, models=tuple(add_parts(name, version=version) for name in expanded.models))


def _settle(
    config: Config | str | Path | None, attacks: Any, defences: Iterable[str], settings: Mapping[str, Any]
) -> _Settled:
    """Build the config from the arguments of `evaluate`. Arguments override the settings of a file or a preset."""
    rest = {name: value for name, value in settings.items() if name not in _THREAT}
    rest, parameters = split_settings(rest, read_mapping(settings.get("parameters"), "parameters by name"))
    base, stated = base_config(config, rest.pop("preset", None))
    settled = replace(base, **rest)
    threat = {
        "norm": settings.get("norm"),
        "epsilon": read_radii(settings.get("epsilon")),
        "target": read_target(settings.get("target")),
        "defaults": settings.get("defaults", False),
    }
    if attacks is None and stated:
        if parameters or threat["epsilon"] != [None] or any(threat[name] for name in ("norm", "target", "defaults")):
            names = ", ".join(f"`{name}`" for name in _THREAT)
            raise InvalidInput(f"{names} cannot be used without `attacks`")
        chosen, notes = settled.attacks, []
    else:
        where = {"libraries": settled.libraries, "fixed": settled.fixed}
        with attack_isolation_context(settled.isolation):
            chosen, notes = _list_choices("pgd" if attacks is None else attacks, threat, parameters, where)
    settled = replace(settled, attacks=chosen)
    if several := list(defences):
        settled = expand_models(settled)
        defended = [f"{model}+{defence}" for model in settled.models for defence in several]
        settled = replace(settled, models=(*settled.models, *defended))
    return _Settled(settled, stated | {*rest}, tuple(notes))


def _list_choices(
    attacks: Any, threat: dict[str, Any], parameters: Mapping[str, Any], where: dict[str, Any]
) -> tuple[tuple[AttackChoice, ...], list[str]]:
    """Return an `AttackChoice` for each attack and radius, and notes on parameters that not every attack accepts."""
    alone = isinstance(attacks, AttackChoice) or callable(attacks)
    several = [attacks] if alone else read_list(attacks, "attacks as names, functions or AttackChoices")
    radii, rest = threat["epsilon"], {name: threat[name] for name in ("norm", "target", "defaults")}
    if any(isinstance(attack, AttackChoice) for attack in several):
        if parameters or radii != [None] or any(rest.values()):
            raise InvalidInput(
                "with an AttackChoice, set norm, epsilon, target and parameters inside it, not as keywords"
            )
        return tuple(
            each if isinstance(each, AttackChoice) else parse_attack_choice({"attack": each}) for each in several
        ), []
    more = parameters_of(several)
    parameters = {name: read_parameter(name, value, more) for name, value in parameters.items()}
    shares, notes = spread_parameters(several, parameters, **where)
    choices = tuple(
        parse_attack_choice({**rest, "attack": attack, "epsilon": radius, "parameters": share})
        for attack, share in zip(several, shares, strict=True)
        for radius in radii
    )
    check_one_norm(choices, **where)
    return choices, notes


def _plan_notes(plan: Plan, given: Mapping[str, Any] | None) -> list[str]:
    """Return notes on the preset and on the models.

    Notes on a model are about its precision, its separate process, the gradients of its defences, and its randomness.
    """
    config, lent = plan.config, given or {}
    notes = [(name, model.precision_note) for name, model in lent.items()]
    notes += [(name, describe_gradients(name)) for name in config.models]
    notes += [
        (name, describe_sampling(name, is_random=True, draws=config.judge_samples, eot=config.eot))
        for name in dict.fromkeys(cell.subject.model for cell in plan.cells if cell.draws)
    ]
    isolated = [] if given is not None else describe_isolated(config.isolation, (*config.models, *config.surrogate))
    of_models = [f"{name}: {line}" for name, line in notes if line]
    return [
        *describe_preset(config.preset),
        *plan.notes,
        *isolated,
        *of_models,
        *list_repeated_draws(plan.cells),
    ]


def _detect(
    detectors: Sequence[Any], begun: Evaluation, models: Any, images: Any, transport: Any
) -> DetectionSummary | None:
    """Measure the detectors on the adversarial examples of an evaluation. Returns None if there are no detectors."""
    if not detectors or begun.plan is None:
        return None
    config = begun.plan.config
    how = {"device": config.device, "loading": LoadOptions(transport, config.isolation)}
    try:
        return measure_detectors(begun.folder, detectors, models=models, data=images, **how)
    except DavylampError as error:  # the evaluation is finished, and stays
        return DetectionSummary((), (str(error),))


def show_evaluation(evaluation: Evaluation) -> AbstractContextManager[Any]:
    """Return the context manager that shows a progress bar for the runs of an evaluation."""
    return show_plan(evaluation.plan, evaluation.runs)


def _folder(out: Any) -> Path:
    """Convert the argument `out` to a path. Raises InvalidInput if the path is a file."""
    path = read_path(out, "out as a folder")
    if expand_path(path).is_file():
        raise InvalidInput(f"expected a folder for `out`, got the file {path}")
    return path
