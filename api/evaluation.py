"""Runs attacks on models into a results folder, and represents that folder."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
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
from ..engine.store.notes import list_changed, list_model_hints, list_saturations, list_unsteady
from ..engine.store.sequence import SequenceRecord
from ..engine.store.store import EvaluatedFolder
from ..engine.store.versions import mark_evaluated
from ..engine.tables.table import By, Table
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
class Evaluation:
    """A results folder, and information on the call that filled it.

    Its methods and repr, and `davylamp.gate` and `assert_robust` of an evaluation, are about the models and images of
    the call, with all results that the folder has for them. `Evaluation(folder)` is about the whole folder.

    Attributes:
        folder: the folder of the records.
        summary: summary of the call; None if the folder was only opened, or the evaluation has not started.
        notes: all notes, including `chosen`, `warnings`, `unsteady` and `hints`.
        plan: the evaluated plan.
        chosen: the defaults that were used, in a sentence.
        warnings: warnings on attacks whose steps cannot reach their radius.
        unsteady: messages on models that return different outputs for the same image.
        radii: radius of each attack at saturation, with the reason.
        hints: notes on how outputs were interpreted, and on models at chance accuracy.
        detections: results of the detectors; None without detectors.
        stopped: with `until`, the number of attacked images and the decision.
        runs: sentence with the number of runs, and with the libraries of each attack that several libraries have. "" if
            there is no such attack.
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

    @property
    def evaluated(self) -> frozenset[str]:
        """Keys of the models on their images that the call evaluated; empty if the folder was only opened."""
        return frozenset(() if self.plan is None else (subject.key for subject, _ in self.plan.subjects))

    @property
    def source(self) -> Any:
        """Path of the results, for functions that read a folder: restricted to `evaluated`, if that is not empty."""
        return EvaluatedFolder(self.folder, self.evaluated) if self.evaluated else self.folder

    @property
    def failed(self) -> tuple[str, ...]:
        """Reasons why runs failed, and why models or attacks were omitted."""
        reasons = () if self.summary is None else tuple(self.summary.failed.values())
        return (*reasons, *(() if self.plan is None else self.plan.failed.values()))

    @property
    def attempted(self) -> int:
        """Number of runs and of models and attacks that were omitted before they could run."""
        if self.summary is None or self.plan is None:
            return 0
        return self.summary.cells + len(self.plan.failed)

    def table(self, by: By = "attacks", **options: Any) -> Table:
        """Build a table of metrics with intervals, see `davylamp.engine.build_table`."""
        return build_table(self.source, by=by, **options)

    def to_frame(self, *, heavy: bool = False) -> pd.DataFrame:
        """Return one row per image and run, see `davylamp.engine.load`."""
        return load(self.source, heavy=heavy)

    def rank(
        self, subjects: Literal["models", "attacks", "implementations", "defences"] = "models", **options: Any
    ) -> Ranking:
        """Rank the results, see `davylamp.rank`."""
        from .rankings import rank

        return rank(self.source, subjects, **options)

    def report(self, path: str | Path = "report.html") -> Path:
        """Write the report, see `davylamp.report`, and return its path."""
        from ..report.page.build import build_report, write_file

        write_file(build_report(self.source), Path(path))
        return Path(path)

    def __repr__(self) -> str:
        count = 0 if self.summary is None else self.summary.done
        done = (
            "" if self.summary is None else f": {count} run{'' if count == 1 else 's'} done, {self.summary.kept} reused"
        )
        failed = f", {len(self.summary.failed)} failed" if self.summary and self.summary.failed else ""
        failed += "".join(f"; {note}" for note in self.notes)
        first = f"Evaluation in {self.folder}{done}{failed}; .table(), .to_frame(), .rank(), .report(path)"
        return "\n".join([first, *self._numbers()])

    def _numbers(self) -> list[str]:
        """Return clean and robust accuracy for each model and threat model, as text."""
        if self.plan is not None and len(self.plan.cells) > _MANY:
            return []
        try:
            rows = self.table("models", metrics=["CA", "RA"], bootstrap=1).rows
        except (DavylampError, OSError):  # nothing is there yet
            return []
        return [
            f"{row.labels['model']}, {format_threat_labels(row.labels)}: "
            + ", ".join(
                f"{symbol} {each.value:.3f} [{each.low:.3f}, {each.high:.3f}]" for symbol, each in row.metrics.items()
            )
            + f", {row.labels['violations']} invalid results" * bool(row.labels["violations"])
            for row in rows[:_SHOWN]
        ]

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


