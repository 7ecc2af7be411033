"""The one model wrapper: any `torch.nn.Module` that classifies images becomes what every library can attack."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from itertools import chain
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ...deprecation import warn_renamed
from ...errors import InvalidInput, ModelFailed, Unavailable, WrongType
from ..coercion import read_channels, read_int
from ..defaults import DRAWS, PASS_SIZE
from ..torch_state import full_float32
from ..user_code_guard import guard_user_code, one_line
from .extract_logits import OF_ONE_LOGIT, check_logits, explain_failure, extract_logits, failure_depends_on_images
from .images import check_images, check_labels
from .output_format import OutputFormat, Outputs
from .state_guard import ChangeByAttack, frozen, state_modes

Interpolation = Literal["bilinear", "bicubic"]


class Classifier(nn.Module):
    """A model that takes images in [0, 1] and returns float32 logits, in evaluation mode whenever it is asked.

    The input is cast to the model's dtype and device, so a library that hands over float64 arrays (ART's decision
    based attacks under NumPy 2) works on a float32 model, and a half-precision model works everywhere. `train()` has
    no effect: no library can switch dropout or batch statistics on. The module that is passed in is used, not copied,
    and making a classifier of it changes nothing in it: in evaluation mode, with no parameter that requires gradients,
    it is only while it is asked or attacked (`frozen`), and afterwards as it was. `handed_over_training` says whether
    it came in training mode. It runs behind a wall (`guard_user_code`) and gets a tensor that is its alone each time, so that
    one that works in place changes nothing else; where it fails or returns no logits, a `ModelFailed` names it and, if
    that can be known, says what it wants.

    Args:
        model: returns logits or probabilities of shape (N, num_classes), or integer labels of shape (N,), for images
            (N, C, H, W), as a tensor or in a tuple, a dict or an object with `.logits` (see `output_note`).
        num_classes: the number of classes; None takes it from the first output.
        mean: per channel; subtracted before the model. None: the model normalises by itself.
        std: per channel; divided by, after the mean. Given together with `mean`.
        name: what messages call the model; an evaluation calls it by the name that it is given under.
        device: where the model is moved to; None leaves it where it is, be it on several devices.
        resize: side that the shorter edge of an image file is resized to before the crop; None: no resizing.
        crop: side of the square centre crop of an image file; None: no crop.
        interpolation: how an image file is resized.
        random: it draws random numbers at every answer, and is meant to: it is judged by repeated draws
            (`running.draws`). One that does so without saying is called unstable.
        outputs: "logits", "probabilities" or "labels" (of scores: the largest); "logit" or "probability": of class 1
            of two, (N, 1) or (N,); None: as its attribute `outputs` says, or as is seen at the first answer.
        gradients: False: nothing can be differentiated through it; its attribute `gradients` can say so, too.

    Raises:
        InvalidInput: if only one of `mean` and `std` is given, they are no numbers or not as many, or a std is not
            positive.
        WrongType: if `model` is not a module.
        Unavailable: if torch cannot compute on the device.
    """

    mean: Tensor | None
    std: Tensor | None
    detects = False  # whether the last class is no class of the data but means "detected" (`detectors.joint`)
    stated_channels: int | None = None  # of its images, where a file says so
    class_names: tuple[str, ...] = ()  # in the model's order, where they are known; folders are looked up in them
    all_named = False  # whether somebody said so, and a folder of another name is a mistake
    loading_notes: tuple[str, ...] = ()  # what was decided while it was loaded
    steady: bool | None = None  # whether it predicts the same again, once that is known (`steadiness.is_deterministic`)
    # Of the class, and of an instance only where they differ: what is hashed of older models stays.
    random: bool = False
    stated_identity: tuple[str, tuple[str, ...]] | None = None  # digest and reasons, where its layers are not here
    changed_by: ChangeByAttack | None = None  # what an attack did to it that could not be put back
    model_version: str = ""  # that somebody said of it, as a part of what it is
    draws: int = DRAWS  # that a random model is judged by
    eot: int = 1  # draws whose mean an attack sees of a random model (`QueryCounter`)

    def __init__(  # noqa: PLR0913 - one argument per property of a model; all but the first by keyword
        self,
        model: nn.Module,
        *,
        num_classes: int | None = None,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        name: str = "",
        device: str | torch.device | None = None,
        resize: int | None = None,
        crop: int | None = None,
        interpolation: Interpolation = "bilinear",
        random: bool = False,
        outputs: Outputs | None = None,
        gradients: bool = True,
    ):
        super().__init__()
        if not isinstance(model, nn.Module):
            raise WrongType(f"expected a torch.nn.Module, got {type(model).__name__}")
        mean, std = _normalisation(mean, std)
        if num_classes is not None:
            num_classes = read_int(num_classes, "num_classes as a whole number from 1", 1, 2**31 - 1)
        state_modes(model)
        self.handed_over_training = model.training
        self.known_as: dict[str, str] = {}  # digest of the model with folded layers: of the model before
        self.answers = OutputFormat(model, outputs, gradients=gradients, classes=num_classes)
        self.model = model
        self.num_classes = self.stated_classes = num_classes  # the second stays as it was given
        self.name = name or type(model).__name__
        if random:
            self.random = True
        self.output_note = ""  # how the logits were chosen, where the model returns more than a tensor
        self.surroundings: AbstractContextManager[object] = nullcontext()  # what the model's file imports from
        self._hints: dict[tuple[int, ...], str] = {}  # by shape of the images that the model failed on
        self.resize, self.crop = resize, crop
        self.interpolation: Interpolation = interpolation
        self.training = self._is_frozen = False
        reference = next((p for p in model.parameters() if p.is_floating_point()), torch.zeros(()))
        place = next((tensor.device for tensor in chain(model.parameters(), model.buffers())), reference.device)
        if place.type == "meta":
            raise InvalidInput(f"expected a model with weights, got {self.name} on the device meta, which holds none")
        self.register_buffer("mean", _per_channel(mean, reference.dtype, place))
        self.register_buffer("std", _per_channel(std, reference.dtype, place))
        # torchattacks asks the first parameter for the device; the same tensor remembers the dtype to cast to.
        self.anchor = nn.Parameter(torch.zeros((), dtype=reference.dtype, device=place), requires_grad=False)
        if device is not None:
            self._move(device)

    def _move(self, device: str | torch.device) -> None:
        try:
            self.to(device)
        except (RuntimeError, AssertionError, ImportError, TypeError) as error:
            wanted = "expected a device that torch can use here"
            raise Unavailable(f"{wanted}, got {str(device)!r} ({one_line(error)})") from error

    @property
    def channels(self) -> int | None:
        """How many channels its images have: stated, as many as `mean`, or as the first convolution takes (1 or 3)."""
        if self.stated_channels is not None:
            return self.stated_channels
        if self.mean is not None:
            return self.mean.shape[1]
        first = next((layer for layer in self.model.modules() if isinstance(layer, nn.Conv2d)), None)
        return first.in_channels if first is not None and first.in_channels in (1, 3) else None

    @property
    def outputs(self) -> Outputs | None:
        """What the model gives; None as long as it was not asked and nobody said."""
        return self.answers.outputs

    @property
    def gradients(self) -> bool:
        """Whether it can be differentiated, as far as is known (`running.access` looks)."""
        return self.answers.gradients

    def declare_outputs(self, outputs: Outputs) -> None:
        """Say what the model gives, in place of what it said or showed; before it is asked."""
        before = self.answers
        self.answers = OutputFormat(self.model, outputs, gradients=self.gradients, classes=before.classes)
        self.answers.handed_on = before.handed_on

    def say(self, outputs: Outputs) -> None:
        """Deprecated name of `declare_outputs`."""
        warn_renamed("Classifier", "say", "declare_outputs")
        self.declare_outputs(outputs)

    @property
    def device(self) -> torch.device:
        """Where the model computes."""
        return self.anchor.device

    @property
    def precision_note(self) -> str:
        """What is rounded where the model computes in another precision than the attacks; "" where nothing is."""
        if self.anchor.dtype == torch.float32:
            return ""
        kind = str(self.anchor.dtype).removeprefix("torch.")
        return f"the model computes in {kind}; it is attacked in float32, and its logits are read as float32"

    def train(self, mode: bool = True) -> "Classifier":  # noqa: ARG002 - the signature is torch's
        """Put everything in evaluation mode, whatever is asked for: an evaluation never trains."""
        if any(part.training for part in self.modules()):  # to look takes a tenth of the time of setting it again
            super().train(False)
        return self

    @contextmanager
    def frozen(self) -> Iterator["Classifier"]:
        """In the block the model is in evaluation mode and no parameter of it requires gradients; then as before.

        Whatever asks the model does that by itself; a block around many questions saves doing it for each of them.
        """
        if self._is_frozen:
            yield self
            return
        with ExitStack() as stack:
            with guard_user_code(f"the model {self.name}"):  # which may have an eval() that fails
                stack.enter_context(frozen(self))
            self._is_frozen = True
            try:
                yield self
            finally:
                self._is_frozen = False

    def say_version(self, version: str) -> None:
        """Make a version a part of what it is, and of what a server's answers are kept under; before it is asked."""
        self.model_version = version
        for part in self.modules():
            if isinstance(getattr(part, "said_version", None), str):
                vars(part)["said_version"] = version

    def freeze(self) -> "Classifier":
        """Freeze the model for good: one that was loaded by name, which nobody else holds."""
        self.eval()
        self.requires_grad_(False)
        self._is_frozen = True
        return self

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits of shape (N, num_classes), float32, for images in [0, 1] of shape (N, C, H, W).

        Of probabilities their logarithm, of labels 1 for the label and 0 for the others.

        Raises:
            ModelFailed: if the model raises, exits or returns no logits.
            InvalidInput: if the images lack the channels that `mean` and `std` have, or nobody knows the classes.
        """
        if not self._is_frozen:
            with self.frozen():
                return self(inputs)
        try:
            return self._answer(inputs)
        except ModelFailed as failure:
            if failure.__cause__ is None:  # it answered, and says what is wrong
                raise
            raise ModelFailed(f"{failure}{self._explain(failure, inputs)}") from failure.__cause__

    def _answer(self, inputs: Tensor) -> Tensor:
        handed_on = self.answers.handed_on
        if handed_on is None:
            return self._ask_differentiably(inputs)
        logits = handed_on.check_first_output(self._ask_differentiably, inputs)
        self.output_note = "; ".join(filter(None, (self.output_note, handed_on.note)))
        return logits

    def _ask_differentiably(self, inputs: Tensor) -> Tensor:
        """Logits; with a gradient if the model has one."""
        if self.gradients:
            return self._ask(inputs)
        with torch.no_grad():
            return self._ask(inputs.detach())

    def _ask(self, inputs: Tensor) -> Tensor:
        given, name = inputs, f"the model {self.name}"
        inputs = inputs.to(device=self.anchor.device, dtype=self.anchor.dtype)
        if self.mean is not None and self.std is not None:
            if inputs.shape[1:2] != self.mean.shape[1:2]:
                wanted, got = self.mean.shape[1], tuple(inputs.shape)
                raise InvalidInput(f"{name}: expected images of {wanted} channels, got images of shape {got}")
            inputs = (inputs - self.mean) / self.std
        if inputs is given:
            inputs = inputs.clone()
        if inputs.requires_grad:
            # A model with its channels last hands such gradients back; ART and torchattacks call view() on them.
            inputs.register_hook(Tensor.contiguous)
        return self.forward_unnormalised(inputs)

    def forward_unnormalised(self, inputs: Tensor) -> Tensor:
        """Logits of images as the module takes them: `mean` and `std` have been applied, if there are any."""
        count, name = len(inputs), f"the model {self.name}"
        with self.surroundings, guard_user_code(name):
            output = self.model(inputs)
        classes, first = self.num_classes or self.answers.classes, self.outputs == "labels" or self.answers.of_one
        output, taken = extract_logits(output, name, count, classes, first=first)
        if self.answers.kind is None:
            self.answers.detect(output, lambda: self._ask_about_noise(inputs))
        logits = self.answers.read(output, count, self.num_classes, name)
        self.output_note = (
            taken if self.answers.kind == self.outputs == "logits" else self.answers.description(name, taken)
        )
        if logits.requires_grad:
            return logits.float()
        return logits.detach().to(torch.float32, copy=True)  # some models write every answer to the same memory

    def _ask_about_noise(self, inputs: Tensor) -> Tensor:
        """What the model returns for four images of noise shaped as these."""
        noise = torch.rand((4, *inputs.shape[1:]), generator=torch.Generator().manual_seed(0), device="cpu")
        with torch.no_grad(), self.surroundings, guard_user_code(f"the model {self.name}"):
            output = self.model(noise.to(inputs))
        return extract_logits(output, f"the model {self.name}", len(noise), self.num_classes or self.answers.classes)[0]

    def _explain(self, failure: ModelFailed, inputs: Tensor) -> str:
        """On which images the model failed, and what it may want instead."""
        shape = tuple(inputs.shape)
        if shape not in self._hints:
            self._hints[shape] = ""
            if len(shape) == 4 and 0 not in shape and failure_depends_on_images(failure):
                self._hints[shape] = explain_failure(self._answer, inputs.detach())
        hint = self._hints[shape]
        return f" on images of shape {shape}{'; ' * bool(hint)}{hint}"

    @full_float32()
    def predict_logits(self, inputs: Tensor, batch_size: int = PASS_SIZE) -> Tensor:
        """Logits of any number of images, on the device of `inputs`, computed `batch_size` at a time, in full float32.

        One fixed batch size for every judgement: the same image gets the same prediction whatever attack made it.
        """
        return self.predict_batched(inputs, batch_size)

    @torch.no_grad()
    def predict_batched(self, inputs: Tensor, batch_size: int = PASS_SIZE) -> Tensor:
        """The same as torch is set: what an attack sees of many images at once."""
        with self.frozen():
            self.eval()
            chunks = [self(chunk).to(inputs.device) for chunk in inputs.split(batch_size)]
        return torch.cat(chunks) if chunks else inputs.new_zeros((0, self.num_classes or 0))

    def check(self, inputs: Tensor, labels: Tensor | None = None, *, logits: Tensor | None = None) -> Tensor:
        """Check images, labels and what the model makes of them; sets `num_classes` when it was not known.

        Args:
            inputs: images in [0, 1], shape (N, C, H, W), floating point.
            labels: int64, shape (N,), each in 0..num_classes-1.
            logits: of the inputs, where they are known; the model is not asked then.

        Returns:
            The logits of `inputs`, shape (N, num_classes).

        Raises:
            InvalidInput: if the images, the labels or the outputs are not what every attack relies on.
        """
        check_images(inputs)
        if isinstance(labels, Tensor):
            self.answers.expect_labels(labels)
        if logits is not None:
            self.answers.expect_classes(logits.shape[1] - 1)
        if self.answers.has_other_class:  # which the data may have made more
            self.num_classes = None
        logits = self.predict_logits(inputs) if logits is None else logits.to(inputs.device)
        self._check_outputs(logits, len(inputs))
        self.num_classes = logits.shape[1]
        if labels is not None:
            check_labels(labels, len(inputs), self.num_classes)
        return logits

    def _check_outputs(self, logits: Tensor, count: int) -> None:
        check_logits(logits, count, self.num_classes, f"the model {self.name}")
        check_several(logits)
        if not torch.isfinite(logits).all():
            raise InvalidInput("expected finite logits, got NaN or infinity on the clean images")
        self.answers.check(logits)


def check_several(logits: Tensor) -> None:
    """Raise InvalidInput if logits, shape (N, K), are of fewer than two classes."""
    if logits.shape[1] < 2:
        raise InvalidInput(
            f"expected a classifier with at least 2 classes, got outputs of shape {tuple(logits.shape)}"
            f"{f'; {OF_ONE_LOGIT}' if logits.shape[1] else ''}"
        )


def _normalisation(mean: Any, std: Any) -> tuple[list[float] | None, list[float] | None]:
    """Both as numbers, one for each channel, or neither."""
    if (mean is None) != (std is None):
        raise InvalidInput("expected mean and std together, got only one of them")
    if mean is None:
        return None, None
    mean, std = read_channels("mean", mean), read_channels("std", std)
    if len(mean) != len(std):
        raise InvalidInput(f"expected mean and std of as many channels, got {len(mean)} and {len(std)}")
    if min(std) <= 0:
        raise InvalidInput(f"expected every std > 0, got {std}")
    return mean, std


def _per_channel(values: Sequence[float] | None, dtype: torch.dtype, device: torch.device) -> Tensor | None:
    return None if values is None else torch.tensor(values, dtype=dtype, device=device).view(1, -1, 1, 1)
