"""Multi-label models (one sigmoid for each label) as classifiers, by a stated criterion of what counts as fooled."""

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor, nn

from ...errors import InvalidInput, ModelFailed, Unavailable
from ..coercion import read_int
from ..paths import expand_path
from ..user_code_guard import one_line
from .classifier import Classifier
from .extract_logits import extract_logits

PART = "multi-label:"
LABEL_KEYS = ("labels", "y")  # names of the array of labels in an npz file
Scores = Literal["logits", "probabilities"]
_MANY = 40  # scores; so many logits are hardly all in [0, 1]


class LabelCriterion(NamedTuple):
    """When an image of a multi-label model counts as fooled: if a label flips, or if any label flips.

    Args:
        label: index of the only label that counts. None if any label counts.
        sets: the combinations of labels that are classes, if any label counts.
        scores: "logits", or "probabilities" if the model ends with a sigmoid.
    """

    label: int | None
    sets: tuple[tuple[bool, ...], ...] = ()
    scores: Scores = "logits"

    def classes_of(self, targets: Any) -> Tensor:
        """Return the class of each image, int64, shape (N,), for its labels, 0 or 1, shape (N, L).

        Raises:
            InvalidInput: if the labels are invalid, or a combination of them is no class.
        """
        present = _read_targets(targets)
        if self.label is not None:
            if self.label >= present.shape[1]:
                raise InvalidInput(
                    f"expected label as a whole number from 0 to {present.shape[1] - 1}, got {self.label}"
                )
            return present[:, self.label].long()
        places = {each: place for place, each in enumerate(self.sets)}
        found = [places.get(tuple(each)) for each in present.tolist()]
        if None in found:
            row, count = found.index(None), present.shape[1]
            wanted = (
                f"one of the {len(self.sets)} combinations of {len(self.sets[0])} labels in the criterion for "
                "every image"
            )
            raise InvalidInput(
                f"expected {wanted}, got the {count} labels {present[row].int().tolist()} for image {row}"
            )
        return torch.tensor(found)


def from_multi_label(
    model: nn.Module, targets: Any, *, label: int | None = None, outputs: Scores = "logits", **settings: Any
) -> tuple[Classifier, Tensor]:
    """Convert a multi-label model and its labels to a classifier and class indices.

    The argument `label` decides when an image counts as fooled.

    Without `label`, an image is fooled if any of its labels flips. Each combination of labels that occurs in `targets`
    is then a class, and all other combinations together are one more class. The logit of a combination is the smallest
    of its labels' logits. The logit of an absent label counts with the opposite sign. The class of all other
    combinations has the logit 0. So the class with the largest logit is the predicted combination. The margin of the
    true class is the smallest margin of a label. Clean accuracy is the rate of images for which the whole combination
    is right.

    With `label`, an image is fooled if this label flips. The model then has two classes: 0 for absent, 1 for present.

    A model's name declares the same: "MODEL+multi-label:any=FILE.npz" and "MODEL+multi-label:label=3".

    Args:
        model: returns a score for each label, shape (N, L), for images in [0, 1].
        targets: labels of the evaluation images, 0 or 1, shape (N, L).
        label: index of the only label that counts. None for any label.
        outputs: "logits", or "probabilities" if the model ends with a sigmoid.
        **settings: further arguments of `Classifier`, such as `mean`, `std` and `name`.

    Returns:
        The classifier, and the class of each image, int64, shape (N,). It replaces the labels of the image.

    Raises:
        InvalidInput: if the targets are not 0 or 1 of shape (N, L), there is no such label, or `outputs` is unknown.
    """
    if label is not None:
        label = read_int(label, "label as a whole number from 0", 0, 2**31 - 1)
    criterion = LabelCriterion(label, () if label is not None else _sets_of(targets), _read_scores(outputs))
    return _convert(model, criterion, settings), criterion.classes_of(targets)


def read_criterion(part: str) -> LabelCriterion:
    """Parse "multi-label:label=3" or "multi-label:any=FILE.npz", which ",scores=probabilities" may follow.

    Raises:
        InvalidInput: if the part has a different form, or the file has no labels, 0 or 1, of shape (N, L).
        Unavailable: if the file cannot be read.
    """
    given: dict[str, str] = {}
    for setting in part.removeprefix(PART).split(","):
        word, _, given[word] = setting.partition("=")
    scores = _read_scores(given.pop("scores", "logits"))
    if len(given) == 1 and given.get("any"):
        return LabelCriterion(None, _sets_of(_read_labels(expand_path(given["any"]))), scores)
    if len(given) == 1 and given.get("label", "").isdecimal():
        return LabelCriterion(int(given["label"]), (), scores)
    raise InvalidInput(f"expected {PART}label=J, or {PART}any=FILE.npz with an array of labels (N, L), got {part!r}")


def criterion_in(name: str) -> LabelCriterion | None:
    """Return the criterion that a model's name declares. None without one."""
    return next((read_criterion(part) for part in name.split("+") if part.startswith(PART)), None)


