"""The one verb: run an implementation on a classifier and judge what comes back."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from ..errors import AttackFailed, InvalidInput, Unsupported
from .attack import AttackResult, Implementation, ThreatModel
from .attacks import ATTACKS
from .call import Images, Returned, call_library
from .catalogue import check_settings, find_implementation, load_class
from .classifier import Classifier, check_images, check_labels
from .judge import allowed_radii, distances_of, fooled, judge_images, norm_of, quantise
from .queries import distinguishable
from .radii import own_radii, pick_rules, pick_words
from .seeding import call_seed

DEFAULT_BATCH_SIZE = 32


def run_attack(  # noqa: PLR0913 - the one verb: the five nouns by position, the rest by keyword
    implementation: str | Implementation,
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
    progress: Callable[[int], object] | None = None,
    **parameters: Any,
) -> AttackResult:
    """Attack the images that the classifier gets right, and judge the result independently of the library.

    Only the parameters that are given are passed on; for the others the library's own defaults hold. The same seed
    gives the same result, in this process or another.

    Args:
        implementation: a row, or its name: "foolbox:pgd", "art:square@repaired".
        classifier: the model under attack.
        inputs: clean images in [0, 1], shape (N, C, H, W); attacked in float32.
        labels: ground truth, int64, shape (N,).
        threat_model: norm, epsilon, targeted.
        targets: target classes, shape (N,), for a targeted threat model.
        seed: fixes every random choice; 0 <= seed < 2**32.
        first: place of the first image in the whole data set, or, where they do not follow one another, of every
            image, shape (N,); goes into the seeding, so that the parts of a data set draw different random numbers.
        spent: queries that each image has used before, int64, shape (N,); they count against `max_queries`, not in the
            result. An image with none left is not asked about and stays as it is.
        radii: a radius for each image instead of one for all, shape (N,), 0 < radius <= epsilon, for a row that takes
            them (`takes_radii`). The `step_size` may then be a tensor of one for each image, too.
        logits: of the clean images, shape (N, K), where they are known; the classifier is not asked for them then.
        progress: called with the number of images done after each library call.
        **parameters: canonical parameters (`parameters.PARAMETERS`); besides the row's own: `restarts` for a row that
            draws random numbers, `max_queries`, and `batch_size` (default 32; a row that couples its images gets 1).

    Returns:
        One entry per image, see `AttackResult`. `success` holds after clipping to the ball and to [0, 1] and scoring
        again in one fixed batch size; for a minimum-norm attack with an epsilon it means success within epsilon.

    Raises:
        InvalidInput: if an argument has a wrong value, shape or range.
        UnknownName: if no such row or parameter exists.
        Unsupported: if the row cannot do what is asked; raised before anything is computed.
        MissingLibrary: if the library is not installed.
        AttackFailed: if the library crashed on every batch; its error is the cause.
    """
    row = implementation if isinstance(implementation, Implementation) else find_implementation(implementation)
    settings = check_settings(row, threat_model, parameters, radii)
    load_class(row, threat_model.norm)
    if not 0 <= seed < 2**32:
        raise InvalidInput(f"expected a seed from 0 to 2**32 - 1, got {seed}")
    check_images(inputs)
    threat_model.check_radius(inputs[0].numel())
    inputs = inputs.detach().float()
    logits = classifier.check(inputs, labels, logits=logits)
    labels = labels.to(inputs.device, torch.long)
    targets = _check_targets(threat_model, labels, targets, logits.shape[1])
    places = _check_whole("first", first if isinstance(first, Tensor) else torch.arange(len(labels)) + first, labels)
    spent = _check_whole("spent", torch.zeros_like(labels) if spent is None else spent, labels)
    if logits.shape[1] < row.min_classes:
        raise Unsupported(f"{row.name} needs at least {row.min_classes} classes, got {logits.shape[1]}")
    attacked = logits.argmax(1) == labels
    rules = threat_model if radii is None else own_radii(threat_model, radii, labels)
    found = _Found(Images(inputs, labels, targets), rules, row, spent)
    _attack_all(classifier, found, attacked, settings, seed, places, progress or (lambda _: None))
    adv_logits = classifier.predict_logits(found.adv_inputs)
    success = found.accept(adv_logits) & attacked
    rounded = success.clone()
    if success.any():
        on_grid = classifier.predict_logits(quantise(found.adv_inputs[success]))
        rounded[success] = fooled(on_grid, labels[success], None if targets is None else targets[success])
    return AttackResult(
        implementation=row.name,
        threat_model=threat_model,
        parameters=settings,
        seed=seed,
        adv_inputs=found.adv_inputs,
        logits=logits,
        adv_logits=adv_logits,
        labels=labels,
        attacked=attacked,
        success=success,
        success_8bit=rounded,
        distances=distances_of(inputs, found.adv_inputs),
        forwards=found.forwards,
        backwards=found.backwards,
        seconds=found.seconds,
        violations=tuple(found.violations),
        targets=targets,
        errors=tuple(found.errors),
    )


class _Found:
    """The best that is known of each image, over batches and restarts."""

    def __init__(self, images: Images, threat_model: ThreatModel, row: Implementation, spent: Tensor):
        count, device = len(images.labels), images.inputs.device
        self.images, self.threat_model, self.row, self.spent = images, threat_model, row, spent
        self.fixed_budget = ATTACKS[row.attack].kind == "fixed-budget"
        self.adv_inputs = images.inputs.clone()
        self.success = torch.zeros(count, dtype=torch.bool, device=device)
        self.forwards = torch.zeros(count, dtype=torch.long, device=device)
        self.backwards = torch.zeros(count, dtype=torch.long, device=device)
        self.seconds = torch.zeros(count, dtype=torch.double)
        self.violations: list[tuple[str, ...]] = [()] * count
        self.errors: list[str] = []

    def merge(self, rows: Tensor, call: Returned, classifier: Classifier, *, first: bool) -> None:
        """Judge what came back for `rows` and keep it where it is better than what was there."""
        clean = self.images.inputs[rows]
        # An image that ran out of queries may rightly come back as it was.
        failure = "input" if call.limited else self.row.failure
        verdict = judge_images(
            clean, call.adv_inputs, pick_rules(self.threat_model, rows), fixed_budget=self.fixed_budget, failure=failure
        )
        self.forwards[rows] += call.forwards
        self.backwards[rows] += call.backwards
        self.seconds[rows.cpu()] += call.seconds / len(rows)
        if call.error is not None:
            self.errors.append(f"{type(call.error).__name__}: {call.error}")
        take = torch.ones_like(rows, dtype=torch.bool)
        if not first:
            take = self._is_better(rows, verdict.adv_inputs, classifier)
        for place, i in enumerate(rows.tolist()):
            if take[place]:
                own = () if call.violations[place] else verdict.violations[place]
                self.violations[i] = (*call.violations[place], *own)
        self.adv_inputs[rows[take]] = verdict.adv_inputs[take]

    @property
    def used(self) -> Tensor:
        """Queries that each image has cost, before and now, shape (N,)."""
        return self.spent + self.forwards + self.backwards

    def accept(self, adv_logits: Tensor) -> Tensor:
        """Which images are successes by the rules, shape (N,) bool; a black image never is."""
        hit = fooled(adv_logits, self.images.labels, self.images.targets) & self._within_radius(self.adv_inputs)
        black = torch.tensor(["black" in kinds for kinds in self.violations], device=hit.device)
        return hit & ~black

    def update_success(self, classifier: Classifier) -> None:
        """Score what has been found so far: needed between restarts only."""
        self.success = self.accept(classifier.predict_logits(self.adv_inputs))

    def _within_radius(self, adv_inputs: Tensor) -> Tensor:
        size = norm_of(adv_inputs.double() - self.images.inputs.double(), self.threat_model.norm)
        return size <= allowed_radii(self.threat_model)

    def _is_better(self, rows: Tensor, adv_inputs: Tensor, classifier: Classifier) -> Tensor:
        images = self.images.pick(rows)
        size, previous = (
            norm_of(new.double() - images.inputs.double(), self.threat_model.norm)
            for new in (adv_inputs, self.adv_inputs[rows])
        )
        hit = fooled(classifier.predict_logits(adv_inputs), images.labels, images.targets)
        return (
            hit
            & (size <= allowed_radii(pick_rules(self.threat_model, rows)))
            & (~self.success[rows] | (size < previous))
        )


def _attack_all(
    classifier: Classifier,
    found: _Found,
    attacked: Tensor,
    settings: Mapping[str, Any],
    seed: int,
    places: Tensor,
    progress: Callable[[int], object],
) -> None:
    row, own = found.row, dict(settings)
    batch_size = own.pop("batch_size", DEFAULT_BATCH_SIZE)
    restarts = 1 if "restarts" in row.params else own.pop("restarts", 1)
    kwargs = {row.params[name]: value for name, value in own.items() if name in row.params} | dict(row.fixed)
    calls, error = 0, None
    for restart in range(restarts):
        if restart:
            found.update_success(classifier)
        still = attacked & ~found.success if found.threat_model.epsilon is not None else attacked
        if "max_queries" in own:
            still = still & (found.used < own["max_queries"])
        for rows in _batches(row, still.nonzero()[:, 0], found, batch_size):
            allowance = own["max_queries"] - found.used[rows] if "max_queries" in own else None
            drawn = call_seed(seed, int(places[rows[0]]), restart)
            rules = pick_rules(found.threat_model, rows, classifier.device)
            words = pick_words(kwargs, rows, classifier.device)
            call = call_library(row, classifier, found.images.pick(rows), rules, words, drawn, allowance)
            calls, error = calls + 1, call.error or error
            found.merge(rows, call, classifier, first=restart == 0)
            progress(len(rows))
    if calls and len(found.errors) == calls:
        raise AttackFailed(f"{row.name} crashed: {found.errors[0]}") from error


def _batches(row: Implementation, rows: Tensor, found: _Found, batch_size: int) -> Iterator[Tensor]:
    """The images of each library call; one by one where the row couples images or they could not be told apart."""
    for batch in rows.split(1 if row.alone else batch_size):
        if (
            row.order == "content"
            and not row.universal
            and not distinguishable(found.images.inputs[batch], found.threat_model)
        ):
            yield from batch.split(1)
        elif len(batch):
            yield batch


def _check_targets(threat_model: ThreatModel, labels: Tensor, targets: Tensor | None, classes: int) -> Tensor | None:
    if not threat_model.targeted:
        if targets is not None:
            raise InvalidInput("expected no targets for an untargeted threat model, got targets")
        return None
    if targets is None:
        raise InvalidInput("expected targets for a targeted threat model, got none")
    check_labels(targets, len(labels), classes)
    targets = targets.to(labels.device, torch.long)
    if (targets == labels).any():
        raise InvalidInput("expected every target to differ from its label, got some that are equal")
    return targets


def _check_whole(name: str, values: Tensor, labels: Tensor) -> Tensor:
    """The values on the device of the labels; InvalidInput unless there is a whole number >= 0 for every image."""
    if values.shape != labels.shape or values.is_floating_point() or bool((values < 0).any()):
        got = f"{values.dtype} of shape {tuple(values.shape)} with {int((values < 0).sum())} below 0"
        raise InvalidInput(f"expected {name} as {len(labels)} whole numbers >= 0, got {got}")
    return values.to(labels.device, torch.long)
