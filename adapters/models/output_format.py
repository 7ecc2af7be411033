"""Output format of a model (logits, probabilities or labels), and its conversion to logits.

The format is declared or detected. It must be declared for a model that returns a single number for two classes,
which may be a logit or a probability.
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
_OF_ONE: Mapping[str, Outputs] = {"logit": "logits", "probability": "probabilities"}  # after conversion
_SURE = 4  # rows that cannot all sum to 1 by chance
_ROUNDING = 1e-3  # tolerance of a row's sum in half precision
_FLOAT = 1e-6  # tolerance of a decimal number in single precision, after a logarithm
_LARGEST = 0.1  # largest distance from 1 that rounding may explain: with more, logits could look like probabilities
_LEAST = torch.finfo(torch.float32).tiny  # smaller probabilities are raised to this one, whose logarithm is -87.3


class OutputFormat:
    """Output format of one model. The user or the model declares the format, or it is detected from the first output.

    Args:
        model: the model. It may have attributes `outputs` and `gradients`, and may contain classifiers.
        stated: the format that the user declares. If None, the model's attribute `outputs` decides, or else the first
            output.
        gradients: whether the user declares the model as differentiable. A model that returns labels never is.
        classes: number of classes. If None, the model's attribute `num_classes` or its scores decide. A model that
            returns labels then has the classes of the data, and one more class for all other labels.

    Raises:
        InvalidInput: if `stated` is not in `OUTPUTS`.
    """

    def __init__(self, model: nn.Module, stated: Outputs | None, *, gradients: bool, classes: int | None = None):
        if stated is not None and stated not in OUTPUTS:
            raise InvalidInput(f"expected outputs as {', '.join(OUTPUTS)} or None, got {stated!r}")
        said = getattr(model, "outputs", None)
        self._said_by_itself = said = said if isinstance(said, str) else None
        self.stated: Outputs | None = stated
        inside = [vars(module).get("answers") for module in model.modules()]
        self._members = [each for each in inside if isinstance(each, OutputFormat)]
        # `kind` is the format that the module returns, `outputs` that of the model: a defence may return logits of
        # probabilities.
        self.kind: Outputs | None = stated or next((each for each in OUTPUTS if each == said), None)
        self.outputs: Outputs | None = self.kind and _OF_ONE.get(self.kind, self.kind)
        self._differentiable = gradients and getattr(model, "gradients", None) is not False
        self.handed_on: DefenceCheck | None = None  # check of a defence from a file; not part of the identity
        self.passes_unchecked = 0  # attack queries since its outputs were last checked (`steadiness.stays_steady`)
        self.looked, self.no_gradients = False, ""  # whether an output was differentiated, and why it could not be
        says = 2 if self.of_one else getattr(model, "num_classes", None)
        self.classes = classes or (says if type(says) is int and says > 1 else None)
        self._least = 0  # number of classes in the data

    @property
    def gradients(self) -> bool:
        """Whether the model can be differentiated, as far as is known."""
        if not self._differentiable or self.outputs == "labels":
            return False
        return not self._members or all(member.gradients for member in self._members)

    def note_gradients(self, *, there: bool, why: str = "") -> None:
        """Record whether an output could be differentiated.

        Args:
            there: whether the gradient exists.
            why: the model's error, if there is no gradient.
        """
        self._differentiable, self.looked, self.no_gradients = there, True, why

    @property
    def of_one(self) -> bool:
        """Whether the model is declared to return a single number for two classes."""
        return self.kind in _OF_ONE

    @property
    def declared(self) -> str:
        """The declared output format, which is part of the model identity.

        "" without a declaration, and if logits are declared.
        """
        return "" if self.stated in (None, "logits") else self.stated

    def detect(self, output: Tensor, again: Callable[[], Tensor]) -> None:
        """Detect the output format from the first output.

        Args:
            output: output of the model.
            again: function that queries the model on further images. It is called if the first images are too few to
                decide.
        """
        inner = {member.outputs for member in self._members}
        if "labels" in inner or (_is_whole(output) and (output.ndim == 1 or output.shape[1:] == (1,))):
            self.kind = self.outputs = "labels"
        else:  # also for classifiers inside, whose logits it may return or turn into probabilities
            self.kind = _seen(output, again)
            self.outputs = "probabilities" if "probabilities" in inner else self.kind

    def read(self, output: Tensor, count: int, classes: int | None, name: str) -> Tensor:
        """Convert the model's output to logits of shape (count, K).

        Probabilities are converted to their logarithm. Labels are converted to 1 for the label and 0 for other classes.

        Raises:
            ModelFailed: if the output does not have the expected format.
            InvalidInput: if the number of classes is unknown.
        """
        if self.kind == "labels":
            return self._of_labels(output, count, classes, name)
        if self.of_one:
            return self._of_one_number(output, count, classes, name)
        check_logits(output, count, classes, name)
        return output.float().clamp_min(_LEAST).log() if self.kind == "probabilities" else output

    def description(self, name: str, taken: str = "") -> str:
        """Describe an output format other than logits, for a note to the user.

        Args:
            name: name of the model.
            taken: note on how the logits were found in the output. It comes first.

        Returns:
            The note. "" if the output is a plain tensor of logits.
        """
        notes = {
            "labels": "returns labels only (no scores or gradients); only decision-based attacks can be used",
            "probabilities": "returns probabilities. Attacks see their logarithm, whose gradient vanishes where the "
            "softmax is saturated; remove the softmax if you can",
        }
        said = f"{name} {notes[self.outputs]}" if self.outputs in notes else ""
        if self.kind == "logit":
            said = f"{name} returns one logit z, which is read as -z/2 for class 0 and z/2 for class 1"
        return "; ".join(filter(None, (taken, said)))

    @property
    def has_other_class(self) -> bool:
        """Whether the last class stands for all labels outside the known classes.

        Only models that return labels have it.
        """
        members = any(member.has_other_class for member in self._members)
        return self.outputs == "labels" and (members if self._members else self.classes is None)

    def expect_labels(self, labels: Tensor) -> None:
        """Record the labels of the data, shape (N,). A model that returns labels has at least these classes."""
        if labels.numel():
            self.expect_classes(int(labels.max()) + 1)

    def expect_classes(self, least: int) -> None:
        """Record a minimum number of classes.

        It is used for models that return labels and do not declare the number.
        """
        self._least = max(self._least, least)
        for member in self._members:
            member.expect_classes(least)

    def check(self, logits: Tensor) -> None:
        """Raise InvalidInput if the logits of a data set contradict the output format."""
        of_probabilities = self.kind in ("probabilities", "probability")
        sums = logits.exp().sum(1) if of_probabilities else logits.sum(1)
        tolerance = max(_ROUNDING, _rounding_of(logits.exp())) if of_probabilities else _ROUNDING
        agrees = torch.allclose(sums, torch.ones_like(sums), atol=tolerance)
        if of_probabilities and not agrees:
            how = "as declared" if self.stated or self._said_by_itself else "as in its first outputs"
            worst = float(sums[(sums - 1).abs().argmax()])
            raise InvalidInput(
                f"expected probabilities {how} (rows >= 0 that sum to 1), got a row that sums to {worst:.4g}; "
                f"declare `outputs='{'logit' if self.of_one else 'logits'}'` if the outputs are not "
                "probabilities"
            )
        if "logits" in (self.stated, self._said_by_itself) and agrees and bool((logits >= 0).all()):
            raise InvalidInput(
                "expected logits as declared, got probabilities (each row sums to 1); declare `outputs='probabilities'`"
            )

    def _of_one_number(self, output: Tensor, count: int, classes: int | None, name: str) -> Tensor:
        """Convert one logit or probability of class 1 to two logits with the same probabilities, shape (count, 2)."""
        if output.shape not in ((count,), (count, 1)) or classes not in (None, 2):
            wanted = f"one {self.kind} for 2 classes as declared, of shape ({count},) or ({count}, 1)"
            got = f"{tuple(output.shape)}{'' if classes in (None, 2) else f' for {classes} classes'}"
            raise ModelFailed(f"{name}: expected {wanted}, got {got}")
        column = output.reshape(count, 1)
        check_logits(column, count, 1, name)
        if self.kind == "logit":  # both depend on it, for attacks that use only one of them
            return torch.cat([-column / 2, column / 2], 1)
        return torch.cat([1 - column, column], 1).float().clamp_min(_LEAST).log()

    def _of_labels(self, output: Tensor, count: int, classes: int | None, name: str) -> Tensor:
        scores = output.ndim == 2 and output.shape[1] > 1  # declared as labels, so the largest score wins
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
                f"{name} returns labels, so its number of classes is needed. Pass Classifier(..., num_classes=...) "
                "or set the attribute num_classes on the module."
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
    tolerance = max(_ROUNDING, _rounding_of(output.detach()))
    return bool((output >= 0).all()) and torch.allclose(sums, torch.ones_like(sums), atol=tolerance)


def _rounding_of(output: Tensor) -> float:
    """Return how much the sum of a row may differ from 1 if its probabilities are rounded to 2, 3 or 4 decimals.

    Returns:
        The largest difference. 0 if the output is not a tensor of such probabilities.
    """
    values = output.double()
    for digits in (2, 3, 4):
        unit = 10.0**-digits
        if bool(((values / unit - (values / unit).round()).abs() * unit < _FLOAT).all()) and bool((values <= 1).all()):
            most = values.shape[1] * unit / 2
            return most if most <= _LARGEST else 0.0
    return 0.0


def _is_whole(output: Tensor) -> bool:
    return not (output.is_floating_point() or output.is_complex() or output.dtype == torch.bool)