class _Settled(NamedTuple):
    """Config of an evaluation, names of the settings that the user gave, and notes on attack parameters."""

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
    """Return the config that `evaluate` builds from the same arguments.

    Raises:
        DavylampError: as for `evaluate`.
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
    """Run attacks on models into a folder, from which an interrupted run resumes.

    Args:
        models: a module, modules by name, or names that `load_model` knows; modules are not changed. None for the
            models in the config.
        inputs: images in [0, 1], shape (N, C, H, W); None with `data="imagefolder:PATH"` or a different name in the
            settings.
        labels: ground truth, shape (N,).
        config: a `Config` or a TOML file; keywords override its settings.
        attacks: one or several of "pgd", "foolbox:pgd", "best(foolbox:pgd)", "best", "my_attack.py:MyAttack", attack
            objects, and `AttackChoice`s. None for the attacks in the config, or "pgd" without a config.
        out: the results folder.
        norm: norm of the attacks other than `AttackChoice`s, as for `run_attack`.
        epsilon: radius, as for `run_attack`, or several radii. Each attack is run at every radius.
        target: as for `run_attack`.
        parameters: parameters of the attacks, by their canonical names: {"steps": 5}. They can also be given as
            keywords: `steps=5`. Each attack gets those that it accepts.
        defaults: whether parameters that are not given have each library's default, instead of the same values in all
            libraries.
        defences: defences, such as "jpeg:quality=50". Each model is evaluated without a defence and with each defence.
        names: names of the images, length N.
        executor: "local" or "ray".
        workers: processes on this machine. With `device="cuda:all"`, at least one for each GPU.
        address: address of a Ray cluster; None to start one on this machine.
        part: "3/64": only this part of the work, for a job of a job array; "" for all.
        until: draw the images in random order, and stop once a question on worst-case robust accuracy over all of them
            is decided: "RA >= 0.6", "width <= 0.05" (of its interval), "A > B" for two models, each with or without
            "@ linf 8/255", "ranked" for the order of all models, or "RA_union >= 0.5" for all threat models together.
            The intervals hold at every number of images.
        surrogate: model on which the examples are made: a module, a name, or several (their logits are averaged). The
            examples are then tested on each of `models`, which the attack does not query.
        detectors: files of trained detectors. They are measured on the adversarial examples, which are then stored.
        retry_failed: whether to repeat failed runs.
        trust_unknown: whether to reuse results of code whose identity cannot be fully determined.
        version: version of the judged models, which is part of their identity. Change it after changes that davylamp
            cannot detect, such as in files that code reads after its first pass. Results of a different version are
            never reused.
        progress: whether to show a progress bar on a terminal, or a line in a notebook. Or a function that is called
            with the evaluation and returns a context manager. The value of its `with` statement is a function that is
            called with the name of a run and the number of further images done.
        **settings: settings of `davylamp.Config`: limit, fit_data (a name, or images and labels), fit_limit, seeds,
            libraries, transfer, keep_images, max_queries, eight_bit, measures (groups of metrics, and
            "my_metrics.py:f") ...; `preset` starts from a paper's settings.

    Raises:
        DavylampError: as `davylamp.engine.make_plan` and `davylamp.engine.evaluate`.
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
    """Parse a part; None for all. Raises InvalidInput if it cannot be combined with other arguments."""
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
    """Run the plan of an evaluation or, with a question, blocks of its images until that is decided."""

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


def table(folder: str | Path, by: By = "attacks", **options: Any) -> Table:
    """Build a table of metrics of a results folder with intervals, see `davylamp.engine.build_table`."""
    return build_table(folder, by=by, **options)


def _of_version(config: Config, version: str) -> Config:
    """Add a version to the model names of a config. If `version` is "", return the config unchanged."""
    expanded = expand_models(config) if version else config
    return replace(expanded, models=tuple(add_parts(name, version=version) for name in expanded.models))


def _settle(
    config: Config | str | Path | None, attacks: Any, defences: Iterable[str], settings: Mapping[str, Any]
) -> _Settled:
    """Build the config from the arguments of `evaluate`, which override those of a file or a preset."""
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
    """Return an `AttackChoice` per attack and radius, and notes. An attack gets only the parameters that it accepts."""
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
    """Return notes on the preset and the models: precision, isolation, gradients of defences, random models."""
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
    """Measure the detectors on the examples of an evaluation; None without detectors."""
    if not detectors or begun.plan is None:
        return None
    config = begun.plan.config
    how = {"device": config.device, "loading": LoadOptions(transport, config.isolation)}
    try:
        return measure_detectors(begun.folder, detectors, models=models, data=images, **how)
    except DavylampError as error:  # the evaluation is finished, and stays
        return DetectionSummary((), (str(error),))


def show_evaluation(evaluation: Evaluation) -> AbstractContextManager[Any]:
    """Show the progress of an evaluation."""
    return show_plan(evaluation.plan, evaluation.runs)


def folder_of(results: str | Path | Evaluation) -> Any:
    """Return the path of results that are given as a path or an evaluation, see `Evaluation.source`."""
    return results.source if isinstance(results, Evaluation) else read_path(results, "a results folder")


def _folder(out: Any) -> Path:
    """Convert to the path of the results folder. Raises InvalidInput if it is a file."""
    path = read_path(out, "out as a folder")
    if expand_path(path).is_file():
        raise InvalidInput(f"expected a folder for `out`, got the file {path}")
    return path
