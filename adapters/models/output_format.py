"""What a model gives, logits, probabilities or labels: said, or seen at its first answer, and read as logits.

One number for two classes is no more than that: whether it is a logit or a probability has to be said.
"""

from collections.abc import Callable, Mapping
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from ...errors import InvalidInput, ModelFailed
from .defence_check import DefenceCheck
from .extract_logits import check_logits

Outputs = Literal["logits", "probabilities", "labels", "logit", "probability"]
OUTPUTS: tuple[Outputs, ...] = get_args(Outputs)
_OF_ONE: Mapping[str, Outputs] = {"logit": "logits", "probability": "probabilities"}  # what one number becomes
_SURE = 4  # rows that cannot all sum to 1 by chance
_ROUNDING = 1e-3  # of the sum of a row, in half precision
_LEAST = torch.finfo(torch.float32).tiny  # a probability below it is taken for it: its logarithm is -87.3


class OutputFormat:
    """How one model's answers are read: it says what it gives, or the first answer shows it.

    Args:
        model: what is asked; it may say `outputs` and `gradients` as attributes, and hold classifiers that know.
        stated: what it gives; None: as the model says, or as is seen.
        gradients: whether it can be differentiated, as far as is said; a model without scores cannot be.
        classes: how many it has; None: as the model says, as many as its scores, or of labels as the data has and one
            more, which stands for every other label.

    Raises:
        InvalidInput: if `stated` is none of `OUTPUTS`.
    """

    def __init__(self, model: nn.Module, stated: Outputs | None, *, gradients: bool, classes: int | None = None):
        if stated is not None and stated not in OUTPUTS:
            raise InvalidInput(f"expected outputs as {', '.join(OUTPUTS)} or None, got {stated!r}")
        said = getattr(model, "outputs", None)
        self._said_by_itself = said = said if isinstance(said, str) else None
        self.stated: Outputs | None = stated
        inside = [vars(module).get("answers") for module in model.modules()]
        self._members = [each for each in inside if isinstance(each, OutputFormat)]
        # What the module returns; and what is known of the model: a defence returns logits made of probabilities.
        self.kind: Outputs | None = stated or next((each for each in OUTPUTS if each == said), None)
        self.outputs: Outputs | None = self.kind and _OF_ONE.get(self.kind, self.kind)
        self._differentiable = gradients and getattr(model, "gradients", None) is not False
        self.handed_on: DefenceCheck | None = None  # of a defence from a file; here, as it is no part of the identity
        self.passes_unchecked = 0  # of attacks since it was last seen to answer as before (`steadiness.stays_steady`)
        self.looked, self.no_gradients = False, ""  # whether an answer was differentiated, and why it could not be
        says = 2 if self.of_one else getattr(model, "num_classes", None)
        self.classes = classes or (says if type(says) is int and says > 1 else None)
        self._least = 0  # classes that the data has

    @property
    def gradients(self) -> bool:
        """Whether it can be differentiated, as far as is known."""
        if not self._differentiable or self.outputs == "labels":
            return False
        return not self._members or all(member.gradients for member in self._members)

    def note_gradients(self, *, there: bool, why: str = "") -> None:
        """Note whether an answer could be differentiated, and why it could not be if the model failed at that."""
        self._differentiable, self.looked, self.no_gradients = there, True, why

    @property
    def of_one(self) -> bool:
        """Whether it is said to give one number for two classes."""
        return self.kind in _OF_ONE

    @property
    def declared(self) -> str:
        """What sets it apart from a model that nobody said anything of: what was said of it, "" for logits."""
        return "" if self.stated in (None, "logits") else self.stated

    def detect(self, output: Tensor, again: Callable[[], Tensor]) -> None:
        """Take the first answer for what the model gives.

        Args:
            output: what it returned.
            again: asks it about other images, where the first are too few to tell.
        """
        inner = {member.outputs for member in self._members}
        if "labels" in inner or (_is_whole(output) and (output.ndim == 1 or output.shape[1:] == (1,))):
            self.kind = self.outputs = "labels"
        else:  # also of classifiers inside, whose logits it may hand on or make probabilities of
            self.kind = _seen(output, again)
            self.outputs = "probabilities" if "probabilities" in inner else self.kind

    def read(self, output: Tensor, count: int, classes: int | None, name: str) -> Tensor:
        """Logits of shape (count, K) of what the model returned.

        Those of probabilities are their logarithm; of labels 1 for the label and 0 for the others.

        Raises:
            ModelFailed: if it is nothing of the kind.
            InvalidInput: if nobody knows how many classes there are.
        """
        if self.kind == "labels":
            return self._of_labels(output, count, classes, name)
        if self.of_one:
            return self._of_one_number(output, count, classes, name)
        check_logits(output, count, classes, name)
        return output.float().clamp_min(_LEAST).log() if self.kind == "probabilities" else output

    def description(self, name: str, taken: str = "") -> str:
        """What to say of a model that does not give logits, after what was `taken` of its output; else that alone."""
        notes = {
            "labels": "gives labels only: no scores, no gradients; for decision-based attacks",
            "probabilities": "gives probabilities; attacks get their logarithm, which has no gradient where the "
            "softmax is saturated: remove the softmax if you can",
        }
        said = f"{name} {notes[self.outputs]}" if self.outputs in notes else ""
        if self.kind == "logit":
            said = f"{name} gives one logit z: it is read as -z/2 for class 0 and z/2 for class 1"
        return "; ".join(filter(None, (taken, said)))

    @property
    def has_other_class(self) -> bool:
        """Whether the last class stands for labels that nobody knew of."""
        members = any(member.has_other_class for member in self._members)
        return self.outputs == "labels" and (members if self._members else self.classes is None)

    def expect_labels(self, labels: Tensor) -> None:
        """The data has these labels, shape (N,): a model of labels has at least their classes."""
        if labels.numel():
            self.expect_classes(int(labels.max()) + 1)

    def expect_classes(self, least: int) -> None:
        """A model of labels has at least so many classes, where nobody says how many."""
        self._least = max(self._least, least)
        for member in self._members:
            member.expect_classes(least)

    def check(self, logits: Tensor) -> None:
        """Raise InvalidInput if the logits of a data set show that what was said or seen of the model is wrong."""
        of_probabilities = self.kind in ("probabilities", "probability")
        sums = logits.exp().sum(1) if of_probabilities else logits.sum(1)
        agrees = torch.allclose(sums, torch.ones_like(sums), atol=_ROUNDING)
        if of_probabilities and not agrees:
            how = "as was said" if self.stated or self._said_by_itself else "as in its first answers"
            worst = float(sums[(sums - 1).abs().argmax()])
            raise InvalidInput(
                f"expected probabilities {how} (rows >= 0 that sum to 1), got a row that sums to {worst:.4g}; "
                f"say outputs {'logit' if self.of_one else 'logits'} if they are none"
            )
        if "logits" in (self.stated, self._said_by_itself) and agrees and bool((logits >= 0).all()):
            raise InvalidInput(
                "expected logits as was said, got probabilities (rows >= 0 that sum to 1); say outputs probabilities"
            )

    def _of_one_number(self, output: Tensor, count: int, classes: int | None, name: str) -> Tensor:
        """Two logits, (count, 2), of one logit or probability of class 1: their softmax is its sigmoid, or itself."""
        if output.shape not in ((count,), (count, 1)) or classes not in (None, 2):
            wanted = f"one {self.kind} for 2 classes as was said, of shape ({count},) or ({count}, 1)"
            got = f"{tuple(output.shape)}{'' if classes in (None, 2) else f' for {classes} classes'}"
            raise ModelFailed(f"{name}: expected {wanted}, got {got}")
        column = output.reshape(count, 1)
        check_logits(column, count, 1, name)
        if self.kind == "logit":  # both depend on it, for an attack that looks at one alone
            return torch.cat([-column / 2, column / 2], 1)
        return torch.cat([1 - column, column], 1).float().clamp_min(_LEAST).log()

    def _of_labels(self, output: Tensor, count: int, classes: int | None, name: str) -> Tensor:
        scores = output.ndim == 2 and output.shape[1] > 1  # that are said to be labels: whoever wins
        labels = output.argmax(1) if scores else output.flatten()
        if labels.numel() != count or not (_is_whole(labels) or bool((labels == labels.round()).all())):
            got = f"{output.dtype} of shape {tuple(output.shape)}"
            raise ModelFailed(f"{name}: expected labels of shape ({count},), got {got}")
        if scores and not any(member.has_other_class for member in self._members):
            self.classes = self.classes or output.shape[1]
        low, high = map(int, labels.long().aminmax()) if count else (0, -1)
        most = self._least + 1 if self.has_other_class and self._least else self.classes or classes
        if most is None:
            raise InvalidInput(
                f"{name} gives labels: expected its number of classes, got none; say Classifier(num_classes=...), "
                "or give the module the attribute num_classes"
            )
        if low < 0 or (high >= most and not self.has_other_class):
            got = low if low < 0 else high
            raise ModelFailed(f"{name}: expected labels from 0 to {most - 1}, got {got}")
        return nn.functional.one_hot(labels.long().clamp(max=most - 1), most).float()


def _seen(output: Tensor, again: Callable[[], Tensor]) -> Outputs:
    if not _look_like_probabilities(output):
        return "logits"
    return "probabilities" if len(output) >= _SURE or _look_like_probabilities(again()) else "logits"


def _look_like_probabilities(output: Tensor) -> bool:
    dense = output.is_floating_point() and output.layout == torch.strided
    if output.ndim != 2 or output.shape[1] < 2 or not len(output) or not dense:
        return False
    sums = output.detach().float().sum(1)
    return bool((output >= 0).all()) and torch.allclose(sums, torch.ones_like(sums), atol=_ROUNDING)


def _is_whole(output: Tensor) -> bool:
    return not (output.is_floating_point() or output.is_complex() or output.dtype == torch.bool)
