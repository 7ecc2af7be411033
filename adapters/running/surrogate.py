"""Transfer attacks: examples are made on a surrogate and judged on a target model, which the attack never queries."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ...errors import InvalidInput
from ..attack import Implementation
from ..criterion import is_fooled
from ..models.classifier import Classifier
from ..result import OF_THE_LIBRARY, OF_THE_MODEL, UNSTEADY, AttackResult, radius_with_tolerance
from ..threat_model import ThreatModel
from .attack_state import last_on_grid
from .determinism import Answered, draw_hits, is_deterministic, stays_steady
from .judge import KINDS, judge_outcomes
from .library_call import Images
from .run import run_attack
from .sampling import clean_logits, judge_outputs, sampling_context


def run_transfer(  # noqa: PLR0913 - as run_attack
    implementation: Implementation | str,
    classifier: Classifier,
    surrogate: Classifier,
    inputs: Tensor,
    labels: Tensor,
    threat_model: ThreatModel,
    *,
    logits: Tensor | None = None,
    seed: int = 0,
    judge_samples: int | None = None,
    **more: Any,
) -> AttackResult:
    """Attack a surrogate, and judge the examples on the target model.

    The images that the target model classifies correctly are attacked. The attack has full access to the surrogate and
    none to the target model. Restarts, query budgets and the search for a smallest change use the surrogate. Images
    that the surrogate misclassifies are also attacked.

    Args:
        implementation: an implementation or its name.
        classifier: the target model, on which the examples are judged.
        surrogate: the source model, on which the examples are made.
        inputs: clean images in [0, 1], shape (N, C, H, W).
        labels: true classes, shape (N,).
        threat_model: norm, epsilon, targeted.
        logits: logits of the target model for the clean images, shape (N, K), if known.
        seed: random seed.
        judge_samples: number of samples on which each example is judged, if the classifier is random, as for
            `run_attack`.
        **more: options as for `run_attack`; `max_queries` counts queries of the surrogate.

    Returns:
        The result on the target model. `knowledge` is "transfer", `forwards` and `backwards` are zero, and the queries
        of the surrogate are given separately. Library errors on the surrogate remain invalid results.

    Raises:
        DavylampError: as for `run_attack`, or `InvalidInput` if the surrogate has a different number of classes.
    """
    inputs = inputs.detach().float()
    with classifier.frozen(), sampling_context(classifier, draws=judge_samples):
        logits = clean_logits(classifier, inputs, labels, logits)
        check_surrogate(classifier, surrogate, inputs)
        attacked = logits.argmax(1) == labels.to(logits.device)
        shared: dict[str, Any] = {"seed": seed, "attacked": attacked}
        made = run_attack(implementation, surrogate, inputs, labels, threat_model, **shared, **more)
        return _judge(made, classifier, surrogate, inputs, logits)


def check_surrogate(classifier: Classifier, surrogate: Classifier, inputs: Tensor) -> None:
    """Raise InvalidInput unless both models have the same number of classes."""
    classes, others = (model.predict_logits(inputs[:1]).shape[1] for model in (classifier, surrogate))
    if classes != others and not classifier.answers.has_other_class:
        raise InvalidInput(
            f"expected a surrogate with the {classes} classes of {classifier.name}, got {surrogate.name} with {others}"
        )


def _judge(
    made: AttackResult, classifier: Classifier, surrogate: Classifier, inputs: Tensor, logits: Tensor
) -> AttackResult:
    examples = Images(made.adv_inputs, made.labels, made.targets)
    adv_logits, share = judge_outputs(classifier, made.adv_inputs, made.labels, made.targets)
    inside = made.distance <= radius_with_tolerance(made.threat_model)
    hit = is_fooled(adv_logits, made.labels, made.targets) & inside
    steady = classifier.random or is_deterministic(classifier, inputs, logits, made.seed)
    if steady and not classifier.random:
        both = Answered(inputs, logits), Answered(made.adv_inputs, adv_logits)
        steady = stays_steady(classifier, *both, made.attacked, len(inputs), made.seed)
    unsteady = None if steady else made.seed
    flags = {"nan-logits": ~adv_logits.isfinite().all(1)}
    if unsteady is not None:
        wrong = draw_hits(classifier, inputs, made.labels, None, unsteady).ever
        drawn = draw_hits(classifier, *examples, unsteady)
        flags["unstable"] = wrong | (drawn.always != hit) | (drawn.ever != hit)
    stays = torch.ones_like(hit)
    flags["unchanged"] = judge_outcomes(inputs, made.adv_inputs, hit, made.threat_model, may_stay=stays)["unchanged"]
    violations = [*_kept(made, hit)]
    _add(violations, flags, made.attacked)
    success = hit & made.attacked & ~_any(violations, hit)
    rounded, broken = last_on_grid(classifier, examples, success, unsteady)
    _add(violations, {"nan-logits": broken}, made.attacked)
    return replace(
        made,
        logits=logits,
        adv_logits=adv_logits,
        success=success & ~broken,
        success_8bit=rounded & ~broken,
        violations=tuple(violations),
        notes=() if steady else (UNSTEADY,),
        forwards=torch.zeros_like(made.forwards),
        backwards=torch.zeros_like(made.backwards),
        knowledge="transfer",
        surrogate=surrogate.name,
        surrogate_forwards=made.forwards,
        surrogate_backwards=made.backwards,
        draws=classifier.draws if classifier.random else 0,
        draws_fooled=None if share is None else share.where(inside, 0.0),
    )


def _kept(made: AttackResult, hit: Tensor) -> list[tuple[str, ...]]:
    """Return for each image the invalid reasons on the surrogate that also apply to the target model.

    Reasons that concern the surrogate's outputs become the reason "surrogate". Varying outputs of the surrogate are no
    reason. If the surrogate misclassifies the clean image, this image is a valid example. If an example fools the
    target model, the surrogate's outputs do not matter.

    Args:
        made: result of the attack on the surrogate.
        hit: whether each example fools the target model, shape (N,), bool.
    """
    wrong = is_fooled(made.logits, made.labels, made.targets).tolist()
    kept = []
    for kinds, is_wrong, is_hit in zip(made.violations, wrong, hit.tolist(), strict=True):
        dropped = {"unstable"} | ({"unchanged"} if is_wrong else set())
        dropped |= {*KINDS} - OF_THE_LIBRARY | {"barely-moved", "nan-query"} if is_hit else set()
        left = (kind for kind in kinds if kind not in dropped)
        kept.append(tuple(dict.fromkeys("surrogate" if kind in OF_THE_MODEL else kind for kind in left)))
    return kept


def _add(violations: list[tuple[str, ...]], flags: dict[str, Tensor], attacked: Tensor) -> None:
    for kind, images in flags.items():
        for place in (images & attacked).nonzero()[:, 0].tolist():
            if not violations[place]:
                violations[place] = (kind,)


def _any(violations: list[tuple[str, ...]], like: Tensor) -> Tensor:
    return torch.tensor([bool(kinds) for kinds in violations], device=like.device)
