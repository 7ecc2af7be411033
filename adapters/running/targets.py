"""Target rules, which choose the classes of targeted attacks."""

from collections.abc import Iterable

import torch
from torch import Tensor

from ...errors import InvalidInput, Unsupported
from ..defaults import TARGETS
from ..models.classifier import Classifier
from ..threat_model import ThreatModel


def class_of(rule: str) -> int | None:
    """Return the class number of a target rule such as "3". None for other rules."""
    return int(rule) if rule.isascii() and rule.isdecimal() and len(rule) <= 9 else None


def check_target(rule: str) -> str:
    """Return a target rule unchanged if it is valid.

    Raises:
        InvalidInput: if the rule is neither a known rule nor a class number.
    """
    if rule not in TARGETS and class_of(rule) is None:
        raise InvalidInput(f"expected a target of {', '.join(TARGETS)} or a class number such as 3, got {rule!r}")
    return rule


def class_logits(classifier: Classifier, logits: Tensor) -> Tensor:
    """Return the logits of the possible target classes, without those of an extra class such as "detected"."""
    return logits[:, :-1] if classifier.detects or classifier.answers.has_other_class else logits


def target_rule_error(classifier: Classifier, rule: str) -> str:
    """Return the reason why a rule cannot choose targets from the model's outputs. "" if it can."""
    if classifier.outputs == "labels" and rule.endswith("-likely"):
        return f"the target {rule} needs scores, and {classifier.name} returns labels only; use random or a class"
    return ""


def why_no_class(classifier: Classifier, rule: str, image: Tensor) -> str:
    """Return the reason why a class number is no valid target for a model.

    Args:
        classifier: the model.
        rule: the target rule.
        image: one image, shape (1, C, H, W). It is queried only if the rule is a class number.

    Returns:
        The reason. "" if the model has the class, or if the rule is not a number.
    """
    aim = class_of(rule)
    if aim is None:
        return ""
    classes = class_logits(classifier, classifier.predict_logits(image)).shape[1]
    return f"expected a target class from 0 to {classes - 1}, got {aim}" if aim >= classes else ""


def check_targeted_required(classifier: Classifier, threat_model: ThreatModel) -> None:
    """Raise Unsupported for an untargeted attack on a model with a detector.

    An untargeted attack would succeed if its example is detected.
    """
    if classifier.detects and not threat_model.targeted:
        raise Unsupported(
            f"{classifier.name} includes a detector, so attacks on it must be targeted (otherwise a detected "
            "image would count as fooled); give `target='second-likely'`, or random"
        )


def targets_for(classifier: Classifier, logits: Tensor, labels: Tensor, rule: str, seed: int) -> Tensor:
    """Choose target classes from a classifier's outputs for the clean images, see `choose_targets`.

    Args:
        classifier: the model.
        logits: logits of the clean images, shape (N, K).
        labels: labels of the images, shape (N,).
        rule: the target rule.
        seed: random seed of random targets.

    Returns:
        The target classes, shape (N,).

    Raises:
        Unsupported: if the rule needs scores, but the classifier returns labels only.
        InvalidInput: if the rule is unknown.
    """
    if why := target_rule_error(classifier, rule):
        raise Unsupported(why)
    return choose_targets(class_logits(classifier, logits), labels, rule, seed)


def moved_target_note(rules: Iterable[str], labels: Tensor) -> list[str]:
    """Return a note for each target class that is also the label of some images.

    These images get the next class as target.

    Args:
        rules: target rules, such as "random" or "3".
        labels: labels of all images, shape (N,).
    """
    lines = []
    for rule in dict.fromkeys(rules):
        aim = class_of(rule)
        count = 0 if aim is None else int((labels == aim).sum())
        if count:
            lines.append(
                f"target {aim}: {count} of {len(labels)} images have this class as label; their target is the next "
                "class"
            )
    return lines


def choose_targets(logits: Tensor, labels: Tensor, rule: str, seed: int) -> Tensor:
    """Choose a target class for each image, which is never its label.

    Args:
        logits: logits of the clean images, shape (N, K).
        labels: labels of the images, shape (N,).
        rule: "second-likely", "least-likely", "random" or a class number. For an image of that class, the target is the
            next class.
        seed: random seed of random targets.

    Returns:
        The target classes, shape (N,).

    Raises:
        InvalidInput: if the rule is unknown.
    """
    classes = logits.shape[1]
    others = logits.scatter(1, labels[:, None], -torch.inf)
    if rule == "second-likely":
        return others.argmax(1)
    if rule == "least-likely":
        return logits.scatter(1, labels[:, None], torch.inf).argmin(1)
    if rule == "random":
        generator = torch.Generator().manual_seed(seed)
        shift = torch.randint(1, classes, labels.shape, generator=generator, device="cpu")
        return (labels + shift.to(labels.device)) % classes
    aim = class_of(rule)
    if aim is not None and aim < classes:
        return torch.where(labels == aim, (labels + 1) % classes, aim)
    raise InvalidInput(
        f"expected a target of second-likely, least-likely, random or a class from 0 to {classes - 1}, got {rule!r}"
    )
