"""Runs an implementation on a classifier and judges the returned images."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, cast

import torch
from torch import Tensor

from ...deprecation import takes_old_names
from ...errors import AttackDied, AttackFailed, InvalidInput, ModelDied, ModelFailed, Unsupported
from ..attack import Implementation, RunSetting
from ..catalogue.lookup import canonical_attack, check_settings, load_class, resolve_implementation, why_not_on
from ..coercion import read_seed, type_error
from ..models.classifier import Classifier
from ..models.held import naming_replaced
from ..models.images import check_images, check_labels
from ..models.sandbox.isolated import reset_processes
from ..models.state_guard import ChangeByAttack, StateGuard, check_unchanged, is_changed
from ..result import UNSTEADY, AttackResult
from ..threat_model import ThreatModel, select_kwargs
from ..torch_state import with_gradients
from .attack_state import AttackState
from .determinism import Answered, is_deterministic, stays_steady
from .fit import Fitted, apply_fitted, check_fitted, fitted_kwargs
from .judge import perturbation_distances
from .library_call import Images, LibraryOutput, call_library
from .precision import check_precision, precision_of
from .queries import ModelNotDifferentiable, separable_groups
from .requirements import check_requirements
from .sampling import clean_logits, sampling_context
from .seeding import call_seed, seeded
from .targets import check_targeted_required
from .trace import Trace

DEFAULT_BATCH_SIZE = 32
_LONG = 400  # queries for which two more to check that the model is unchanged are negligible
_PROBES = 32  # images of each kind used to detect a changed model


@dataclass(frozen=True)
class RunOptions:
    """Optional arguments of `run_attack`, except the attack's parameters."""

    targets: Tensor | None = None
    seed: int = 0
    first: int | Tensor = 0
    spent: Tensor | None = None
    radii: Tensor | None = None
    logits: Tensor | None = None
    attacked: Tensor | None = None
    fitted: Fitted | None = None
    progress: Callable[[int], object] | None = None
    watch: Callable[[LibraryOutput], object] | None = None
    trace: Trace | None = None
    draws: int | None = None
    eot: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", read_seed(self.seed))
        if self.logits is not None and not (isinstance(self.logits, Tensor) and self.logits.ndim == 2):
            raise type_error("logits as a tensor of shape (N, K)", self.logits)

    def note(self, call: LibraryOutput) -> None:
        """Pass the output of a finished library call to the callbacks."""
        if self.watch is not None:
            self.watch(call)
        if self.progress is not None:
            self.progress(len(call.adv_inputs))

    @property
    def asked(self) -> Callable[[int], object] | None:
        """Callback for the number of queries after each model call, or None if there is none."""
        return getattr(self.progress, "asked", None)


