"""Checks the claims of a verdict file on a model. This needs one forward pass for each image, and no attack library."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...adapters import Classifier
from ...adapters.criterion import is_fooled
from ...adapters.data.datasets import Data
from ...adapters.display_text import counted, format_radius, format_threat_model
from ...adapters.models.images import check_images, check_labels
from ...adapters.result import distance_norm
from ...adapters.running.judge import perturbation_norm, quantise
from ...adapters.running.readings import identify_asked
from ...adapters.running.sampling import judge_outputs, sampling_context
from ...conventions import largest_distance
from ...errors import InvalidInput
from ..sources import DataSource, hash_pixels
from .verdict_file import Claim, Verdict

_FOREIGN = "the original or its label is not in the data"
_OUTSIDE = "the example is outside the threat model"
_WRONG = "the model misclassifies the original"
_NOT_FOOLED = "the example does not fool the model"


class JudgedClaim(NamedTuple):
    """Result of checking one claim of a verdict file.

    Args:
        claim: the claim.
        confirmed: whether each claimed example is confirmed on the model, shape (k,), bool.
        reasons: number of examples that are not confirmed, by the first reason that applies to the example.
    """

    claim: Claim
    confirmed: Tensor
    reasons: dict[str, int]

    @property
    def holds(self) -> bool:
        """Whether every claimed example is confirmed."""
        return bool(self.confirmed.all())


class JudgedVerdict(NamedTuple):
    """Result of checking all claims of a verdict file.

    Args:
        claims: result of each claim.
        same_model: whether the digest of the model equals the digest in the file.
        distinct: number of originals without duplicates.
        checked: whether the originals and their labels were compared with the evaluated data.
    """

    claims: tuple[JudgedClaim, ...]
    same_model: bool
    distinct: int
    checked: bool


def judge_verdict(
    verdict: Verdict, classifier: Classifier, *, name: str = "", data: Data | str | None = None
) -> JudgedVerdict:
    """Check every example of a verdict file on a model.

    An example is confirmed if three conditions hold: the model classifies the original image correctly, the example is
    within the threat model, and the example fools the model. Only the originals and their labels are trusted.

    Args:
        verdict: content of the verdict file.
        classifier: the model. It must not have been called since it was loaded, so that its digest is comparable.
        name: name by which the model was loaded. "" if the model was not loaded by name.
        data: the evaluated images, to check the originals and labels of the file. None trusts the file.

    Raises:
        InvalidInput: if the number of images in `data` differs from the number in the file, or if the images do not fit
            the model.
    """
    subject = verdict.manifest.subject
    originals = verdict.originals.inputs.to(classifier.device)
    labels = verdict.originals.labels.to(classifier.device)
    check_images(originals)
    identity = identify_asked(classifier, name, originals)
    known = torch.ones_like(labels, dtype=torch.bool)
    if data is not None:
        known = _are_in(verdict, DataSource.of_subject(subject, data).load(classifier)).to(labels.device)
    with classifier.frozen():
        classifier.answers.expect_labels(labels)
        classes = classifier.predict_logits(originals[:1]).shape[1]
        for each in (labels, *(claimed.targets for claimed in verdict.examples if claimed.targets is not None)):
            check_labels(each, len(each), classes)
        logits = judge_outputs(classifier, originals, labels, None).logits
        right = (logits.argmax(1) == labels) & logits.isfinite().all(1)
        judged = []
        for claim, (rows, examples, targets) in zip(verdict.manifest.claims, verdict.examples, strict=True):
            failures = {_FOREIGN: ~known[rows], _WRONG: ~right[rows]}
            failures |= _judge_claim(claim, classifier, originals[rows], labels[rows], examples, targets)
            reasons, left = {}, torch.ones(len(rows), dtype=torch.bool)
            for reason, failed in failures.items():  # the first reason of each example
                if count := int((left & failed.cpu()).sum()):
                    reasons[reason] = count
                left &= ~failed.cpu()
            judged.append(JudgedClaim(claim, left, reasons))
    distinct = len({hash_pixels(image) for image in verdict.originals.inputs})
    return JudgedVerdict(tuple(judged), identity.digest == subject.model_digest, distinct, data is not None)


def _judge_claim(
    claim: Claim, classifier: Classifier, originals: Tensor, labels: Tensor, examples: Tensor, targets: Tensor | None
) -> dict[str, Tensor]:
    """Return two masks of a claim's examples, (k,) bool, by reason: outside the threat model, or not fooling."""
    examples = examples.to(originals.device)
    targets = None if targets is None else targets.to(labels.device)
    start = quantise(originals) if claim.eight_bit else originals
    distances = perturbation_norm(examples.double() - start.double(), claim.threat_model.norm)
    flat = examples.flatten(1)
    inside = ((flat >= 0) & (flat <= 1)).all(1) & (distances <= largest_distance(claim.radius, claim.threat_model.norm))
    if claim.eight_bit:
        inside &= (flat == quantise(flat)).all(1)
    with sampling_context(classifier, draws=max(claim.judge_samples, classifier.draws)):  # few could be lucky
        logits = judge_outputs(classifier, examples.nan_to_num(0, 0, 0), labels, targets).logits
    return {_OUTSIDE: ~inside, _NOT_FOOLED: ~is_fooled(logits, labels, targets)}