def apply_criterion(classifier: Classifier, criterion: LabelCriterion, name: str) -> Classifier:
    """Convert a loaded model that returns a score for each label, by a criterion; see `from_multi_label`."""
    sizes = {word: getattr(classifier, word) for word in ("resize", "crop", "interpolation", "random")}
    for word in ("mean", "std"):
        numbers = getattr(classifier, word)
        sizes[word] = None if numbers is None else numbers.flatten().tolist()
    made = _convert(classifier.model, criterion, {**sizes, "gradients": classifier.gradients, "name": name})
    made.surroundings, made.stated_channels = classifier.surroundings, classifier.stated_channels
    made.loading_notes += classifier.loading_notes
    return made


def _convert(model: nn.Module, criterion: LabelCriterion, settings: Mapping[str, Any]) -> Classifier:
    if criterion.label is not None:
        outputs = "logit" if criterion.scores == "logits" else "probability"
        made = Classifier(_OneLabel(model, criterion.label, criterion.scores), outputs=outputs, **settings)
        fooled = f"label {criterion.label} flips"
    else:
        count = len(criterion.sets)
        wrapped = _LabelSets(model, torch.tensor(criterion.sets), criterion.scores)
        made = Classifier(wrapped, num_classes=count + 1, outputs="logits", **settings)
        labels = f"any of the {len(criterion.sets[0])} labels flips"
        fooled = f"{labels} (classes: {count} combinations of labels, and all others)"
    made.name = settings.get("name") or type(model).__name__
    made.loading_notes = (f"{made.name}: a multi-label model; an image is fooled if {fooled}",)
    return made


class _OneLabel(nn.Module):
    """A model that returns only the score of one label, shape (N,), of a multi-label model."""

    def __init__(self, model: nn.Module, place: int, kind: Scores):
        super().__init__()
        self.inner, self.place = model, place
        self.kind: Scores = kind

    def forward(self, inputs: Tensor) -> Tensor:
        scores = _scores(self.inner, inputs, self.kind)
        if self.place >= scores.shape[1]:
            raise ModelFailed(f"expected a score for label {self.place}, got scores for {scores.shape[1]} labels")
        return scores[:, self.place]


class _LabelSets(nn.Module):
    """Logits of combinations of labels, and 0 for all other combinations, (N, S + 1)."""

    signs: Tensor

    def __init__(self, model: nn.Module, sets: Tensor, kind: Scores):
        super().__init__()
        self.inner = model
        self.kind: Scores = kind
        self.register_buffer("signs", sets.float() * 2 - 1)

    def forward(self, inputs: Tensor) -> Tensor:
        scores = _scores(self.inner, inputs, self.kind, self.signs.shape[1])
        if self.kind == "probabilities":
            scores = scores.logit(eps=torch.finfo(scores.dtype).eps)
        margins = (scores[:, None] * self.signs.to(scores)).amin(2)
        return torch.cat([margins, torch.zeros_like(margins[:, :1])], 1)


def _scores(model: nn.Module, inputs: Tensor, kind: Scores, count: int | None = None) -> Tensor:
    """Return the scores of all labels, (N, L). Raises ModelFailed if their form or range shows a wrong declaration."""
    scores = extract_logits(model(inputs), "the multi-label model", len(inputs), count)[0]
    if scores.ndim != 2 or scores.shape[1] != (count or scores.shape[1]) or not scores.is_floating_point():
        labels = f"each of {count} labels" if count else "each label"
        raise ModelFailed(
            f"expected the model to return a score for {labels}, got {scores.dtype} of shape {tuple(scores.shape)}"
        )
    if kind == "probabilities" and bool(((scores < 0) | (scores > 1)).any()):
        raise ModelFailed(
            "expected probabilities in [0, 1] as declared, got values outside [0, 1]; declare logits instead of "
            "probabilities"
        )
    if kind == "logits" and scores.numel() >= _MANY and bool(((scores >= 0) & (scores <= 1)).all()):
        raise ModelFailed(
            f"expected logits, got {scores.numel()} scores in [0, 1], as from a sigmoid; declare probabilities instead "
            "of logits"
        )
    return scores


def _sets_of(targets: Any) -> tuple[tuple[bool, ...], ...]:
    """Return the different combinations of labels in targets, in a fixed order."""
    return tuple(map(tuple, _read_targets(targets).unique(dim=0).tolist()))


def _read_scores(outputs: Any) -> Scores:
    for known in get_args(Scores):
        if outputs == known:
            return known
    raise InvalidInput(f"expected scores as logits or probabilities, one for each label, got {outputs!r}")


def _read_labels(path: Path) -> np.ndarray:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            found = [arrays[key] for key in LABEL_KEYS if key in arrays]
    except (OSError, ValueError, TypeError, zipfile.BadZipFile, zlib.error, EOFError, MemoryError) as error:
        raise Unavailable(f"could not read labels from the npz file {path} ({one_line(error)})") from error
    if not found:
        raise InvalidInput(f"expected an array named {' or '.join(LABEL_KEYS)} in {path}, got none")
    return found[0]


def _read_targets(targets: Any) -> Tensor:
    """Convert labels to bool, shape (N, L)."""
    present = targets.detach().cpu() if isinstance(targets, Tensor) else torch.as_tensor(np.asarray(targets))
    if present.ndim != 2 or 0 in present.shape or not bool(((present == 0) | (present == 1)).all()):
        got = f"{present.dtype} of shape {tuple(present.shape)}"
        raise InvalidInput(f"expected the labels of each image as 0 or 1, shape (N, L), got {got}")
    return present.bool()