@takes_old_names()
@with_gradients
def run_attack(  # noqa: PLR0913 - the one verb: the five nouns by position, the rest by keyword
    implementation: Any,
    classifier: Classifier,
    inputs: Tensor,
    labels: Tensor,
    threat_model: ThreatModel,
    *,
    targets: Tensor | None = None,
    seed: int = 0,
    first: int | Tensor = 0,
    spent: Tensor | None = None,
    radii: Tensor | None = None,
    logits: Tensor | None = None,
    attacked: Tensor | None = None,
    fitted: Fitted | None = None,
    progress: Callable[[int], object] | None = None,
    watch: Callable[[LibraryOutput], object] | None = None,
    trace: Trace | None = None,
    judge_samples: int | None = None,
    eot: int | None = None,
    **parameters: Any,
) -> AttackResult:
    """Attack the images that the classifier classifies correctly, and judge the result independently of the library.

    Only the given parameters are passed to the library. All others keep the library's defaults. Equal seeds give equal
    results in any process.

    Args:
        implementation: an implementation, its name ("foolbox:pgd", "art:square@fixed", "my_attack.py:MyAttack"), or a
            user's attack itself (`as_implementation`).
        classifier: the model under attack.
        inputs: clean images in [0, 1], shape (N, C, H, W). They are attacked in float32.
        labels: true classes, int64, shape (N,).
        threat_model: norm, epsilon, targeted.
        targets: target classes, shape (N,), for a targeted threat model.
        seed: random seed of the whole run, 0 <= seed < 2**32.
        first: index of the first image in the whole data set or, if the images are not consecutive, index of every
            image, shape (N,). The seed of a call depends on it, so that different parts of a data set use different
            random numbers.
        spent: queries that each image has already used, int64, shape (N,). They count against `max_queries` but are not
            included in the result. An image without remaining queries is not queried and stays unchanged.
        radii: a radius per image instead of one for all, shape (N,), 0 < radius <= epsilon, if the implementation
            supports it (`supports_per_image_radii`). `step_size` may then also be a tensor with one value per image.
        logits: logits of the clean images, shape (N, K), if known. The clean images are then not queried.
        attacked: whether to attack each image, shape (N,), bool. None to attack the correctly classified images. A
            misclassified image counts as fooled if the returned image is different and is also misclassified.
        fitted: the result of `fit_attack` for this implementation, with its parameters. It is applied without queries,
            unless the implementation queries the model with its fitted tensors (`Implementation.learned`).
        progress: called with the number of finished images after each library call. If it has a method `asked`, this
            method is called with the number of queries after each model call.
        watch: called with the output of each library call, before it is judged.
        trace: records the nearest example of each image among all queries, even if the attack does not return it. It
            must be made for these images in this order. The queries in `spent` are included in its counts.
        judge_samples: number of samples on which each example is judged, if the model is random (`Classifier.random`);
            default 20. They do not count as the attack's queries.
        eot: number of samples of a random model whose mean logits (and gradient) the attack receives: expectation over
            transformation (Athalye et al. 2018). Each sample is a query; default 1. Has no effect on other models.
        **parameters: canonical parameters (`parameters.PARAMETERS`) of the implementation. All implementations also
            have `max_queries`, `batch_size` (default 32; 1 if the implementation couples its images) and `precision` of
            the passes (`PRECISIONS`; default: torch's settings; the judge always uses full float32). Random
            implementations have `restarts`.

    Returns:
        One entry per image, see `AttackResult`. `success` is determined after clipping to the ball and to [0, 1], with
        new logits in one fixed batch size. For a minimum-norm attack with an epsilon, it means success within epsilon.

    Raises:
        InvalidInput: if an argument has a wrong value, shape or range.
        UnknownName: if no such implementation or parameter exists.
        Unsupported: if the implementation does not support the request, or the model lacks something that the
            implementation needs. This error is raised before anything is computed.
        MissingLibrary: if the library is not installed.
        AttackFailed: if the library crashed on every batch. The library's error is the cause (`__cause__`).
    """
    options = RunOptions(
        targets=targets,
        seed=seed,
        first=first,
        spent=spent,
        radii=radii,
        logits=logits,
        attacked=attacked,
        fitted=fitted,
        progress=progress,
        watch=watch,
        trace=trace,
        draws=judge_samples,
        eot=eot,
    )
    return _run(
        resolve_implementation(implementation),
        classifier,
        Images(inputs, labels, targets),
        threat_model,
        options,
        parameters,
    )