def _are_in(verdict: Verdict, images: Data) -> Tensor:
    """Return whether each original and its label equal the image and label at its position in the data, (m,) bool."""
    wanted, index = verdict.manifest.subject.images, verdict.index
    if len(images.labels) != wanted:
        raise InvalidInput(f"expected data with {wanted} images, as in the verdict, got {len(images.labels)}")
    if images.inputs.shape[1:] != verdict.originals.inputs.shape[1:]:
        return torch.zeros_like(index, dtype=torch.bool)
    same = (images.inputs[index].cpu() == verdict.originals.inputs).flatten(1).all(1)
    return same & (images.labels[index].cpu() == verdict.originals.labels)


def describe_claim(claim: Claim, fooled: int, images: int) -> str:
    """Describe the confirmed part of a claim, such as "at least 3 of 16 images are fooled within linf 8/255"."""
    rules = claim.threat_model
    norm = distance_norm(rules.norm)
    how = ", targeted" * rules.targeted + ", on 8-bit images" * claim.eight_bit
    total = counted(images, "image is", "images are")
    return f"at least {fooled} of {total} fooled within {norm} {format_radius(norm, claim.radius)}{how}"


def claim_row(claim: Claim) -> dict[str, Any]:
    """Return a claim as a row of a table."""
    rules = claim.threat_model
    row = {"norm": rules.norm, "epsilon": rules.epsilon, "targeted": rules.targeted, "eight_bit": claim.eight_bit}
    return {
        **row,
        "attacks": ", ".join(claim.attacks),
        "largest_distance": claim.largest_distance,
        "claimed": claim.fooled,
    }


def notes_on_verdict(verdict: Verdict, judged: JudgedVerdict, key: str) -> list[str]:
    """Return notes on claims that are not confirmed, and on parts of a verdict file that were not checked."""
    subject, notes = verdict.manifest.subject, []
    for each in judged.claims:
        if not each.holds:
            why = ", ".join(f"{reason} ({count})" for reason, count in each.reasons.items())
            notes.append(
                f"{format_threat_model(each.claim.threat_model)}: {int(each.confirmed.sum())} of the "
                f"{each.claim.fooled} claimed examples are confirmed: {why}"
            )
    if not judged.same_model:
        notes.append(
            f"the model's digest differs from the digest in the file ({subject.model}, {subject.model_digest}): "
            "different weights, code, preprocessing or loading; the result holds for this model"
        )
    if not judged.checked:
        notes.append(
            f"the originals, their labels and the number of images ({subject.images}) were taken from the file and "
            "not checked; pass `data` to check them"
        )
    if judged.distinct < len(verdict.index):
        notes.append(f"only {judged.distinct} of the {len(verdict.index)} originals have different pixels")
    if verdict.signed_by and not key:
        notes.append(f"signed by {verdict.signed_by}, a key that was not checked; pass the author's key as `key`")
    return notes
