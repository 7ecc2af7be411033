"""The functions `run_attack`, `fit_attack` and `compare`, which take a plain module, and tensors or arrays.

These functions do not change settings of the calling process. On a CPU, attacks can take 50 % longer unless the script
calls `davylamp.keep_freed_memory()` first.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor, nn

from ..adapters import AttackResult, Classifier, Implementation, ThreatModel, implementations_of
from ..adapters import run_attack as run_row
from ..adapters.catalogue.lookup import ATTACKS, check_parameter_names, find_library, resolve_implementation
from ..adapters.catalogue.step_reach import note_library_step, short_steps_warning, warn_repeated_draws
from ..adapters.catalogue.step_size import resolve_step_size
from ..adapters.coercion import (
    read_int,
    read_list,
    read_mapping,
    read_radius,
    read_seed,
    read_target,
    type_error,
)
from ..adapters.data.datasets import corrupt, load_data
from ..adapters.data.duplicates import note_fewer
from ..adapters.models.defences.names import describe_gradients, describe_sampling
from ..adapters.models.ensemble import mean_logit_ensemble
from ..adapters.models.extract_logits import explain_accuracy
from ..adapters.models.identity.digest import digest_data, digest_model
from ..adapters.models.images import read_labels
from ..adapters.models.remote.address import is_address
from ..adapters.models.remote.server_usage import total_usage
from ..adapters.models.temporary_classifier import as_classifier
from ..adapters.models.zoo.load import add_parts, load_model
from ..adapters.result import UNSTEADY
from ..adapters.running.determinism import is_deterministic
from ..adapters.running.fit import Fitted
from ..adapters.running.fit import fit_attack as fit_row
from ..adapters.running.sampling import clean_logits
from ..adapters.running.surrogate import run_transfer
from ..adapters.running.targets import moved_target_note, targets_for
from ..adapters.threat_model import check_norm
from ..adapters.torch_state import with_gradients
from ..deprecation import current_settings, takes_old_names
from ..engine import AttackChoice, Comparison, Config
from ..engine.comparison.compare import compare as compare_rows
from ..engine.comparison.compare import matched_parameters
from ..engine.comparison.searches import (
    SearchImplementation,
    attack_inside,
    check_searches,
    is_search,
    passes_of_row,
    search_rows,
)
from ..engine.plan.choices import assumed_texts, chosen_of, chosen_text, join_chosen, no_library, threat_model_of
from ..errors import InvalidInput, Unsupported
from .python_inputs import (
    LOADING,
    Progress,
    as_model_list,
    check_loading,
    coerce_images,
    images_of,
    lend_model,
    progress_of,
    read_limit,
    take_source,
)
from .verb_result import Notes

_MOST = 2**31 - 1  # of a whole number
_MANY_PASSES = 2000  # passes per image from which a comparison says before it starts how many it may need
_SETTINGS = ("judge_samples", "eot", "max_queries", "batch_size", "precision")  # keywords with the rules of `Config`

__all__ = [
    "compare",
    "corrupt",
    "fit_attack",
    "load_data",
    "load_model",
    "run_attack",
]


@with_gradients
def run_attack(
    attack: Any,
    model: nn.Module,
    inputs: Any,
    labels: Any,
    threat_model: ThreatModel | None = None,
    *,
    norm: str | None = None,
    epsilon: float | str | None = None,
    target: Any = "",
    surrogate: nn.Module | Iterable[nn.Module] | None = None,
    **parameters: Any,
) -> AttackResult:
    """Attack the images that a model classifies correctly, and check which of the returned images fool the model.

    Args:
        attack: name of an implementation, such as "foolbox:pgd" or "my_attack.py:MyAttack", or an attack object (see
            `as_implementation`).
        model: a module that returns logits for images in [0, 1]. The module is not changed.
        inputs: images in [0, 1], shape (N, C, H, W), a tensor or an array. The attack uses float32.
        labels: ground truth, shape (N,).
        threat_model: the threat model, in place of `norm` and `epsilon`. None to use these two.
        norm: "linf", "l2", "l1", "l0" or "unrestricted". None for the default of `choose_threat_model`. The notes of
            the result name the chosen norm.
        epsilon: radius, a number or a fraction such as "8/255". None for the radius that papers use in this norm, or
            for no radius if the attack searches for the smallest perturbation.
        target: target class of each image, shape (N,), one class number for all images, or a rule that chooses the
            target: "second-likely", "least-likely" or "random". "" for an untargeted attack.
        surrogate: module on which the examples are made. The examples are then tested on `model`, which the attack
            never queries (`knowledge` is "transfer"). If several modules are given, their mean logits are attacked.
            Target rules use the outputs of the surrogate. None to attack `model` itself.
        **parameters: parameters of the attack by their canonical names, such as steps, step_size (a number, or
            "2.5 epsilon / steps"), restarts and max_queries. A parameter that is not given has the library's default.
            Further keywords are `seed`, `fitted` (the return value of `fit_attack`), and, for a random model,
            `judge_samples` and `eot`.

    Returns:
        The result for each image. Its `notes` name the defaults that were used, and say how the model's outputs were
        interpreted, and whether the steps are long enough to reach the radius.

    Raises:
        DavylampError: see `davylamp.adapters.run_attack`.
    """
    row, epsilon = resolve_implementation(attack), read_radius(epsilon)
    parameters = current_settings(parameters, ("judge_samples",))
    (inputs, rounded), seed = coerce_images(inputs), read_seed(parameters.get("seed", 0))
    labels = read_labels(labels, len(inputs))
    target, targets = _split_target(target, parameters.pop("targets", None), len(inputs))
    parameters |= {} if targets is None else {"targets": targets}
    asked = _choice(row.name, norm, epsilon, target, defaults=True)
    rules = _rules(threat_model, asked, [row], inputs[0].numel())
    rules = rules if targets is None or threat_model is not None else replace(rules, targeted=True)
    parameters = resolve_step_size(parameters, rules.epsilon)
    chosen = {} if threat_model is not None else _chosen(asked, [row], rules)
    notes = [join_chosen([text]) if (text := chosen_text(chosen)) else "", rounded]
    notes += [note_library_step(row, rules, parameters)]
    notes += warnings_before([row], rules, parameters, parameters.get("eot"), model)
    with ExitStack() as stack:
        classifier, asked_model = stack.enter_context(as_classifier(model)), None
        before = total_usage(classifier)
        if surrogate is not None:
            asked_model = mean_logit_ensemble(
                [stack.enter_context(as_classifier(each)) for each in as_model_list(surrogate)]
            )
        if rules.targeted and "targets" not in parameters:
            logits = clean_logits(asked_model or classifier, inputs, labels)
            rule = target or "second-likely"
            goal = targets_for(asked_model or classifier, logits, labels.to(logits.device), rule, seed)
            notes += moved_target_note([rule], labels)
            parameters |= {"targets": goal, **({} if asked_model else {"logits": logits})}
        if asked_model is None:
            result = run_row(row, classifier, inputs, labels, rules, **parameters)
        else:
            result = run_transfer(row, classifier, asked_model, inputs, labels, rules, **parameters)
        asked_of_servers = total_usage(classifier) - before
        draws, eot = parameters.get("judge_samples"), parameters.get("eot")
        read = hints_after(classifier, result, draws=draws, eot=eot, surrogate=asked_model)
        said = [*_learned_from(row, result), *read, asked_of_servers.line]
        return replace(result, notes=(*result.notes, *filter(None, [*notes, *said])))


@with_gradients
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
    """Fit an attack, such as a universal perturbation, on some images, to apply the fitted attack to other images.

    Pass the return value to `run_attack` as the keyword `fitted`.

    Args:
        attack: name of an implementation that can be fitted, such as "art:uap@fixed" or "davylamp:gd-uap".
        model: a module that returns logits for images in [0, 1]. The module is not changed.
        inputs: fit images in [0, 1], shape (N, C, H, W). Images that the model misclassifies are not used.
        labels: ground truth, shape (N,).
        norm: norm of the attack, see `run_attack`. Pass the same value to `run_attack`.
        epsilon: radius, see `run_attack`. Pass the same value to `run_attack`.
        target: class number of the target for all images. None for an untargeted attack. Pass the same class to
            `run_attack`, as text.
        **parameters: canonical parameters of the attack, such as `steps`. Also `seed`.

    Raises:
        DavylampError: see `davylamp.adapters.running.fit.fit_attack`.
    """
    row, images = resolve_implementation(attack), coerce_images(inputs)[0]
    goal = None if target is None else read_int(target, "target as a class number", 0, _MOST)
    asked = _choice(row.name, norm, read_radius(epsilon), read_target(goal))
    rules = _rules(None, asked, [row], images[0].numel())
    labels = read_labels(labels, len(images))
    with as_classifier(model) as classifier:
        return fit_row(row, classifier, images, labels, rules, target=goal, **parameters)


@takes_old_names()
@with_gradients
def compare(
    attack: Any,
    model: nn.Module | str = "demo:efficientnet-lite0",
    inputs: Any = None,
    labels: Any = None,
    threat_model: ThreatModel | None = None,
    *,
    data: str | None = None,
    limit: int | None = None,
    norm: str | None = None,
    epsilon: float | str | None = None,
    target: str = "",
    libraries: Iterable[str] = (),
    also: Iterable[Any] = (),
    fixed: bool = False,
    defaults: bool = False,
    seed: int = 0,
    judge_samples: int | None = None,
    eot: int | None = None,
    device: str = "cpu",
    version: str = "",
    loading: Mapping[str, Any] | None = None,
    progress: Progress | bool = True,
    **parameters: Any,
) -> Comparison:
    """Run all libraries' implementations of an attack on the same images, and compare each pair of implementations.

    Args:
        attack: name of an attack, such as "pgd". Or one implementation or attack object, see `run_attack`, or a search
            such as "best(pgd)" or "at-saturation(foolbox:pgd)".
        model: a module that returns logits for images in [0, 1], or a name that `load_model` accepts. A module is not
            changed.
        inputs: images in [0, 1], shape (N, C, H, W), a tensor or an array. None for the images of `data`.
        labels: ground truth, shape (N,).
        threat_model: the threat model, in place of `norm` and `epsilon`. None to use these two.
        data: name of data that `load_data` accepts, in place of `inputs`. None for "demo:imagenet".
        limit: largest number of images.
        norm: see `run_attack`.
        epsilon: see `run_attack`.
        target: see `run_attack`.
        libraries: names of the libraries to use. Empty for all libraries.
        also: further attacks, implementations, searches or user attacks that take part in the comparison, such as
            "best(foolbox:pgd)".
        fixed: whether to include variants in which davylamp has fixed an issue of the library.
        defaults: which values parameters have that are not given. If True, each library's own defaults. If False, the
            same values in all libraries.
        seed: random seed.
        judge_samples: for a random model, number of outputs by which each example is judged. None for 20.
        eot: for a random model, number of outputs that are averaged for each query of the attack. None for 1.
        device: device of a model given by its name.
        version: version label of the model, see `davylamp.evaluate`.
        loading: settings of `Config` for a model loaded by name, such as isolate and request_rate. The entry "tell" may
            be a function that is called with each note.
        progress: whether to show a progress bar on a terminal, or a line in a notebook. Or a function that is called
            with the number of images to attack and the expected work of each implementation. It returns a context
            manager as in `corrupt_table`.
        **parameters: parameters of the attack by their canonical names, for all implementations.

    Returns:
        The comparison. Its `notes` are like those of the result of `run_attack`.

    Raises:
        DavylampError: see `davylamp.engine.compare`.
    """
    epsilon, target, seed, limit = read_radius(epsilon), read_target(target), read_seed(seed), read_limit(limit)
    loading = current_settings(read_mapping(loading, "loading settings by name"), LOADING)
    check_loading(compare, loading)
    rows = rows_of(attack, libraries, fixed=fixed, norm=norm)
    name = attack if isinstance(attack, str) else rows[0].attack
    asked = _choice(name, norm, epsilon, target, parameters, defaults=defaults)
    source, rounded = take_source(inputs, labels, data)
    size = None if isinstance(source, str) else source.inputs[0].numel()
    rules = _rules(threat_model, asked, rows, size)
    rows += _further_rows(also, rules, fixed=fixed)
    check_parameter_names(parameters, name, rows, {each: one for row in rows for each, one in row.more.items()})
    settings = {"judge_samples": judge_samples, "eot": eot, **parameters}
    Config(**{each: settings[each] for each in _SETTINGS if settings.get(each) is not None})
    check_searches(rows, rules, parameters, defaults=defaults)
    notes = Notes(loading.get("tell"))
    notes.add(*assumed_texts(rows))
    with ExitStack() as stack:
        model = add_parts(model, version=version) if isinstance(model, str) else model
        classifier = lend_model(model, stack, device, loading, version)
        digest = digest_model(classifier, model if isinstance(model, str) else "")  # before a pass changes counters
        images = images_of(classifier, source, limit)
        rules = _rules(threat_model, asked, rows, images.inputs[0].numel())
        chosen = {} if threat_model is not None else _chosen(asked, rows, rules)
        shared = parameters if defaults else matched_parameters(name, rules, parameters)
        notes.add(*(note_fewer(source, len(images.labels), limit) if isinstance(source, str) else ()))
        notes.add(*warnings_before(rows, rules, shared, eot, classifier))
        before, count = total_usage(classifier), len(images.labels)
        work = {row.name: (count, passes_of_row(row, shared, rules.norm)) for row in rows}
        notes.add(*_dear_note({name: passes for name, (_, passes) in work.items()}))
        comparison = compare_rows(
            name,
            classifier,
            images.inputs,
            images.labels,
            rules,
            parameters=parameters,
            rows=rows,
            defaults=defaults,
            target=target or "second-likely",
            seed=seed,
            judge_samples=judge_samples,
            eot=eot,
            progress=stack.enter_context(progress_of(progress)(len(rows) * count, work)),
        )
        notes.add(*comparison.notes, join_chosen([text]) if (text := chosen_text(chosen)) else "", rounded)
        result = next((row.result for row in comparison.rows if row.result is not None), None)
        notes.add(*(moved_target_note([target], images.labels) if rules.targeted and target else ()))
        notes.add(*hints_after(classifier, result, draws=judge_samples, eot=eot))
        notes.add((total_usage(classifier) - before).line)
    return replace(
        comparison,
        notes=tuple(notes.lines),
        chosen=chosen,
        data=source if isinstance(source, str) else "given",
        model_digest=digest,
        data_digest=digest_data(images.inputs, images.labels),
    )


def _dear_note(passes: Mapping[str, float]) -> tuple[str, ...]:
    """Return a note on implementations that are expected to need thousands of passes per image."""
    dear = sorted((name for name in passes if passes[name] >= _MANY_PASSES), key=lambda name: -passes[name])
    if not dear:
        return ()
    counts = ", ".join(f"{name} {passes[name]:.0f}" for name in dear)
    return (f"up to about this many passes per image: {counts}; fewer `steps` or images take less time",)


def _further_rows(also: Any, rules: ThreatModel, *, fixed: bool) -> list[Implementation]:
    """Return the implementations that the argument `also` names.

    Raises:
        Unsupported: if none of the implementations of an entry supports the norm.
    """
    rows: list[Implementation] = []
    for other in [also] if callable(also) else read_list(also, "attacks to compare with"):
        others = rows_of(other, (), fixed=fixed, norm=rules.norm)
        if not any(rules.norm in row.classes for row in others):
            have = ", ".join(sorted({each for row in others for each in row.classes}))
            wanted = f"`also` {getattr(other, '__name__', other)} does not support norm {rules.norm}, only {have}"
            raise Unsupported(f"{wanted}; choose a `norm` that all compared attacks support")
        rows += others
    return rows


def _split_target(target: Any, targets: Any, count: int) -> tuple[str, Tensor | None]:
    """Split the argument `target` into a rule and classes.

    Returns:
        The target rule or class number as text, and the target class of each image. If classes per image are given, the
        text is "". Otherwise the classes are None.
    """
    is_each = isinstance(target, Tensor | np.ndarray | list | tuple)
    if targets is not None and (is_each or target not in ("", None)):
        raise InvalidInput("`target` and `targets` cannot be combined; give the class of each image as `target`")
    if not is_each and targets is None:
        return read_target(target), None
    given: Any = target if is_each else targets
    shape = tuple(given.shape if isinstance(given, Tensor) else np.shape(given))
    if shape != (count,):
        raise InvalidInput(f"expected one target class for each of the {count} images, got shape {shape}")
    return "", read_labels(given, count)


def rows_of(attack: Any, libraries: Iterable[str], *, fixed: bool, norm: str | None = None) -> list[Implementation]:
    """Return the requested implementations of an attack in the given libraries.

    Args:
        attack: see `compare`.
        libraries: names of the libraries to use; empty for all.
        fixed: whether to include variants in which davylamp has fixed an issue of the library.
        norm: for a search such as "best(pgd)", the norm that its attack must support. None for any norm.

    Raises:
        DavylampError: if a library is unknown, or none of the libraries has the attack.
    """
    wanted = read_list(libraries, "libraries as names", str)
    for name in wanted:
        find_library(name)
    if is_search(attack):
        return search_rows(attack, norm, wanted, fixed=fixed)
    if isinstance(attack, str) and attack in ATTACKS:
        rows = [row for row in implementations_of(attack) if fixed or not row.variant]
    else:
        rows = [resolve_implementation(attack)]
    chosen = [row for row in rows if not wanted or row.library in wanted]
    if not chosen:
        raise no_library(attack if isinstance(attack, str) else rows[0].name, rows, wanted)
    return chosen


def _choice(name: str, norm: Any, *rest: Any, defaults: bool = False) -> AttackChoice:
    if norm is not None:
        check_norm(norm)
    return AttackChoice(name, norm, *rest, defaults=defaults)


def _chosen(asked: AttackChoice, rows: Sequence[Implementation], rules: ThreatModel) -> dict[str, Any]:
    only = all(row.targeted == "only" for row in rows)
    inside = attack_inside(asked.attack) if is_search(asked.attack) else rows[0].attack
    return chosen_of(asked, inside, rules, only_targeted=only)


def _rules(
    threat_model: ThreatModel | None, asked: AttackChoice, rows: Sequence[Implementation], size: int | None
) -> ThreatModel:
    """Return the argument `threat_model`, or, if it is None, a threat model built from the norm and the radius.

    Args:
        threat_model: the argument of the caller. None if not given.
        asked: the attack, with the norm and the radius that were given as keywords.
        rows: implementations of the attack.
        size: number of components of an image. None if unknown.

    Raises:
        InvalidInput: if a threat model is given together with a norm, a radius, or a target that it does not allow.
        WrongType: if `threat_model` is not a `ThreatModel`.
    """
    if threat_model is None:
        return threat_model_of(asked, rows, size)
    if not isinstance(threat_model, ThreatModel):
        raise type_error("a ThreatModel, or norm and epsilon by keyword", threat_model)
    if asked.norm is not None or asked.epsilon is not None:
        raise InvalidInput("`threat_model` cannot be combined with `norm` or `epsilon`; give one or the other")
    if asked.target and not threat_model.targeted:
        raise InvalidInput(f"target={asked.target!r} needs a targeted threat model, got an untargeted one")
    return threat_model


def warnings_before(
    rows: Sequence[Implementation], rules: ThreatModel, parameters: Mapping[str, Any], eot: Any, model: nn.Module
) -> tuple[str, ...]:
    """Return warnings that are known before a run.

    A warning says that an attack's steps are too short to reach the radius, or that outputs of a random model are
    averaged by the attack as well as by `eot`.

    Args:
        rows: implementations to run.
        rules: threat model.
        parameters: parameters that the user gave. Other parameters have the library's default.
        eot: for a random model, number of outputs that are averaged for each query of the attack.
        model: model under attack.
    """
    is_drawn = isinstance(model, Classifier) and model.random and type(eot) is int
    single = [row for row in rows if not isinstance(row, SearchImplementation)]
    lines = [short_steps_warning(row, rules, parameters) for row in single]
    lines += [warn_repeated_draws(row, rules.norm, parameters, eot) for row in single if is_drawn]
    return tuple(filter(None, lines))


def hints_after(
    classifier: Classifier,
    result: AttackResult | None,
    *,
    draws: int | None = None,
    eot: int | None = None,
    surrogate: Classifier | None = None,
) -> list[str]:
    """Return notes on a model, which are added to the result of an attack.

    The notes say how the model's outputs were interpreted, which gradients of a defence were used, how often a random
    model was sampled, and whether the accuracy is at chance level.

    Args:
        classifier: the model under attack.
        result: result of an attack on the model. None if all attacks failed.
        draws: for a random model, number of outputs by which an example is judged. None for the default.
        eot: for a random model, number of outputs that are averaged for each query of the attack. None for the default.
        surrogate: model on which the examples were made. None if the examples were made on `classifier`.
    """
    hint = None if result is None else explain_accuracy(result.logits, result.labels)
    passed = describe_gradients((surrogate or classifier).name)
    counts = {"draws": draws or classifier.draws, "eot": eot or classifier.eot}
    drawn = "" if surrogate else describe_sampling(classifier.name, is_random=classifier.random, **counts)
    read = [classifier.output_note, classifier.precision_note, passed, drawn, hint, surrogate and surrogate.output_note]
    return [*classifier.loading_notes, *filter(None, read)]


def hints_before(classifier: Classifier, inputs: Tensor, labels: Tensor) -> list[str]:
    """Return warnings about a model that are known before an attack.

    They concern outputs that differ between calls, outputs that are probabilities, and an accuracy at chance level. A
    model behind a server is not queried. For such a model, only the warning about probabilities is possible.

    Args:
        classifier: the model.
        inputs: clean images, shape (N, C, H, W).
        labels: ground truth, shape (N,).
    """
    if is_address(classifier.name):
        return list(filter(None, [classifier.output_note]))
    logits = classifier.predict_logits(inputs)
    is_steady = classifier.random or is_deterministic(classifier, inputs, logits, 0)
    return list(filter(None, ["" if is_steady else UNSTEADY, classifier.output_note, explain_accuracy(logits, labels)]))


def _learned_from(row: Implementation, result: AttackResult) -> tuple[str, ...]:
    """Return a note if an attack was fitted on the images on which it is evaluated."""
    flattered = row.universal and not row.data_free and result.fitted is None
    return ("fitted on the evaluation images; call fit_attack to fit on others",) if flattered else ()
