"""State of an attack for each image: the best example so far, the queries used, and reasons for invalid results."""

import torch
from torch import Tensor

from ..attack import Implementation
from ..catalogue.lookup import canonical_attack
from ..criterion import is_fooled
from ..models.classifier import Classifier
from ..result import OF_THE_LIBRARY, allowed_radii
from ..threat_model import ThreatModel
from ..user_code_guard import name_error
from .determinism import draw_hits
from .fit import Fitted
from .judge import JudgedImages, belongs_to_other_image, judge_images, judge_outcomes, perturbation_norm, quantise
from .library_call import CallLimits, Images, LibraryOutput
from .sampling import judge_outputs
from .trace import Trace


class AttackState:
    """Best example of each image over all batches and restarts of an attack, and observations from the library calls.

    Args:
        images: clean images, labels and targets.
        threat_model: the threat model.
        row: the implementation.
        spent: queries that each image used before this attack, shape (N,).
        trace: records the nearest example of each image. None to record nothing.
        fitted: the fitted tensors of a fitted attack. None for other attacks.
        seed: random seed of the samples on which restarts are compared, if the model is random.
    """

    draws_fooled: Tensor | None = None  # proportion of samples, (N,), of a random model, once concluded

    def __init__(
        self,
        images: Images,
        threat_model: ThreatModel,
        row: Implementation,
        spent: Tensor,
        *,
        trace: Trace | None = None,
        fitted: Fitted | None = None,
        seed: int = 0,
    ):
        self.seed = seed
        count, device = len(images.labels), images.inputs.device
        self.images, self.threat_model, self.row, self.spent = images, threat_model, row, spent
        self._trace, self.fitted = trace, fitted
        attack = canonical_attack(row)
        self.bound = attack.kind == "fixed-budget" and threat_model.epsilon is not None
        self.knowledge = attack.knowledge
        self.adv_inputs = images.inputs.clone()
        # By image: fooled; may be returned unchanged; observations of the library calls, see `LibraryOutput`.
        self.success, self.may_stay, self.silent, self.odd_gradient, self.odd_query, self.scored = (
            torch.zeros(count, dtype=torch.bool, device=device) for _ in range(6)
        )
        self.may_stay |= True  # until a library gets the image, it has no queries left
        # Passes, and gradients that were not zero.
        self.forwards, self.backwards, self.gradients = (
            torch.zeros(count, dtype=torch.long, device=device) for _ in range(3)
        )
        self.seconds = torch.zeros(count, dtype=torch.double, device="cpu")
        self.tainted = torch.zeros_like(self.success)  # attacked while the library changed the model
        self.violations: list[tuple[str, ...]] = [()] * count
        self.errors: list[str] = []

    def call_limits(self, rows: Tensor, max_queries: int | None) -> CallLimits:
        """Return the limits for a library call on the images with indices `rows`."""
        used = self.queries_used[rows]
        trace = None if self._trace is None else self._trace.of_call(rows, used)
        return CallLimits(None if max_queries is None else max_queries - used, trace)

    def merge(self, rows: Tensor, call: LibraryOutput, classifier: Classifier, *, first: bool) -> None:
        """Judge the images that a library call returned. Those that are better than the current examples replace them.

        Args:
            rows: indices of the images of the call.
            call: output of the library call.
            classifier: the model.
            first: whether this is the first restart.
        """
        clean = self.images.inputs[rows]
        # The clean image is a valid result of an attack that tried others in vain, or ran out of queries.
        may_stay = (call.moved & (self.row.failure == "input")) | call.denied
        rules = self.threat_model.for_images(rows)
        verdict = judge_images(clean, call.adv_inputs, rules, bound=self.bound, may_stay=may_stay)
        self.forwards[rows] += call.forwards
        self.backwards[rows] += call.backwards
        self.seconds[rows.cpu()] += call.seconds / len(rows)
        for name in ("silent", "odd_gradient", "odd_query", "scored"):
            getattr(self, name)[rows] |= getattr(call, name)
        self.gradients[rows] += call.gradients
        if call.error is not None:
            self.errors.append(name_error(call.error))
        take = torch.ones_like(rows, dtype=torch.bool)
        if not first:
            take = self._is_better(rows, verdict, classifier)
        for place, (i, taken) in enumerate(zip(rows.tolist(), take.tolist(), strict=True)):
            if taken:
                judged = () if call.violations[place] else verdict.violations[place]
                self.violations[i] = (*call.violations[place], *judged)
        self.adv_inputs[rows[take]] = verdict.adv_inputs[take]
        self.may_stay[rows[take]] = may_stay[take]

    @property
    def queries_used(self) -> Tensor:
        """Queries used by each image, including those before this attack, shape (N,)."""
        return self.spent + self.forwards + self.backwards

    def update_success(self, classifier: Classifier) -> None:
        """Judge the best examples so far. Only an attack with several restarts needs this."""
        drawn = judge_outputs(classifier, self.adv_inputs, *self.images[1:], self.seed, final=False)
        self.success = self._hit(drawn.logits) & ~self._flagged()

    def mark_invalid(self, kind: str, images: Tensor) -> None:
        """Add a reason why results are invalid.

        Args:
            kind: the reason, see `judge.KINDS`.
            images: images to which the reason is added, as a mask, shape (N,), bool.
        """
        for i in images.nonzero()[:, 0].tolist():
            if kind not in self.violations[i]:
                self.violations[i] = (*self.violations[i], kind)

    def _forget(self, kind: str, images: Tensor) -> None:
        """Remove a reason why results are invalid.

        Args:
            kind: the reason.
            images: images from which the reason is removed, as a mask, shape (N,), bool.
        """
        for i in images.nonzero()[:, 0].tolist():
            self.violations[i] = tuple(each for each in self.violations[i] if each != kind)

    def finish(self, classifier: Classifier, attacked: Tensor, unsteady: int | None) -> tuple[Tensor, Tensor, Tensor]:
        """Judge the final examples, and mark invalid results.

        Args:
            classifier: the model.
            attacked: whether each image was attacked, shape (N,), bool.
            unsteady: random seed of repeated queries, if the model's predictions vary between calls. None if they do
                not.

        Returns:
            The logits of the examples, shape (N, K). Whether each example is a success, and whether it still is a
            success after rounding to 8 bits, shape (N,) bool each.
        """
        inputs, labels, targets = self.images
        logits, share = judge_outputs(classifier, self.adv_inputs, labels, targets)
        self.draws_fooled = None if share is None else share.where(self._inside(), 0.0)
        hit, right = self._hit(logits), ~is_fooled(logits, labels, targets)
        self.mark_invalid("model-changed", self.tainted & attacked)
        kinds = {
            "nan-logits": ~torch.isfinite(logits).all(1) | (self.silent & ~hit),
            "nan-gradient": self.odd_gradient & ~hit & ~self.silent,
            "nan-query": self.odd_query & ~hit,
            "no-gradient": right & (2 * self.gradients < self.backwards) & (self.knowledge == "white-box"),
            "no-signal": right & ~self.scored & (self.forwards > 0) & (self.knowledge == "score-based"),
        }
        if unsteady is not None:
            wrong = draw_hits(classifier, inputs, labels, None, unsteady).ever
            drawn = draw_hits(classifier, self.adv_inputs, labels, targets, unsteady)
            kinds["unstable"] = wrong | (drawn.always != hit) | (drawn.ever != hit)
        if not self.bound:
            kinds["another-image"] = belongs_to_other_image(inputs, self.adv_inputs)
        kinds |= judge_outcomes(inputs, self.adv_inputs, hit, self.threat_model, may_stay=self.may_stay)
        for kind, images in kinds.items():
            if kind not in OF_THE_LIBRARY:  # that is why it was returned unchanged
                self._forget("unchanged", images)
            # Whatever a library makes of a NaN of the model, its own kinds do not hide that one.
            self.mark_invalid(kind, images & attacked & (True if kind.startswith("nan-") else ~self._flagged()))
        success = hit & attacked & ~self._flagged()
        examples = Images(self.adv_inputs, labels, targets)
        rounded, broken = last_on_grid(classifier, examples, success, unsteady)
        self.mark_invalid("nan-logits", broken)
        return logits, success & ~broken, rounded & ~broken

    def _flagged(self) -> Tensor:
        return torch.tensor([bool(kinds) for kinds in self.violations], device=self.success.device)

    def _hit(self, logits: Tensor) -> Tensor:
        return is_fooled(logits, self.images.labels, self.images.targets) & self._inside()

    def _inside(self) -> Tensor:
        size = perturbation_norm(self.adv_inputs.double() - self.images.inputs.double(), self.threat_model.norm)
        return size <= allowed_radii(self.threat_model)

    def _is_better(self, rows: Tensor, verdict: JudgedImages, classifier: Classifier) -> Tensor:
        images = self.images.select(rows)
        size, previous = (
            perturbation_norm(new.double() - images.inputs.double(), self.threat_model.norm)
            for new in (verdict.adv_inputs, self.adv_inputs[rows])
        )
        drawn = judge_outputs(classifier, verdict.adv_inputs, *images[1:], self.seed, final=False)
        hit = is_fooled(drawn.logits, images.labels, images.targets)
        flagged = torch.tensor([bool(kinds) for kinds in verdict.violations], device=hit.device)
        inside = size <= allowed_radii(self.threat_model.for_images(rows))
        return hit & ~flagged & inside & (~self.success[rows] | (size < previous))


def last_on_grid(
    classifier: Classifier, examples: Images, success: Tensor, unsteady: int | None
) -> tuple[Tensor, Tensor]:
    """Check which successful examples still fool the model after rounding to 8 bits.

    Args:
        classifier: the model under attack.
        examples: the examples, with labels and targets.
        success: whether each example fools the model, shape (N,), bool.
        unsteady: random seed of repeated queries, if the model's predictions vary between calls. None if they do not.

    Returns:
        Whether each rounded example fools the model, and whether its logits are not finite, shape (N,) bool each.
    """
    rounded, broken = success.clone(), torch.zeros_like(success)
    if not success.any():
        return rounded, broken
    inputs, labels, targets = examples.select(success)
    if classifier.random:  # the same samples as before rounding
        on_grid = judge_outputs(classifier, quantise(examples.inputs), examples.labels, examples.targets).logits[
            success
        ]
    else:
        on_grid = judge_outputs(classifier, quantise(inputs), labels, targets).logits
    rounded[success] = is_fooled(on_grid, labels, targets)
    if unsteady is not None:
        rounded[success] &= draw_hits(classifier, quantise(inputs), labels, targets, unsteady).always
    broken[success] = ~torch.isfinite(on_grid).all(1)
    return rounded, broken
