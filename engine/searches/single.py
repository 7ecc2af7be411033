"""Runs an attack without a search, on the model or on a surrogate, and converts results to 8-bit images."""

from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from ...adapters import AttackResult, Classifier, Implementation, ThreatModel, canonical_attack, run_attack
from ...adapters.criterion import is_fooled
from ...adapters.result import radius_with_tolerance
from ...adapters.running.judge import perturbation_distances, perturbation_norm, quantise
from ...adapters.running.precision import precision_of
from ...adapters.running.sampling import judge_outputs, sampling_context
from ...adapters.running.surrogate import run_transfer
from ...adapters.running.trace import Trace, curves_of
from ...adapters.torch_state import is_autocast

Result = TypeVar("Result", bound=AttackResult)


def run_single(  # noqa: PLR0913 - the nouns of run_attack by position, the choices by keyword
    row: Implementation,
    classifier: Classifier,
    inputs: Tensor,
    labels: Tensor,
    threat_model: ThreatModel,
    *,
    surrogate: Classifier | None = None,
    with_curves: bool = False,
    eight_bit: bool = False,
    **options: Any,
) -> AttackResult:
    """Run an implementation on a model, or make its examples on a surrogate and judge them on the model.

    Args:
        row: the implementation.
        classifier: the model on which examples are judged.
        inputs: clean images in [0, 1], shape (N, C, H, W).
        labels: ground truth, int64, shape (N,).
        threat_model: norm, epsilon, targeted.
        surrogate: model on which the examples are made. None to make them on `classifier`. An attack that was already
            fitted on the surrogate makes its examples on `classifier` in any case.
        with_curves: whether to record the smallest adversarial distance of each image after each pass. This is possible
            only for minimum-norm attacks on the CPU and in float32; otherwise nothing is recorded.
        eight_bit: whether success and distance are measured on 8-bit images.
        **options: options of `run_attack` and canonical parameters.

    Raises:
        DavylampError: any error of the attack.
    """
    if surrogate is not None and not row.learned:
        result = run_transfer(row, classifier, surrogate, inputs, labels, threat_model, **options)
    elif (
        with_curves
        and canonical_attack(row).kind == "minimum-norm"
        and not (
            # Points that fool one sample, or in lower precision than the judge's, are not examples.
            eight_bit or classifier.random or inputs.is_cuda or _is_rounded(precision_of(row, options))
        )
    ):
        trace = Trace(inputs.detach().float(), labels.to(inputs.device), options.get("targets"), threat_model.norm)
        result = run_attack(row, classifier, inputs, labels, threat_model, trace=trace, **options)
        result = replace(result, curves=curves_of(trace, result))
    else:
        result = run_attack(row, classifier, inputs, labels, threat_model, **options)
    return round_to_8bit(result, classifier, inputs) if eight_bit else result


def _is_rounded(precision: str | None) -> bool:
    """Whether an attack's passes on a CPU have a lower precision than float32. None stands for the setting of torch."""
    return is_autocast() if precision is None else precision != "float32"


def _is_inside(inputs: Tensor, images: Tensor, threat_model: ThreatModel) -> Tensor:
    return perturbation_norm(images.double() - inputs.double(), threat_model.norm) <= radius_with_tolerance(
        threat_model
    )


def round_to_8bit(result: Result, classifier: Classifier, inputs: Tensor) -> Result:
    """Convert a result to 8-bit images (RoBIC, section 3): round the examples, and judge the rounded examples.

    Distances are between the rounded example and the rounded clean image. An example that rounding moves outside the
    radius is rounded towards the clean image instead. If it is still outside, it counts as not fooled. An example that
    does not fool the model before rounding is not a success after rounding. A result is invalid if the logits of the
    rounded example are not finite.

    Args:
        result: result of an attack.
        classifier: the attacked model.
        inputs: the clean images, shape (N, C, H, W).
    """
    clean, adv_inputs = quantise(inputs.float()), quantise(result.adv_inputs)
    outside = ~_is_inside(clean, adv_inputs, result.threat_model)
    if outside.any():
        inwards = (clean * 255 + ((result.adv_inputs - clean) * 255 * (1 + 1e-6)).trunc()).round() / 255
        adv_inputs = inwards.where(outside.view(-1, 1, 1, 1), adv_inputs)
    with sampling_context(classifier, draws=result.draws or None):
        adv_logits, share = judge_outputs(classifier, adv_inputs, result.labels, result.targets)
    success = result.success_8bit.where(~outside, result.success) & is_fooled(adv_logits, result.labels, result.targets)
    inside = _is_inside(clean, adv_inputs, result.threat_model)
    success &= inside
    distances, budget = perturbation_distances(clean, adv_inputs), result.budget
    if budget is not None:
        budget = budget.where(success | ~result.attacked, torch.inf)
    finite = torch.isfinite(adv_logits).all(1).tolist()
    violations = tuple(
        kinds if fine or not attacked or "nan-logits" in kinds else (*kinds, "nan-logits")
        for kinds, fine, attacked in zip(result.violations, finite, result.attacked.tolist(), strict=True)
    )
    changed = {"adv_inputs": adv_inputs, "adv_logits": adv_logits, "distances": distances, "budget": budget}
    changed |= {} if share is None else {"draws_fooled": share.where(inside, 0.0)}
    return replace(result, **changed, violations=violations, success=success, success_8bit=success)