def _run(
    row: Implementation,
    classifier: Classifier,
    images: Images,
    threat_model: ThreatModel,
    options: RunOptions,
    parameters: Mapping[str, Any],
) -> AttackResult:
    inputs, labels, targets = images
    fitted = options.fitted
    if fitted is not None:
        check_fitted(row, fitted, threat_model, labels, targets)
        parameters = {**fitted.parameters, **parameters}
    settings = check_settings(row, threat_model, parameters, options.radii)
    load_class(row, threat_model.norm)
    check_images(inputs)
    threat_model.check_radius(inputs[0].numel())
    inputs = inputs.detach().float()
    reset_processes(classifier)
    check_unchanged(classifier)
    with naming_replaced(), classifier.frozen(), sampling_context(classifier, draws=options.draws, eot=options.eot):
        logits = clean_logits(classifier, inputs, labels, options.logits)
        labels = labels.to(inputs.device, torch.long)
        check_targeted_required(classifier, threat_model)
        if fitted is None or row.learned:
            check_requirements(row, classifier, inputs, norm=threat_model.norm, aimed=targets is not None)
            check_precision(precision_of(row, settings), classifier, row)
        targets = _check_targets(threat_model, labels, targets, logits.shape[1])
        spent = torch.zeros_like(labels) if options.spent is None else options.spent
        spent = _check_whole("spent", spent, labels)
        options = replace(options, first=_check_whole("first", _places(options.first, len(labels)), labels))
        setting = RunSetting(classifier.model, logits.shape[1], tuple(inputs.shape[1:]), threat_model, settings)
        if why := why_not_on(row, setting):
            raise Unsupported(f"{row.name} {why}")
        given = options.attacked
        attacked = logits.argmax(1) == labels if given is None else _check_flags(given, labels)
        rules = threat_model if options.radii is None else threat_model.with_radii(options.radii, labels)
        checked, seed = Images(inputs, labels, targets), options.seed
        evidence = AttackState(checked, rules, row, spent, trace=options.trace, fitted=fitted, seed=seed)
        steady = classifier.random or is_deterministic(classifier, inputs, logits, seed)
        _attack_all(classifier, evidence, attacked, settings, options, logits)
        (adv_logits, success, rounded), steady = _conclude(classifier, evidence, attacked, logits, steady=steady)
        return AttackResult(
            implementation=row.name,
            threat_model=threat_model,
            parameters=settings,
            seed=seed,
            adv_inputs=evidence.adv_inputs,
            logits=logits,
            adv_logits=adv_logits,
            labels=labels,
            attacked=attacked,
            success=success,
            success_8bit=rounded,
            distances=perturbation_distances(inputs, evidence.adv_inputs),
            forwards=evidence.forwards,
            backwards=evidence.backwards,
            seconds=evidence.seconds,
            violations=tuple(evidence.violations),
            targets=targets,
            errors=tuple(evidence.errors),
            notes=() if steady else (UNSTEADY,),
            knowledge=canonical_attack(row).knowledge,
            fitted=fitted,
            draws=classifier.draws if classifier.random else 0,
            eot=classifier.eot if classifier.random else 1,
            draws_fooled=evidence.draws_fooled,
        )


def _conclude(
    classifier: Classifier, evidence: AttackState, attacked: Tensor, logits: Tensor, *, steady: bool
) -> tuple[tuple[Tensor, Tensor, Tensor], bool]:
    """Finish an attack: judge its examples, and check that the model is deterministic.

    If a model that is treated as deterministic turns out to vary, the examples are judged again.

    Returns:
        The result of `AttackState.finish`, and whether the model is deterministic.
    """
    seed = evidence.seed
    if not steady:  # it changes by itself: that is not the library's doing
        evidence.mark_invalid("unstable", evidence.tainted & attacked)
        evidence.tainted &= False
    before = tuple(evidence.violations)
    concluded = evidence.finish(classifier, attacked, None if steady else seed)
    if not steady or classifier.random or evidence.tainted.any():  # nor the model's what a library did to it
        return concluded, steady
    clean, examples = Answered(evidence.images.inputs, logits), Answered(evidence.adv_inputs, concluded[0])
    passes = int((evidence.forwards + evidence.backwards).sum())
    if stays_steady(classifier, clean, examples, attacked, passes, seed):
        return concluded, True
    evidence.violations = list(before)  # what was concluded held once
    return evidence.finish(classifier, attacked, seed), False


