"""The verbs of `davylamp` for a script or a notebook: a plain module, tensors or arrays, and keywords.

None changes the process that it is called in. Call `davylamp.keep_freed_memory()` in a script that attacks on a CPU:
without it an attack can take half as long again.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, overload

import pandas as pd
from torch import Tensor, nn

from .adapters import AttackResult, Classifier, Implementation, ThreatModel, implementations_of
from .adapters import run_attack as run_row
from .adapters.arguments import (
    read_list,
    read_path,
    read_radii,
    read_radius,
    read_seed,
    read_table,
    read_target,
    read_text,
    read_whole,
    wrong_type,
)
from .adapters.catalogue.customary import choose_threat_model
from .adapters.catalogue.lookup import ATTACKS, find_library, row_of
from .adapters.catalogue.step_size import resolve_step
from .adapters.data.datasets import corrupt, load_data
from .adapters.models.borrowed import borrowed
from .adapters.models.ensemble import ensemble_of
from .adapters.models.images import read_labels
from .adapters.models.outputs import explain_accuracy
from .adapters.models.remote.kept_answers import FILE as ANSWERS
from .adapters.models.remote.traffic import traffic_of
from .adapters.models.room.apart import attacks_apart
from .adapters.models.zoo.load import check_device, load_model
from .adapters.running.draws import clean_logits
from .adapters.running.fit import Fitted
from .adapters.running.fit import fit_attack as fit_row
from .adapters.running.surrogate import run_transfer
from .adapters.running.targets import note_moved, targets_for
from .engine import AttackChoice, Comparison, Config, ResultsStore, build_table, load, make_plan
from .engine import compare as compare_rows
from .engine import evaluate as evaluate_plan
from .engine.challenge.challenge import challenge as challenge_model
from .engine.challenge.document import Challenge
from .engine.challenge.robust_accuracy import RobustAccuracy, measure_robust_accuracy
from .engine.comparison.compare import matched_parameters
from .engine.comparison.searches import SearchRow, is_search, search_rows
from .engine.plan.cells import list_repeated_draws, list_unreachable
from .engine.plan.choices import check_one_norm, chosen_line, chosen_of, chosen_text, join_chosen
from .engine.run.evaluate import EvaluationSummary
from .engine.searches.reach import note_library_step, warn_repeated_draws, warn_unreachable
from .engine.store.notes import list_changed, list_model_hints, list_unsteady
from .engine.tables.metric_matrix import build_layers
from .engine.tables.table import By, Table
from .engine.training.harden import Hardened
from .engine.training.harden import harden as harden_classifier
from .engine.training.prepare import base_name, prepare_training
from .errors import InvalidInput, UnknownName
from .handed_over import (
    lend_models,
    list_choices,
    list_modules,
    name_surrogates,
    split_settings,
    take_data,
    take_fit_data,
    take_images,
    take_labelled,
)
from .placing import FREE, WIDTH, Asking, place_models, read_baseline
from .rankings import RankedResults, place_images, rank_images
from .scoring import Placement, Ranking
from .scoring.adaptive import BATCH

_MOST = 2**31 - 1  # of a whole number

__all__ = [
    "Evaluation",
    "challenge",
    "compare",
    "corrupt",
    "evaluate",
    "fit_attack",
    "harden",
    "load_data",
    "load_model",
    "place",
    "rank",
    "robust_accuracy",
    "run_attack",
    "table",
]


def run_attack(  # noqa: PLR0913 - the nouns by position, the choices by keyword
    attack: Any,
    model: nn.Module,
    inputs: Any,
    labels: Any,
    threat_model: ThreatModel | None = None,
    *,
    norm: str | None = None,
    epsilon: float | str | None = None,
    target: str = "",
    surrogate: nn.Module | Iterable[nn.Module] | None = None,
    **parameters: Any,
) -> AttackResult:
    """Attack the images that a model gets right, and judge what comes back.

    Args:
        attack: "foolbox:pgd", "my_attack.py:MyAttack", or an attack itself (`as_implementation`).
        model: a module that returns logits for images in [0, 1]; it is afterwards as it was.
        inputs: images in [0, 1], shape (N, C, H, W), a tensor or an array; attacked in float32.
        labels: ground truth, shape (N,).
        threat_model: or its norm and radius by keyword.
        norm: "linf", "l2", "l1", "l0", "unrestricted"; None: as `choose_threat_model` has it; the result says which.
        epsilon: the radius, a number or a fraction such as "8/255"; None: the customary one, if the attack needs one.
        target: "second-likely", "least-likely", "random" or a class number; empty: untargeted.
        surrogate: attack this module instead, which is known in full, and judge the examples on the model, which the
            attack never asks (`knowledge` is "transfer"); several: the mean of their logits. Targets are the
            surrogate's, too.
        **parameters: canonical ones: steps, step_size (a number, or "2.5 epsilon / steps"), restarts, max_queries ...;
            what is not given stays at the library's default. `seed` too; `fitted`, what `fit_attack` returned; `draws`
            and `eot`, of a model that draws random numbers (`Classifier(random=True)`).

    Returns:
        The result. Its `notes` say what was chosen where nobody said it, how the model's outputs were read, and
        whether the steps can reach the edge of the ball.

    Raises:
        DavylampError: as `davylamp.adapters.run_attack`.
    """
    row, epsilon, target = row_of(attack), read_radius(epsilon), read_target(target)
    (inputs, rounded), seed = take_images(inputs), read_seed(parameters.get("seed", 0))
    labels = read_labels(labels, len(inputs))
    rules = _rules(threat_model, [row], inputs, norm, epsilon, target)
    parameters = resolve_step(parameters, rules.epsilon)
    asked = AttackChoice(row.name, norm, epsilon, target, defaults=True)  # type: ignore[arg-type]
    notes = _notes([row], rules if threat_model is not None else asked, rules, rounded)
    notes += tuple(filter(None, [note_library_step(row, rules, parameters)]))
    notes += _warnings([row], rules, parameters, parameters.get("eot"))
    with ExitStack() as stack:
        classifier, asked_model = stack.enter_context(borrowed(model)), None
        before = traffic_of(classifier)
        if surrogate is not None:
            asked_model = ensemble_of([stack.enter_context(borrowed(each)) for each in list_modules(surrogate)])
        if rules.targeted and "targets" not in parameters:
            logits = clean_logits(asked_model or classifier, inputs, labels)
            rule = target or "second-likely"
            goal = targets_for(asked_model or classifier, logits, labels.to(logits.device), rule, seed)
            notes += tuple(note_moved([rule], labels))
            parameters |= {"targets": goal, **({} if asked_model else {"logits": logits})}
        if asked_model is None:
            result = run_row(row, classifier, inputs, labels, rules, **parameters)
        else:
            result = run_transfer(row, classifier, asked_model, inputs, labels, rules, **parameters)
        asked_of_servers = traffic_of(classifier) - before
        read = [*_read_as(classifier, result), *([asked_model.output_note] if asked_model else [])]
        said = [*_learned_from(row, result), *read, asked_of_servers.line]
        return replace(result, notes=(*result.notes, *notes, *filter(None, said)))


def fit_attack(
    attack: Any,
    model: nn.Module,
    inputs: Any,
    labels: Any,
    *,
    norm: str | None = None,
    epsilon: float | str | None = None,
    target: int | None = None,
    **parameters: Any,
) -> Fitted:
    """Have an attack that learns once learn on images; `run_attack(..., fitted=...)` applies it to others.

    Args:
        attack: "art:uap@repaired", "davylamp:gd-uap", ...
        model: a module that returns logits for images in [0, 1]; it is afterwards as it was.
        inputs: images in [0, 1] to learn from, shape (N, C, H, W); those that the model gets right count.
        labels: ground truth, shape (N,).
        norm: as for `run_attack`; the same then.
        epsilon: see there.
        target: the class that all images are led to, for an attack that is targeted; then also as `target` for
            `run_attack`, as text.
        **parameters: canonical ones: steps, ...; `seed` too.

    Raises:
        DavylampError: as `davylamp.adapters.running.fit.fit_attack`.
    """
    row, images = row_of(attack), take_images(inputs)[0]
    goal = None if target is None else read_whole(target, "target as a class number", 0, _MOST)
    rules = _rules(None, [row], images, norm, read_radius(epsilon), read_target(goal))
    labels = read_labels(labels, len(images))
    with borrowed(model) as classifier:
        return fit_row(row, classifier, images, labels, rules, target=goal, **parameters)


def compare(  # noqa: PLR0913 - as run_attack
    attack: Any,
    model: nn.Module,
    inputs: Any,
    labels: Any,
    threat_model: ThreatModel | None = None,
    *,
    norm: str | None = None,
    epsilon: float | str | None = None,
    target: str = "",
    libraries: Iterable[str] = (),
    beside: Iterable[Any] = (),
    repaired: bool = False,
    defaults: bool = False,
    seed: int = 0,
    draws: int | None = None,
    eot: int | None = None,
    **parameters: Any,
) -> Comparison:
    """Run an attack through every library that has it, on the same images, and judge each pair.

    Args:
        attack: "pgd", or one implementation or attack as for `run_attack`; "best(pgd)", "at-saturation(foolbox:pgd)".
        model: a module that returns logits for images in [0, 1]; it is afterwards as it was.
        inputs: images in [0, 1], shape (N, C, H, W), a tensor or an array.
        labels: ground truth, shape (N,).
        threat_model: or its norm and radius by keyword, as for `run_attack`.
        norm: see there.
        epsilon: see there.
        target: see there.
        libraries: only these; empty: all.
        beside: implementations, searches or user attacks to compare with: "best(foolbox:pgd)".
        repaired: the repaired rows as well.
        defaults: every library with its defaults.
        seed: random seed.
        draws: answers that each example is judged by, of a model that draws random numbers; None: 20.
        eot: answers of such a model whose mean the attack sees; None: 1.
        **parameters: canonical ones, for every implementation; what is not given is the attack's matched one, with
            `defaults` each library's.

    Returns:
        The comparison. Its `notes` are as those of `run_attack`'s result.

    Raises:
        DavylampError: as `davylamp.engine.compare`.
    """
    epsilon, target, seed = read_radius(epsilon), read_target(target), read_seed(seed)
    rows = _rows(attack, libraries, repaired=repaired, norm=norm)
    inputs, rounded = take_images(inputs)
    labels = read_labels(labels, len(inputs))
    rules = _rules(threat_model, rows, inputs, norm, epsilon, target)
    if isinstance(attack, str) and is_search(attack) and threat_model is None and epsilon is None:
        rules = replace(rules, epsilon=None)  # it knows how far to look
    others: list[Any] = [beside] if callable(beside) else read_list(beside, "attacks to compare with")
    for other in others:
        rows += search_rows(other, rules.norm) if is_search(other) else [row_of(other)]
    name = attack if isinstance(attack, str) else rows[0].attack
    asked = AttackChoice(name, norm, epsilon, target, parameters, defaults=defaults)  # type: ignore[arg-type]
    notes = _notes(rows, rules if threat_model is not None else asked, rules, rounded)
    notes += _warnings(rows, rules, parameters if defaults else matched_parameters(name, rules, parameters), eot)
    with borrowed(model) as classifier:
        before = traffic_of(classifier)
        comparison = compare_rows(
            name,
            classifier,
            inputs,
            labels,
            rules,
            parameters=parameters,
            rows=rows,
            defaults=defaults,
            target=target or "second-likely",
            seed=seed,
            draws=draws,
            eot=eot,
        )
        asked_of_servers = traffic_of(classifier) - before
        result = next((row.result for row in comparison.rows if row.result is not None), None)
        moved = note_moved([target], labels) if rules.targeted and target else []
        said = [*moved, *_read_as(classifier, result), asked_of_servers.line]
        return replace(comparison, notes=(*comparison.notes, *notes, *filter(None, said)))


class Evaluation:
    """A results folder, and what the call that made it did.

    Args:
        folder: where the records are.
        summary: of the run; None: the folder was only opened.
        notes: what was chosen or rounded where nobody said it.
    """

    def __init__(self, folder: str | Path, summary: EvaluationSummary | None = None, notes: tuple[str, ...] = ()):
        self.folder, self.summary, self.notes = Path(folder), summary, notes

    def table(self, by: By = "attacks", **options: Any) -> Table:
        """Metrics with intervals, see `davylamp.engine.build_table`."""
        return build_table(self.folder, by=by, **options)

    def to_frame(self, *, heavy: bool = False) -> pd.DataFrame:
        """One line for each image and cell, see `davylamp.engine.load`."""
        return load(self.folder, heavy=heavy)

    def rank(
        self, subjects: Literal["models", "attacks", "implementations", "defences"] = "models", **options: Any
    ) -> Ranking:
        """See `davylamp.rank`."""
        return rank(self.folder, subjects, **options)

    def report(self, path: str | Path = "report.html") -> Path:
        """Write the report, see `davylamp.report`; its path."""
        from .report.page.build import build_report, write_file

        write_file(build_report(self.folder), Path(path))
        return Path(path)

    def __repr__(self) -> str:
        count = 0 if self.summary is None else self.summary.done
        done = (
            "" if self.summary is None else f": {count} cell{'' if count == 1 else 's'} run, {self.summary.kept} kept"
        )
        failed = f", {len(self.summary.failed)} failed" if self.summary and self.summary.failed else ""
        failed += "".join(f"; {note}" for note in self.notes)
        return f"Evaluation in {self.folder}{done}{failed}; .table(), .to_frame(), .rank(), .report(path)"

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def evaluate(  # noqa: PLR0913 - as run_attack
    models: nn.Module | str | Mapping[str, nn.Module] | Iterable[str],
    inputs: Any = None,
    labels: Any = None,
    *,
    attacks: Any = "pgd",
    out: str | Path = "results",
    norm: str | None = None,
    epsilon: float | str | Sequence[float | str] | None = None,
    target: str = "",
    parameters: Mapping[str, Any] | None = None,
    names: Iterable[str] | None = None,
    workers: int = 1,
    part: str = "",
    surrogate: Any = (),
    **settings: Any,
) -> Evaluation:
    """Run attacks on models into a folder, from which an interrupted run resumes.

    Args:
        models: a module, modules by name, or names that `load_model` knows; modules are afterwards as they were.
        inputs: images in [0, 1], shape (N, C, H, W); None: `data="imagefolder:PATH"` or another name in the settings.
        labels: ground truth, shape (N,).
        attacks: one or several of "pgd", "foolbox:pgd", "best(foolbox:pgd)", "best", "my_attack.py:MyAttack",
            attacks themselves, and `AttackChoice`s.
        out: the results folder.
        norm: of the attacks that are no `AttackChoice`, as for `run_attack`.
        epsilon: see there; of several radii each attack is run with each.
        target: see there.
        parameters: canonical ones, for the same attacks, on top of the matched ones; also as keywords: `steps=5`.
        names: of the images, N of them.
        workers: processes on this machine.
        part: "3/64": only this share of the work, as a job of an array does it; "": all.
        surrogate: what the examples are made on: a module, a name, or several of them (the mean of their logits);
            each of the models is then judged on them, and asked nothing by the attack.
        **settings: of `davylamp.Config`: limit, fit_data (a name, or images and labels), fit_limit, seeds, libraries,
            transfer, keep_images, max_queries, pixels, measures (groups of metrics, and "my_metrics.py:f") ...

    Raises:
        DavylampError: as `davylamp.engine.make_plan` and `davylamp.engine.evaluate`.
    """
    from .engine.plan.plan import count_processes, read_part, take_part
    from .engine.run.choose import choose_executor

    part = read_text(part, 'a part as text, such as "3/64"')
    chosen_part, workers = read_part(part) if part else None, read_whole(workers, "workers from 1", 1, _MOST)
    settings, parameters = split_settings(settings, read_table(parameters, "parameters by name"))
    choices = list_choices(attacks, norm, read_radii(epsilon), read_target(target), parameters)
    images, rounded = take_data(inputs, labels, names)
    with ExitStack() as stack:
        given, settings = lend_models(models, stack, settings)
        seen, settings = take_fit_data(settings)
        made_on = name_surrogates(surrogate)
        lent = {name: stack.enter_context(borrowed(model)) for name, model in made_on.items() if model is not None}
        settings["surrogate"] = tuple(made_on)
        if images is not None:
            settings.setdefault("data", "given")
        config = Config(attacks=choices, **{name: _tuple(value) for name, value in settings.items()})
        stack.enter_context(attacks_apart(config.isolation))
        check_one_norm(choices, config.libraries, repaired=config.repaired)
        check_device(config.device)
        store = ResultsStore(read_path(out, "out as a folder"))
        transport = config.transport(store.folder / ANSWERS, count_processes(workers, chosen_part))
        rest = {"surrogates": lent, "fit_data": seen, "transport": transport}
        plan = make_plan(config, models=given, data=images, **rest)
        plan = take_part(plan, chosen_part) if chosen_part else plan
        executor = choose_executor("local", workers=workers, device=config.device)
        notes = [chosen_line(plan.config, plan.cells, {"models", *settings}), rounded]
        notes += [f"{name}: {model.precision_note}" for name, model in (given or {}).items() if model.precision_note]
        notes += [*list_unreachable(plan.cells), *list_repeated_draws(plan.cells)]
        notes += [*list_changed(store, plan.subjects), *plan.notes]
        notes += [f"left out: {name}: {reason}" for name, reason in plan.failed.items()]
        summary = evaluate_plan(plan, store, executor=executor)
        notes += [*list_model_hints(store, plan.subjects), summary.traffic.line]
        return Evaluation(out, summary, tuple(filter(None, [*list_unsteady(store, plan.subjects, plan.cells), *notes])))


def robust_accuracy(  # noqa: PLR0913 - as run_attack
    model: nn.Module | str,
    inputs: Any = None,
    labels: Any = None,
    *,
    epsilon: float | str | None = None,
    norm: str = "linf",
    data: str = "demo:imagenet",
    limit: int | None = None,
    batch_size: int | None = None,
    seed: int = 0,
    device: str = "cpu",
    out: str | Path | None = None,
) -> RobustAccuracy:
    """Accuracy that AutoAttack leaves a model, with everything that makes the number doubtful said first.

    The attacks are those of AutoAttack's standard version, by the authors' code where `pyautoattack` is installed, each
    on the images that none before it has fooled. With fewer than four classes, where it is not defined, the same
    attacks on the plain margin of the logits take its place; for a model that draws random numbers
    (`Classifier(random=True)`) the rand version does.

    Args:
        model: a module that returns logits for images in [0, 1], or a name that `load_model` knows.
        inputs: images in [0, 1], shape (N, C, H, W); None: those of `data`.
        labels: ground truth, shape (N,).
        epsilon: radius, a number or a fraction such as "8/255"; None: the customary one.
        norm: "linf" or "l2".
        data: a name that `load_data` knows, without `inputs`.
        limit: only this many images.
        batch_size: images per call of a library.
        seed: random seed.
        device: where a model given by its name computes; a module stays where it is.
        out: the results folder, in which a killed call goes on; None: nothing is kept.

    Returns:
        The clean and the robust accuracy with 95 % intervals, what each attack did, and the warnings.

    Raises:
        DavylampError: as `davylamp.engine.challenge.robust_accuracy.measure_robust_accuracy`.
    """
    images = take_data(inputs, labels, None)[0] or data
    with ExitStack() as stack:
        lent: Any = stack.enter_context(borrowed(model)) if isinstance(model, nn.Module) else model
        return measure_robust_accuracy(
            lent,
            images,
            norm=norm,
            epsilon=read_radius(epsilon),
            limit=limit,
            batch_size=batch_size,
            seed=read_seed(seed),
            device=device,
            out=out,
        )


def challenge(  # noqa: PLR0913 - as run_attack
    model: nn.Module | str,
    inputs: Any = None,
    labels: Any = None,
    *,
    data: str = "demo:imagenet",
    original: nn.Module | str | None = None,
    surrogates: Mapping[str, nn.Module] | Iterable[str] = (),
    out: str | Path = "challenge",
    norm: str = "linf",
    epsilon: float | str | None = None,
    limit: int | None = None,
    quick: bool = False,
    effort: Mapping[str, int] | None = None,
    seed: int = 0,
    device: str = "cpu",
) -> Challenge:
    """Evaluate a defence by attacks that adapt to it; the result says whether it falls, masks gradients or holds.

    Args:
        model: "MODEL+DEFENCE", whose gradients are passed in every way there is; or a module, attacked as it is.
        inputs: images in [0, 1], shape (N, C, H, W); None: those of `data`.
        labels: ground truth, shape (N,).
        data: a name, without `inputs`.
        original: the undefended model, where the name does not say it.
        surrogates: other models that examples are made on, by name, or names.
        out: the results folder; `davylamp.report(out)` has a section of it.
        norm: "linf" or "l2".
        epsilon: the radius, a number or a fraction such as "8/255"; None: the customary one.
        limit: only this many images.
        quick: a first look: 10 images, 10 steps.
        effort: steps, candidates, queries, eot, draws in place of the defaults.
        seed: random seed.
        device: where models are loaded to; a module stays where it is.

    Raises:
        DavylampError: as `davylamp.engine.challenge.challenge.challenge`.
    """
    images = take_data(inputs, labels, None)[0] or data
    with ExitStack() as stack:

        def lend(given: Any, name: str) -> Any:
            lent = stack.enter_context(borrowed(given)) if isinstance(given, nn.Module) else given
            if isinstance(given, nn.Module) and not isinstance(given, Classifier):
                lent.name = name
            return lent

        several: Any = surrogates
        if isinstance(surrogates, Mapping):
            several = {name: lend(each, name) for name, each in surrogates.items()}
        return challenge_model(
            lend(model, "defended"),
            images,
            original=lend(original, "undefended"),
            surrogates=several,
            out=out,
            norm=norm,
            epsilon=read_radius(epsilon),
            limit=limit,
            quick=quick,
            effort=effort,
            seed=seed,
            device=device,
        )


def place(  # noqa: PLR0913 - as run_attack
    models: nn.Module | str | Mapping[str, nn.Module] | Iterable[str],
    inputs: Any = None,
    labels: Any = None,
    *,
    against: str | Path,
    out: str | Path = "results",
    adaptive: bool = False,
    width: int = WIDTH,
    batch: int = BATCH,
    names: Iterable[str] | None = None,
    workers: int = 1,
    seed: int = 0,
    **settings: Any,
) -> tuple[Placement, ...]:
    """Attack new models as those of a folder were, and place each among them (CANARY's fast test).

    Args:
        models: as for `evaluate`; none of the baseline's.
        inputs: the images of the baseline, where it was evaluated on tensors, shape (N, C, H, W).
        labels: ground truth, shape (N,).
        against: the results folder of the baseline: its attacks are run, on its data, with its seeds.
        out: the results folder of the newcomers, from which an interrupted run resumes.
        adaptive: only on the images that tell most about each newcomer, in batches, until its rank interval is narrow
            enough; else on all.
        width: worst minus best rank of the interval that is enough, for `adaptive`.
        batch: images at once, for `adaptive`.
        names: of the images, as the baseline has them.
        workers: processes on this machine.
        seed: random seed of the fit and of every draw of the ranking.
        **settings: of `davylamp.Config` that do not change what is measured: batch_size, shard_size, device,
            keep_images, isolate and its limits, how servers are asked (rate, cost, token, ...).

    Returns:
        A placement for each newcomer; with `adaptive` its `choice` has the images and where it stood after each batch.

    Raises:
        DavylampError: as `evaluate`; InvalidInput if the folder is no baseline, or has the models.
    """
    from .engine.run.choose import choose_executor

    asking = Asking(adaptive, width, batch, seed)
    baseline = read_baseline(against, adaptive=adaptive)
    images = take_data(inputs, labels, names)[0]
    with ExitStack() as stack:
        given, settings = lend_models(models, stack, settings)
        for name in settings:
            if name not in (known := ("models", *FREE)):
                raise UnknownName("setting", name, known)
        config = replace(baseline.config, **{name: _tuple(value) for name, value in settings.items()})
        executor, store = choose_executor("local", workers=workers, device=config.device), ResultsStore(out)
        run = partial(evaluate_plan, store=store, executor=executor)
        return place_models(baseline, store, config, asking, models=given, data=images, run=run)


def harden(  # noqa: PLR0913 - the nouns by position, the choices by keyword
    model: nn.Module | str,
    data: Any,
    method: str = "pgd",
    *,
    validation: Any = None,
    held_out: float = 0.1,
    limit: int | None = None,
    norm: str = "linf",
    epsilon: float | str | None = None,
    seed: int = 0,
    device: str = "cpu",
    out: str | Path | None = None,
    mixed_precision: bool = False,
    fresh: bool = False,
    **parameters: Any,
) -> Hardened:
    """Train a copy of a model to be robust, and measure it on images that it did not learn from.

    Args:
        model: a module that returns logits for images in [0, 1], or a name that `load_model` knows; stays as it is.
        data: images to learn from: a name that `load_data` knows, `Data`, or images and labels.
        method: "pgd", "trades", "mart", "awp", "free", "fbf", ...: `davylamp defences` lists them.
        validation: other images, for the card; None: a share of the data.
        held_out: that share, inside (0, 1).
        limit: of the data, the first ones.
        norm: "linf" or "l2".
        epsilon: radius, a number or a fraction such as "8/255"; None: the customary one.
        seed: random seed.
        device: where a model given by its name computes.
        out: file of weights, "NAME.pt", and beside it its card; a killed call goes on from its state there.
        mixed_precision: bfloat16 where torch's autocast has it.
        fresh: begin with weights drawn anew instead of the model's.
        **parameters: epochs, batch_size, learning_rate, optimiser, schedule, weight_decay, and the method's own.

    Returns:
        The trained classifier, its card and its file.

    Raises:
        DavylampError: as `davylamp.engine.training.harden.harden`.
    """
    with ExitStack() as stack:
        if isinstance(model, str):
            classifier, base = load_model(model, device, fold=False), base_name(model)
        else:
            classifier, base = stack.enter_context(borrowed(model)), ""
        images, apart = take_labelled(data), None if validation is None else take_labelled(validation)
        asked = (method, norm, read_radius(epsilon), parameters)
        more = {"seed": seed, "mixed_precision": mixed_precision, "fresh": fresh}
        prepared = prepare_training(classifier, images, apart, asked, held_out=held_out, limit=limit, **more)
        return harden_classifier(classifier, *prepared[:3], base=base, out=out)


def table(folder: str | Path, by: By = "attacks", **options: Any) -> Table:
    """Metrics of a results folder with intervals, see `davylamp.engine.build_table`."""
    return build_table(folder, by=by, **options)


@overload
def rank(
    results: str | Path | pd.DataFrame,
    subjects: Literal["models", "attacks", "implementations", "defences"] = "models",
    *,
    against: None = None,
    **options: Any,
) -> Ranking: ...


@overload
def rank(
    results: str | Path | pd.DataFrame,
    subjects: Literal["models", "attacks", "implementations", "defences"] = "models",
    *,
    against: str | Path | pd.DataFrame,
    **options: Any,
) -> tuple[Placement, ...]: ...


def rank(  # noqa: PLR0913 - what is ranked by position, the choices by keyword
    results: str | Path | pd.DataFrame,
    subjects: Literal["models", "attacks", "implementations", "defences"] = "models",
    *,
    against: str | Path | pd.DataFrame | None = None,
    budget: float | None = None,
    per: Literal["attack", "implementation"] = "attack",
    norm: str | None = None,
    knowledge: Literal["white-box", "black-box", "score", "decision", "transfer"] | None = None,
    unequal: Literal["common", "keep"] = "common",
    original: str | None = None,
    examples: Literal["own", "original"] | None = None,
    **options: Any,
) -> Ranking | tuple[Placement, ...]:
    """Rank models, attacks or defences by item response theory on every image, with uncertainty.

    Args:
        results: a results folder, or the frame that `load` makes of one, perhaps filtered.
        subjects: what is ranked.
        against: results of a baseline: each subject that it lacks is placed among its subjects, one at a time, by the
            responses that both have; the abilities and items of the baseline stay as they are.
        budget: a radius at which smallest changes count.
        per: what counts once: an attack, by the strongest of its libraries on each image, or every implementation.
        norm: only attacks in this one.
        knowledge: only these attacks.
        unequal: what not every subject met is left out, or kept as missing.
        original: for "defences": the model that all others are defences of, where their names do not say it.
        examples: for "defences" of folders: made on each defended model, or on its original; None: own if there are
            any. With those of the original no budget: their distances are those that fool the original.
        **options: of `davylamp.scoring.rank_responses`: scoring, model, method, seed; without scoring for a baseline.
            Or `scoring="canary"`, as published from means of metrics, with propagate and seed: it needs the folder, or
            a CSV table of metrics, and ranks by one kind of attack: without `knowledge` by white-box ones where there
            are any.

    Returns:
        The ranking; with a baseline a placement for each newcomer.

    Raises:
        InvalidInput: with fewer than two subjects, or a choice that leaves nothing or would be ignored.
    """
    kind: dict[str, Any] = {"norm": norm, "knowledge": knowledge, "per": per, "original": original}
    if options.get("scoring") == "canary" or _is_csv(results):
        given = {"against": against is not None, "budget": budget is not None, "unequal": unequal != "common"}
        return _rank_layers(results, subjects, {**kind, "examples": examples}, given, options)
    chosen = RankedResults(subjects, budget, unequal=unequal, examples=examples, **kind)
    if against is not None:
        return place_images(results, against, chosen, **options)[0]
    return rank_images(results, chosen, **options).ranking


def _is_csv(results: str | Path | pd.DataFrame) -> bool:
    return not isinstance(results, pd.DataFrame) and Path(results).suffix == ".csv"


def _rank_layers(
    results: Any, subjects: Any, kind: dict[str, Any], given: dict[str, bool], options: dict[str, Any]
) -> Ranking:
    """By means of metrics; InvalidInput for what would be ignored."""
    ignored = dict(given)
    if _is_csv(results):
        ignored |= {name: kind[name] is not None for name in ("norm", "knowledge", "original", "examples")}
        ignored |= {"per": kind["per"] != "attack", "scoring": options.get("scoring", "canary") != "canary"}
    used = ("scoring", "propagate", "seed")
    ignored |= {name: name not in used for name in options if name != "scoring"}
    wrong = [name for name, is_given in ignored.items() if is_given]
    if wrong:
        raise InvalidInput(f"expected no {', '.join(wrong)}: means of metrics are ranked, with CANARY's model")
    return _rank_metrics(results, subjects, kind, **{k: v for k, v in options.items() if k != "scoring"})


def _rank_metrics(
    results: Any, subjects: Any, chosen: dict[str, Any], *, propagate: bool = False, seed: int = 0
) -> Ranking:
    """As CANARY, by the first layer of attacks that there is."""
    from .scoring import VIEWS, metrics_of, rank_metrics

    if isinstance(results, pd.DataFrame):
        raise InvalidInput("expected a results folder or a CSV table of metrics with scoring='canary', got a frame")
    if subjects not in VIEWS:
        raise UnknownName("subjects", str(subjects), list(VIEWS))
    layers = build_layers(results, subjects, metrics_of(VIEWS[subjects]), **chosen)
    first, *others = layers
    try:
        ranking = rank_metrics(layers[first].frame, subjects, propagate=propagate, seed=seed)
    except ValueError as error:
        raise InvalidInput(str(error)) from error
    apart = tuple(f"by {first} attacks; knowledge={other!r} ranks by the others" for other in others)
    return replace(ranking, notes=(*ranking.notes, *layers[first].notes, *apart))


def _rows(attack: Any, libraries: Iterable[str], *, repaired: bool, norm: str | None = None) -> list[Implementation]:
    """The rows that are meant, of these libraries (empty: of all); a mistyped library is named."""
    wanted = read_list(libraries, "libraries as names", str)
    for name in wanted:
        find_library(name)
    if is_search(attack):
        return search_rows(attack, norm, wanted, repaired=repaired)
    if isinstance(attack, str) and attack in ATTACKS:
        rows = [row for row in implementations_of(attack) if repaired or not row.variant]
    else:
        rows = [row_of(attack)]
    chosen = [row for row in rows if not wanted or row.library in wanted]
    if not chosen:
        have = ", ".join(dict.fromkeys(row.library for row in rows))
        name = attack if isinstance(attack, str) else rows[0].name
        raise InvalidInput(f"expected a library that has {name} ({have}), got {', '.join(wanted)}")
    return chosen


def _notes(
    rows: list[Implementation], asked: ThreatModel | AttackChoice, rules: ThreatModel, rounded: str
) -> tuple[str, ...]:
    """What was chosen of threat model and parameters, in the words of the command line, and what was rounded."""
    chosen = ""
    if isinstance(asked, AttackChoice):
        only = all(row.targeted == "only" for row in rows)
        chosen = chosen_text(chosen_of(asked, rows[0].attack, rules, only_targeted=only))
    return tuple(filter(None, (join_chosen([chosen]) if chosen else "", rounded)))


def _rules(
    threat_model: ThreatModel | None,
    rows: list[Implementation],
    inputs: Tensor,
    norm: str | None,
    epsilon: float | None,
    target: str,
) -> ThreatModel:
    """The threat model that was given, or that of the keywords: one of them says it, not both."""
    if threat_model is not None and not isinstance(threat_model, ThreatModel):
        raise wrong_type("a ThreatModel, or norm and epsilon by keyword", threat_model)
    if threat_model is None:
        size = inputs[0].numel()
        return choose_threat_model(rows[0].attack, rows, size, norm=norm, epsilon=epsilon, targeted=bool(target))
    if norm is not None or epsilon is not None:
        raise InvalidInput("expected a threat model or norm and epsilon, got both")
    if target and not threat_model.targeted:
        raise InvalidInput(f"expected a targeted threat model with target={target!r}, got an untargeted one")
    return threat_model


def _warnings(
    rows: Sequence[Implementation], rules: ThreatModel, parameters: Mapping[str, Any], eot: Any
) -> tuple[str, ...]:
    """Which row cannot reach the edge of the ball, and which averages draws twice, as the command line says it."""
    single = [row for row in rows if not isinstance(row, SearchRow)]
    lines = [warn_unreachable(row, rules, parameters) for row in single]
    lines += [warn_repeated_draws(row, rules.norm, parameters, eot) for row in single if type(eot) is int]
    return tuple(filter(None, lines))


def _read_as(classifier: Classifier, result: AttackResult | None) -> list[str]:
    """How the model was loaded and its outputs read, and why it may get nothing right."""
    hint = None if result is None else explain_accuracy(result.logits, result.labels)
    return [*classifier.loading_notes, classifier.output_note, classifier.precision_note, hint or ""]


def _learned_from(row: Implementation, result: AttackResult) -> tuple[str, ...]:
    """That what was learned is scored on the images that it was learned from; nothing of an attack that is not so."""
    flattered = row.universal and not row.data_free and result.fitted is None
    return ("fitted on what it is scored on (fit_attack learns from other images)",) if flattered else ()


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
