"""Judges the examples of a verdict file on a model, with one forward pass for each image and no attack library."""

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
    """Result of judging a claim.

    Args:
        claim: the claim.
        confirmed: whether the model confirms each claimed example, (k,) bool.
        reasons: number of examples that are not confirmed, by reason.
    """

    claim: Claim
    confirmed: Tensor
    reasons: dict[str, int]

    @property
    def holds(self) -> bool:
        """Whether the model confirms every claimed example."""
        return bool(self.confirmed.all())


class JudgedVerdict(NamedTuple):
    """Result of judging all claims of a verdict.

    Args:
        claims: the judged claims.
        same_model: whether the model's digest is the one in the file.
        distinct: number of originals with different pixels.
        checked: whether the originals and labels were compared with the data.
    """

    claims: tuple[JudgedClaim, ...]
    same_model: bool
    distinct: int
    checked: bool


def judge_verdict(
    verdict: Verdict, classifier: Classifier, *, name: str = "", data: Data | str | None = None
) -> JudgedVerdict:
    """Judge every example of a verdict. Nothing in the file is trusted except the originals and their labels.

    An example is confirmed if the model classifies the original as its label, the example lies within the threat model,
    and it fools the model.

    Args:
        verdict: the verdict.
        classifier: the model, just loaded.
        name: name by which the model was loaded; "" for a module.
        data: the images from which the originals were taken, to check the originals as well. None to trust them.

    Raises:
        InvalidInput: if the number of images in the data differs from the claim, or the model cannot read the images.
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
    """Return the examples, (k,) bool, that are outside the threat model, and those that do not fool the model."""
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
    """Whether each original is the image of the data at its position, with its label, (m,) bool."""
    wanted, index = verdict.manifest.subject.images, verdict.index
    if len(images.labels) != wanted:
        raise InvalidInput(f"expected data with {wanted} images, as in the verdict, got {len(images.labels)}")
    if images.inputs.shape[1:] != verdict.originals.inputs.shape[1:]:
        return torch.zeros_like(index, dtype=torch.bool)
    same = (images.inputs[index].cpu() == verdict.originals.inputs).flatten(1).all(1)
    return same & (images.labels[index].cpu() == verdict.originals.labels)


def describe_claim(claim: Claim, fooled: int, images: int) -> str:
    """Return the lower bound in words: "at least 3 of 16 images are fooled within linf 8/255"."""
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
    """Return notes on claims that are not confirmed, and on the facts that were not checked."""
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