def _attack_all(
    classifier: Classifier,
    evidence: AttackState,
    attacked: Tensor,
    settings: Mapping[str, Any],
    options: RunOptions,
    logits: Tensor,
) -> None:
    """Call the library on every batch of attacked images. `options.first` has the index of each image in the data."""
    seed, places = options.seed, cast("Tensor", options.first)
    row, fitted, remaining = evidence.row, evidence.fitted, dict(settings)
    batch_size = remaining.pop("batch_size", DEFAULT_BATCH_SIZE)
    applied = fitted is not None and not row.learned
    restarts = 1 if applied or "restarts" in row.params else remaining.pop("restarts", 1)
    kwargs = {row.params[name]: value for name, value in remaining.items() if name in row.params} | dict(row.fixed)
    learned = fitted_kwargs(row, fitted, classifier.device)
    calls, error, watch = 0, None, _ModelStateGuard(classifier, evidence, logits)
    with watch:
        for restart in range(restarts):
            if restart:
                watch.look()
                evidence.update_success(classifier)
            still = attacked & ~evidence.success if evidence.threat_model.epsilon is not None else attacked
            if "max_queries" in remaining:
                still = still & (evidence.queries_used < remaining["max_queries"])
            for rows in _batches(row, still.nonzero()[:, 0], evidence, batch_size):
                drawn = call_seed(seed, int(places[rows[0]]), restart)
                rules = evidence.threat_model.for_images(rows, classifier.device)
                if fitted is not None and applied:
                    call = apply_fitted(row, fitted, evidence.images.select(rows), rules)
                else:
                    words = select_kwargs(kwargs, rows, classifier.device) | learned
                    meter = evidence.call_limits(rows, remaining.get("max_queries"))
                    meter = meter._replace(asked=options.asked, precision=precision_of(row, remaining))
                    call = call_library(row, classifier, evidence.images.select(rows), rules, words, drawn, meter)
                options.note(call._replace(rows=rows))
                calls, error = calls + 1, call.error or error
                if isinstance(call.error, (AttackDied, ModelDied)):  # no process is left to query
                    raise call.error
                if isinstance(call.error, Unsupported):
                    raise Unsupported(f"{row.name} {call.error}") from call.error
                watch.note(rows, call.error)
                evidence.merge(rows, call, classifier, first=restart == 0)
    if calls and len(evidence.errors) == calls:
        if isinstance(error, ModelFailed) and not evidence.tainted.any():  # else the attack's doing
            raise error
        raise AttackFailed(f"{row.name} crashed: {evidence.errors[0]}") from error


