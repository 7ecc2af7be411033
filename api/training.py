"""Functions that train: a robust model, a detector for a model, or a fitted attack."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from ..adapters import ATTACKS, IMPLEMENTATIONS, Classifier, ThreatModel
from ..adapters.catalogue.default_threat_model import choose_threat_model
from ..adapters.catalogue.lookup import resolve_implementation
from ..adapters.coercion import read_mapping, read_radius, read_seed, read_target
from ..adapters.data.datasets import Data
from ..adapters.models.detectors.detector_rows import find_detector
from ..adapters.models.remote.server_usage import total_usage
from ..adapters.models.temporary_classifier import as_classifier
from ..adapters.models.zoo.load import add_parts, load_model
from ..adapters.running.targets import check_target
from ..adapters.torch_state import with_gradients
from ..deprecation import takes_old_names
from ..engine import Config, ResultsStore, make_plan
from ..engine.attack_run import FitData
from ..engine.detection.train_detector import TrainingAttack, check_shown, save_detector, train_detector
from ..engine.plan.choices import format_defaults_taken
from ..engine.plan.config_file import parameters_of, parse_attack_choice, parse_text, read_parameter
from ..engine.plan.plan import Plan
from ..engine.run.evaluate import fit_attacks
from ..engine.searches.kinds import parse_search
from ..engine.store.atomic_files import check_output_path
from ..engine.store.other_records import describe_fit
from ..engine.training.harden import TrainingResult
from ..engine.training.harden import harden as harden_classifier
from ..engine.training.methods import find_method
from ..engine.training.prepare import Prepared, base_name, prepare_training
from ..errors import InvalidInput, Unsupported
from ..report.text.progress import show_progress
from .python_inputs import (
    LOADING,
    check_loading,
    classifiers_from_modules,
    coerce_labelled,
    images_of,
    lend_model,
    loading_of,
    progress_of,
    read_limit,
)
from .verb_result import VerbResult


@with_gradients
def harden(
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
    progress: Callable[[Prepared, int], AbstractContextManager[Any]] | bool = True,
    **parameters: Any,
) -> TrainingResult:
    """Train a robust copy of a model, and measure the robustness of the copy on images that were held out.

    Args:
        model: a module that returns logits for images in [0, 1], or a name that `load_model` accepts. The model is not
            changed.
        data: training images: images and labels, `Data`, or a name that `load_data` accepts.
        method: training method, such as "pgd", "trades", "mart", "awp", "free" or "fbf". `davylamp defences` lists all
            methods.
        validation: images on which the trained model is measured, in the same forms as `data`. None to hold out a part
            of `data`.
        held_out: proportion of `data` that is held out if `validation` is None, in (0, 1).
        limit: only the first `limit` images of `data` are used. None for all images.
        norm: "linf" or "l2".
        epsilon: radius, a number or a fraction such as "8/255". None for the radius that papers use in this norm.
        seed: random seed.
        device: device of a model given by its name.
        out: file for the weights, "NAME.pt". The model card and a checkpoint are written next to this file. An
            interrupted call resumes from the checkpoint. None to write no file.
        mixed_precision: whether to use bfloat16 where torch's autocast supports it.
        fresh: whether to start from new random weights instead of the weights of `model`.
        progress: whether to show a progress bar on a terminal, or a line in a notebook. Or a function that is called
            with the prepared training and the total number of images to process. It returns a context manager as in
            `corrupt_table`.
        **parameters: epochs, batch_size, learning_rate, optimiser, schedule, weight_decay, and the parameters of the
            method.

    Returns:
        The trained classifier, its model card and the file of its weights.

    Raises:
        DavylampError: see `davylamp.engine.training.harden.harden`.
    """
    limit, seed = read_limit(limit), read_seed(seed)
    with ExitStack() as stack:
        if isinstance(model, str):
            classifier, base = load_model(model, device, fold=False), base_name(model)
        else:
            classifier, base = stack.enter_context(as_classifier(model)), ""
        images, apart = coerce_labelled(data), None if validation is None else coerce_labelled(validation)
        asked = (method, norm, read_radius(epsilon), parameters)
        more = {"seed": seed, "mixed_precision": mixed_precision, "fresh": fresh}
        prepared = prepare_training(classifier, images, apart, asked, held_out=held_out, limit=limit, **more)
        total = len(prepared.training.labels) * prepared.settings["epochs"] * find_method(method).stages
        count = stack.enter_context(progress_of(progress, _show_training)(prepared, total))
        return harden_classifier(classifier, *prepared[:3], base=base, out=out, progress=count)


def _show_training(_: Prepared, total: int) -> AbstractContextManager[Any]:
    return show_progress(total)


@takes_old_names(Config)
@with_gradients
def fit(
    what: str,
    model: nn.Module | str = "demo:efficientnet-lite0",
    data: Any = "demo:imagenet",
    *,
    limit: int | None = None,
    attack: str | None = None,
    norm: str | None = None,
    epsilon: float | str | None = None,
    target: str | int | None = None,
    attack_parameters: Mapping[str, Any] | None = None,
    parameters: Mapping[str, Any] | None = None,
    seed: int = 0,
    device: str = "cpu",
    out: str | Path | None = None,
    version: str = "",
    tell: Callable[[str], object] = lambda _: None,
    **loading: Any,
) -> VerbResult:
    """Train a detector for a model and store it in a file, or fit an attack and store it in a results folder.

    Args:
        what: name of a detector or of an attack. Examples are the detectors "art:binary-input" and "feature-squeezing"
            (`davylamp detectors` lists them), and the attack "art:uap@fixed".
        model: a module that returns logits for images in [0, 1], or a name that `load_model` accepts.
        data: training images: images and labels, `Data`, or a name that `load_data` accepts. For a detector, 30 % of
            the images are used to calibrate the threshold.
        limit: largest number of images.
        attack: for a detector, name of the attack that makes its adversarial training examples. None for a detector
            that is trained without adversarial examples.
        norm: norm of the attack. None for the default.
        epsilon: radius of the attack, a number or a fraction such as "8/255". None for the radius that papers use.
        target: for a detector, target rule or class number for `attack`, see `run_attack`.
        attack_parameters: for a detector, canonical parameters of `attack`.
        parameters: parameters of the detector, or of the fitted attack.
        seed: random seed.
        device: device of a model given by its name.
        out: for a detector, the file to write, which `detect` reads. None for "detector.pt". For an attack, the results
            folder, in which `evaluate(fit_data=...)` finds the fitted attack.
        version: version label of the model, see `davylamp.evaluate`.
        tell: called before the training with messages about defaults that were used, and about models that run in
            separate processes.
        **loading: settings of `Config` for a model loaded by name: isolate, request_rate, ...

    Returns:
        A summary with the number of images. The attribute `made` of the result is the detector, or the fitted attacks
        by key.

    Raises:
        DavylampError: if the attack cannot be fitted, or an argument does not apply to the detector or attack.
    """
    check_loading(fit, loading)
    seed, radius, given = read_seed(seed), read_radius(epsilon), read_mapping(parameters, "parameters by name")
    limit, rule = read_limit(limit), read_target(target)
    of_attack = read_mapping(attack_parameters, "attack_parameters by name")
    model = add_parts(model, version=version) if isinstance(model, str) else model
    is_attack = isinstance(what, str) and parse_search(what).inside in {*ATTACKS, *IMPLEMENTATIONS}
    with ExitStack() as stack:
        if is_attack:
            if out is None or attack is not None or rule or of_attack:
                wanted = "`out` as a folder, without `attack`, `target` or `attack_parameters`,"
                raise InvalidInput(f"expected {wanted} for {what}, because it is an attack, not a detector")
            known = {"attack": what, "norm": norm, "epsilon": radius, "parameters": _parameters(given, what)}
            more = {"limit": limit, "seeds": (seed,), "device": device, **loading}
            lent, settings = classifiers_from_modules(model, stack, more, version)
            return _train_attack(known, lent, coerce_labelled(data), settings, out, tell)
        row = find_detector(what)
        values = row.complete(given)
        check_shown(row, None if attack is None else TrainingAttack(attack, ThreatModel("linf"), {}))
        about = {"norm": norm, "epsilon": radius, "target": rule or None, "attack_parameters": of_attack or None}
        if attack is None and (alone := [f"`{name}`" for name, value in about.items() if value is not None]):
            raise InvalidInput(
                f"`attack` is missing for {', '.join(alone)}: give the attack that makes training examples for {what}"
            )
        out = check_output_path("detector.pt" if out is None else out)
        classifier = lend_model(model, stack, device, {**loading, "tell": tell}, version)
        images = images_of(classifier, coerce_labelled(data), limit)
        shown = None
        if attack is not None:
            shown = _shown(attack, (norm, radius, rule), of_attack, images.inputs[0].numel())
            rules = shown.threat_model
            tell(f"chosen: {shown.attack}, norm {rules.norm}, epsilon {rules.epsilon}, seed {seed}")
        name = model if isinstance(model, str) else classifier.name
        trained = train_detector(row.full_name, classifier, images, shown, model=name, seed=seed, **values)
        save_detector(trained, out)
        counts, calibrated = trained.card["trained_on"], trained.card["calibrated_on"]
        headline = (
            f"{out}: {row.full_name} for {name}, trained on {counts['clean']} clean and {counts['adversarial']} "
            f"adversarial images; threshold calibrated on {calibrated} further clean images"
        )
        line = {"file": str(out), "detector": row.full_name, **counts, "calibrated_on": calibrated}
        notes = tuple(filter(None, [total_usage(classifier).line]))
        return VerbResult(headline, [line], {"file": str(out), **trained.card}, notes, trained)


def _train_attack(
    known: Mapping[str, Any],
    lent: dict[str, Classifier] | None,
    data: str | Data,
    settings: dict[str, Any],
    out: str | Path,
    tell: Callable[[str], object],
) -> VerbResult:
    settings |= {"models": tuple(lent)} if lent else {}
    images, name = (data, "given") if isinstance(data, Data) else (None, data)
    config = Config(attacks=(parse_attack_choice(known),), data=name, **settings)
    if lent is None:
        loading_of({"tell": tell, **{word: settings[word] for word in LOADING if word in settings}}, config.models)
    plan = _only_learning(make_plan(config, models=lent, data=images))
    if line := format_defaults_taken(config, plan.cells, {"models", "data", "limit", "seeds", "device"}):
        tell(line)
    learned = fit_attacks(plan, ResultsStore(out), retry_failed=True)
    names = {cell.fit_key: f"{cell.row.name} on {cell.subject.model}" for cell in plan.cells}
    lines: list[dict[str, Any]] = [
        {"key": key, "name": names[key], "failed": each}
        if isinstance(each, str)
        else {"key": key, "name": names[key], **describe_fit(each), "seconds": each.seconds}
        for key, each in learned.items()
    ]
    texts = [
        f"{out}/fits/{key}: {f'failed: {names[key]}: {each}' if isinstance(each, str) else each}"
        for key, each in learned.items()
    ]
    return VerbResult("\n".join(texts), lines, {"folder": str(out), "fits": lines}, (), learned)


def _only_learning(plan: Plan) -> Plan:
    """Return the plan with only the runs of attacks that can be fitted, each fitted on all images.

    Raises:
        InvalidInput: if an attack is a search over several radii or attacks.
        Unsupported: if no attack of the plan can be fitted.
    """
    cells = []
    for cell in plan.cells:
        if cell.search.kind:
            raise InvalidInput(f"{cell.attack} cannot be fitted: fitting needs an attack with a single radius")
        if cell.row.fit:
            subject = cell.subject
            seen = cell.fitted_on or FitData(subject.data, subject.data_digest, subject.images)
            cells.append(replace(cell, fitted_on=seen))
    if not cells:
        names = ", ".join(dict.fromkeys(cell.row.name for cell in plan.cells))
        raise Unsupported(f"{names} cannot be fitted, because it attacks each image separately")
    return replace(plan, cells=tuple(cells))


def _shown(
    attack: str, threat: tuple[str | None, float | None, str], given: Mapping[str, Any], components: int
) -> TrainingAttack:
    """Return the attack that makes the training examples of a detector, with its threat model."""
    norm, radius, target = threat
    row, target = resolve_implementation(attack), check_target(target) if target else ""
    rules = choose_threat_model(row.attack, [row], components, norm=norm, epsilon=radius, targeted=bool(target))
    return TrainingAttack(row.name, rules, _parameters(given, attack), target or "second-likely")


def _parameters(given: Mapping[str, Any], attack: str) -> dict[str, Any]:
    more = parameters_of([attack])
    read = {name: parse_text if isinstance(value, str) else read_parameter for name, value in given.items()}
    return {name: read[name](name, value, more) for name, value in given.items()}
