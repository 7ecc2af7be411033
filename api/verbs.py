"""The verbs of `davylamp` for a script or a notebook: a plain module, tensors or arrays, and keywords.

None changes the process that it is called in. Call `davylamp.keep_freed_memory()` in a script that attacks on a CPU:
without it an attack can take half as long again.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ..adapters import AttackResult, Classifier, Implementation, ThreatModel, implementations_of
from ..adapters import run_attack as run_row
from ..adapters.arguments import (
    read_list,
    read_radius,
    read_seed,
    read_target,
    read_text,
    read_whole,
    wrong_type,
)
from ..adapters.catalogue.customary import choose_threat_model
from ..adapters.catalogue.lookup import ATTACKS, find_library, row_of
from ..adapters.catalogue.step_size import resolve_step
from ..adapters.data.datasets import corrupt, load_data
from ..adapters.models.borrowed import borrowed
from ..adapters.models.ensemble import ensemble_of
from ..adapters.models.images import read_labels
from ..adapters.models.outputs import explain_accuracy
from ..adapters.models.remote.traffic import traffic_of
from ..adapters.models.zoo.load import add_version, load_model
from ..adapters.running.draws import clean_logits
from ..adapters.running.fit import Fitted
from ..adapters.running.fit import fit_attack as fit_row
from ..adapters.running.surrogate import run_transfer
from ..adapters.running.targets import note_moved, targets_for
from ..engine import AttackChoice, Comparison
from ..engine import compare as compare_rows
from ..engine.challenge.challenge import challenge as challenge_model
from ..engine.challenge.document import Challenge
from ..engine.challenge.robust_accuracy import RobustAccuracy, measure_robust_accuracy
from ..engine.comparison.compare import matched_parameters
from ..engine.comparison.searches import SearchRow, is_search, search_rows
from ..engine.plan.choices import chosen_of, chosen_text, join_chosen, no_library
from ..engine.searches.reach import note_library_step, warn_repeated_draws, warn_unreachable
from ..engine.training.harden import Hardened
from ..engine.training.harden import harden as harden_classifier
from ..engine.training.prepare import base_name, prepare_training
from ..errors import InvalidInput
from .handed_over import (
    list_modules,
    take_data,
    take_images,
    take_labelled,
)

_MOST = 2**31 - 1  # of a whole number

__all__ = [
    "challenge",
    "compare",
    "corrupt",
    "fit_attack",
    "harden",
    "load_data",
    "load_model",
    "robust_accuracy",
    "run_attack",
]


def run_attack(
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


def compare(
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


def robust_accuracy(
    model: nn.Module | str,
    inputs: Any = None,
    labels: Any = None,
    *,
    epsilon: float | str | None = None,
    norm: str = "linf",
    data: str | None = None,
    limit: int | None = None,
    batch_size: int | None = None,
    seed: int = 0,
    device: str = "cpu",
    out: str | Path | None = None,
    version: str = "",
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
        data: a name that `load_data` knows, in place of `inputs`; None: "demo:imagenet".
        limit: only this many images.
        batch_size: images per call of a library.
        seed: random seed.
        device: where a model given by its name computes; a module stays where it is.
        out: the results folder, in which a killed call goes on; None: nothing is kept.
        version: of the model, as in `davylamp.evaluate`.

    Returns:
        The clean and the robust accuracy with 95 % intervals, what each attack did, and the warnings.

    Raises:
        DavylampError: as `davylamp.engine.challenge.robust_accuracy.measure_robust_accuracy`.
    """
    images = take_data(inputs, labels, None)[0]
    if images is not None and data is not None:
        raise InvalidInput(f"expected images or the name of data, got both (data={data!r})")
    with ExitStack() as stack:
        lent: Any = (
            add_version(model, version) if isinstance(model, str) else stack.enter_context(borrowed(model, version))
        )
        return measure_robust_accuracy(
            lent,
            images or read_text("demo:imagenet" if data is None else data, "the name of data as text"),
            norm=norm,
            epsilon=read_radius(epsilon),
            limit=limit,
            batch_size=batch_size,
            seed=read_seed(seed),
            device=device,
            out=out,
        )


def challenge(
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
    version: str = "",
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
        version: of the model, as in `davylamp.evaluate`.

    Raises:
        DavylampError: as `davylamp.engine.challenge.challenge.challenge`.
    """
    images = take_data(inputs, labels, None)[0] or data
    with ExitStack() as stack:

        def lend(given: Any, name: str, version: str = "") -> Any:
            lent = stack.enter_context(borrowed(given, version)) if isinstance(given, nn.Module) else given
            if isinstance(given, nn.Module) and not isinstance(given, Classifier):
                lent.name = name
            return lent

        several: Any = surrogates
        if isinstance(surrogates, Mapping):
            several = {name: lend(each, name) for name, each in surrogates.items()}
        return challenge_model(
            add_version(model, version) if isinstance(model, str) else lend(model, "defended", version),
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
        raise no_library(attack if isinstance(attack, str) else rows[0].name, rows, wanted)
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