class _ModelStateGuard:
    """Restores the model after library calls.

    If the model was changed, results of images attacked in the meantime are invalid.

    At the end of the run, probe images are queried once more to detect any change of the model. This is done after
    users' attacks. It is done after other attacks if it costs little compared with the attack. If a change cannot be
    undone, the classifier records this (`changed_by`).

    Args:
        classifier: the model.
        evidence: state of the attack, in which invalid results are marked.
        known: logits of the clean images, shape (N, K).
    """

    def __init__(self, classifier: Classifier, evidence: AttackState, known: Tensor):
        self.classifier, self.evidence, self.guard = classifier, evidence, StateGuard(classifier)
        self.unchecked: list[Tensor] = []  # images attacked since the last look
        self.attacked: list[Tensor] = []
        self.before = ChangeByAttack(evidence.row.name, evidence.images.inputs[:2], known[:2])

    def __enter__(self) -> None:
        """Start to observe the model."""

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Restore the model. If the block ended with an error or an interrupt, the model is not queried for this."""
        if kind is not None:
            self.guard.restore_silently()
            return
        self.look()
        if self._is_worth_a_pass and is_changed(self.classifier, self.before):
            self.evidence.tainted[torch.cat(self.attacked)] = True
            self.classifier.changed_by = self.before

    def note(self, rows: Tensor, error: BaseException | None) -> None:
        """Check the model after a library call, if the check is cheap or the call raised an error.

        Args:
            rows: indices of the images of the call.
            error: error of the call. None if it succeeded.

        Raises:
            Unsupported: if the model has no gradients.
        """
        self.unchecked.append(rows)
        self.attacked.append(rows)
        changed = (self.guard.is_due or error is not None) and self.look()
        if isinstance(error, ModelNotDifferentiable) and not changed:
            name = self.evidence.row.name
            raise Unsupported(f"{name} needs gradients, but the model's outputs are detached from its inputs")

    def look(self) -> bool:
        changed = bool(self.unchecked) and self.guard.restore(self._ask_widely)
        if changed:
            self.evidence.tainted[torch.cat(self.unchecked)] = True
        self.unchecked.clear()
        return changed

    @property
    def _is_worth_a_pass(self) -> bool:
        """Whether to query the model once more at the end.

        The model must be local and deterministic. The attack must be a user's, or have made many queries.
        """
        passes, one = self.evidence.forwards + self.evidence.backwards, self.classifier
        worth = self.evidence.row.is_user_attack or int(passes.sum()) >= _LONG
        return bool(self.attacked and worth and one.steady and one.stated_identity is None)

    def _ask_widely(self) -> Tensor:
        """Query clean images, attacked images, noise, a black and a white image.

        Their outputs show a change of the model.
        """
        clean, examples = self.evidence.images.inputs[:_PROBES], self.evidence.adv_inputs[:_PROBES]
        noise = torch.rand(clean[:2].shape, generator=torch.Generator().manual_seed(0), device="cpu").to(clean)
        with seeded(0):  # so that a random model returns the same for both calls
            return self.classifier.predict_logits(
                torch.cat([clean, examples, noise, noise.round(), noise * 0, noise * 0 + 1])
            )


def _batches(row: Implementation, rows: Tensor, evidence: AttackState, batch_size: int) -> Iterator[Tensor]:
    """Yield the images of each library call, as indices.

    A call has fewer images than a batch if the implementation couples its images, or if queries could not be counted
    for the right image otherwise.
    """
    for batch in rows.split(1 if row.alone else batch_size):
        if row.order == "content" and not row.universal:
            groups = separable_groups(evidence.images.inputs[batch], evidence.threat_model)
            yield from (batch[group] for group in groups)
        elif len(batch):
            yield batch


def _check_targets(threat_model: ThreatModel, labels: Tensor, targets: Tensor | None, classes: int) -> Tensor | None:
    if not threat_model.targeted:
        if targets is not None:
            raise InvalidInput("targets were given, but the threat model is untargeted")
        return None
    if targets is None:
        raise InvalidInput("a targeted threat model needs targets")
    check_labels(targets, len(labels), classes)
    targets = targets.to(labels.device, torch.long)
    if (targets == labels).any():
        raise InvalidInput("expected every target to differ from its label, got targets equal to their labels")
    return targets


def _check_flags(attacked: Tensor, labels: Tensor) -> Tensor:
    if not isinstance(attacked, Tensor):
        raise type_error(f"attacked as a tensor of {len(labels)} booleans", attacked)
    if attacked.shape != labels.shape or attacked.dtype != torch.bool:
        raise InvalidInput(
            f"expected attacked as {len(labels)} booleans, got {attacked.dtype} of shape {tuple(attacked.shape)}"
        )
    return attacked.to(labels.device)


def _places(first: Any, count: int) -> Any:
    """Return the index of each image in the whole data set.

    Args:
        first: index of the first image, if the images are consecutive. Otherwise the index of each image.
        count: number of images.
    """
    return torch.arange(count, device="cpu") + int(first) if isinstance(first, Integral) else first


def _check_whole(name: str, values: Any, labels: Tensor) -> Tensor:
    """Return a tensor of whole numbers on the labels' device.

    Raises InvalidInput unless each image has an integer >= 0.
    """
    if not isinstance(values, Tensor):
        raise type_error(f"{name} as a tensor of {len(labels)} whole numbers", values)
    if values.shape != labels.shape or values.is_floating_point() or bool((values < 0).any()):
        got = f"{values.dtype} of shape {tuple(values.shape)} with {int((values < 0).sum())} below 0"
        raise InvalidInput(f"expected {name} as {len(labels)} whole numbers >= 0, got {got}")
    return values.to(labels.device, torch.long)
