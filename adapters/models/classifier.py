"""Wraps any `torch.nn.Module` that classifies images as a model that every attack library can use."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from itertools import chain
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ...deprecation import warn_renamed
from ...errors import InvalidInput, ModelFailed, Unavailable, WrongType
from ..coercion import read_channels, read_int, read_text, type_error
from ..defaults import DRAWS, PASS_SIZE
from ..torch_state import full_float32
from ..user_code_guard import guard_user_code, one_line
from .extract_logits import OF_ONE_LOGIT, check_logits, explain_failure, extract_logits, failure_depends_on_images
from .images import check_images, check_labels
from .output_format import OutputFormat, Outputs
from .state_guard import ChangeByAttack, frozen, state_modes

Interpolation = Literal["bilinear", "bicubic"]


class Classifier(nn.Module):
    """A model that takes images in [0, 1] and returns float32 logits, always in evaluation mode.

    Images are converted to the model's dtype and device. A float32 model therefore works with a library that passes
    float64 arrays (ART's decision-based attacks under NumPy 2), and a half-precision model works with every library.
    `train()` has no effect, so no library can switch on dropout or batch statistics.

    The module is used, not copied. While it is queried or attacked (`frozen`), it is in evaluation mode and none of its
    parameters requires gradients. Its state is restored afterwards. `handed_over_training` tells whether it was passed
    in training mode.

    The module runs inside `guard_user_code` and gets its own copy of the images each time, so that in-place operations
    have no side effects. If it fails or returns no logits, a `ModelFailed` error names the module and, if this can be
    determined, the input that it expects.

    Args:
        model: returns logits or probabilities of shape (N, num_classes), or integer labels of shape (N,), for images
            (N, C, H, W). They are a tensor, or in a tuple, a dict or an object with `.logits` (see `output_note`).
        num_classes: number of classes. If None, it is taken from the first output.
        mean: mean per channel, subtracted from the images. If None, the model normalises by itself.
        std: standard deviation per channel, by which the difference is divided. Required together with `mean`.
        name: name of the model in messages. An evaluation uses the name under which the model is passed.
        device: device to which the model is moved. If None, it stays where it is.
        resize: length to which the shorter side of an image file is resized before the crop. None for no resizing.
        crop: side of the square centre crop of an image file. None for no crop.
        interpolation: interpolation used to resize image files.
        random: whether the model draws random numbers in every forward pass by design. It is then judged on several
            samples (`running.draws`). A random model that is not declared as such is reported as unstable.
        outputs: output format. "logits", "probabilities" or "labels" (the largest score then gives the label). For two
            classes, "logit" or "probability" for a single number for class 1, (N, 1) or (N,). If None, the model's
            attribute `outputs` decides, or else the first output.
        gradients: whether the model can be differentiated. It counts as not differentiable if this argument or the
            model's attribute `gradients` is False.

    Raises:
        InvalidInput: if only one of `mean` and `std` is given, they are not numbers or differ in length, or a standard
            deviation is not positive.
        WrongType: if `model` is not a module.
        Unavailable: if torch cannot compute on the device.
    """

    mean: Tensor | None
    std: Tensor | None
    detects = False  # whether the last class is not a class of the data but means "detected" (`detectors.joint`)
    stated_channels: int | None = None  # number of image channels, if a file states it
    class_names: tuple[str, ...] = ()  # in the model's order, if known; used to look up folder names
    all_named = False  # whether the user declared them, so that a folder with a different name is an error
    loading_notes: tuple[str, ...] = ()  # decisions made while it was loaded
    steady: bool | None = None  # whether predictions repeat; None if unknown (`steadiness.is_deterministic`)
    # Class attributes, set on an instance only if they differ, so that the hashes of older models stay valid.
    random: bool = False
    stated_identity: tuple[str, tuple[str, ...]] | None = None  # digest and reasons, if its layers are elsewhere
    changed_by: ChangeByAttack | None = None  # change made by an attack that could not be undone
    model_version: str = ""  # version declared by the user, part of the model identity
    draws: int = DRAWS  # number of samples used to judge a random model
    eot: int = 1  # samples averaged per query of an attack on a random model (`QueryCounter`)

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
        _check_settings({"random": random, "gradients": gradients}, {"resize": resize, "crop": crop})
        name = read_text(name, "the name of the model as text")
        if num_classes is not None:
            num_classes = read_int(num_classes, "num_classes as a whole number from 1", 1, 2**31 - 1)
        state_modes(model)
        self.handed_over_training = model.training
        self.known_as: dict[str, str] = {}  # digest of the model with folded layers -> digest before folding
        self.answers = OutputFormat(model, outputs, gradients=gradients, classes=num_classes)
        self.model = model
        self.num_classes = self.stated_classes = num_classes  # stated_classes keeps the argument
        self.name = name or type(model).__name__
        if random:
            self.random = True
        self.output_note = ""  # how the logits were chosen, if the model returns more than a tensor
        self.surroundings: AbstractContextManager[object] = nullcontext()  # import context of the model's file
        self._hints: dict[tuple[int, ...], str] = {}  # by shape of the images on which the model failed
        self.resize, self.crop = resize, crop
        self.interpolation: Interpolation = interpolation
        self.training = self._is_frozen = False
        reference = next((p for p in model.parameters() if p.is_floating_point()), torch.zeros(()))
        place = next((tensor.device for tensor in chain(model.parameters(), model.buffers())), reference.device)
        if place.type == "meta":
            raise InvalidInput(
                f"expected a model with weights, got {self.name} on the device meta, which has no weights"
            )
        self.register_buffer("mean", _per_channel(mean, reference.dtype, place))
        self.register_buffer("std", _per_channel(std, reference.dtype, place))
        # torchattacks reads the device from the first parameter; the same tensor stores the dtype to cast to.
        self.anchor = nn.Parameter(torch.zeros((), dtype=reference.dtype, device=place), requires_grad=False)
        if device is not None:
            try:
                self.to(device)
            except (RuntimeError, AssertionError, ImportError, TypeError) as error:
                wanted = "expected a device that torch can use here"
                raise Unavailable(f"{wanted}, got {str(device)!r} ({one_line(error)})") from error

    @property
    def channels(self) -> int | None:
        """Number of channels of the model's images: 1 for grey, 3 for colour. None if unknown.

        The number is taken from a declaration, from `mean`, or from the first convolution.
        """
        if self.stated_channels is not None:
            return self.stated_channels
        if self.mean is not None:
            return self.mean.shape[1]
        first = next((layer for layer in self.model.modules() if isinstance(layer, nn.Conv2d)), None)
        return first.in_channels if first is not None and first.in_channels in (1, 3) else None

    @property
    def outputs(self) -> Outputs | None:
        """The model's output format. None until it is declared or the model is queried."""
        return self.answers.outputs

    @property
    def gradients(self) -> bool:
        """Whether the model can be differentiated, as far as is known.

        `running.requirements.has_gradients` tests this.
        """
        return self.answers.gradients

    def declare_outputs(self, outputs: Outputs) -> None:
        """Declare the output format of the model. Call this method before the first query.

        The declaration replaces an earlier one.
        """
        before = self.answers
        self.answers = OutputFormat(self.model, outputs, gradients=self.gradients, classes=before.classes)
        self.answers.handed_on = before.handed_on

    def say(self, outputs: Outputs) -> None:
        """Deprecated name of `declare_outputs`."""
        warn_renamed("Classifier", "say", "declare_outputs")
        self.declare_outputs(outputs)

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        return self.anchor.device

    @property
    def precision_note(self) -> str:
        """Note for the user if the model does not compute in float32, as attacks do. "" for a float32 model."""
        if self.anchor.dtype == torch.float32:
            return ""
        kind = str(self.anchor.dtype).removeprefix("torch.")
        return f"the model computes in {kind}; attacks compute in float32, and its logits are converted to float32"

    def train(self, mode: bool = True) -> "Classifier":  # noqa: ARG002 - the signature is torch's
        """Keep the model in evaluation mode, whatever `mode` is.

        Attack libraries may call this method. An evaluation never trains a model.
        """
        if any(part.training for part in self.modules()):  # checking takes a tenth of the time of setting
            super().train(False)
        return self

    @contextmanager
    def frozen(self) -> Iterator["Classifier"]:
        """Put the model in evaluation mode without trainable parameters, and restore its state at the end of the block.

        Each query freezes the model in this way. A block around many queries freezes the model only once, which is
        faster.
        """
        if self._is_frozen:
            yield self
            return
        with ExitStack() as stack:
            with guard_user_code(f"the model {self.name}"):  # its eval() may fail
                stack.enter_context(frozen(self))
            self._is_frozen = True
            try:
                yield self
            finally:
                self._is_frozen = False

    def say_version(self, version: str) -> None:
        """Declare a version of the model. Call this method before the first query.

        The version becomes part of the model identity, and of the key of a server's answer cache.
        """
        self.model_version = version
        for part in self.modules():
            if isinstance(getattr(part, "said_version", None), str):
                vars(part)["said_version"] = version

    def freeze(self) -> "Classifier":
        """Freeze the model permanently.

        This method is for models that davylamp loads by name and that no user code shares.
        """
        self.eval()
        self.requires_grad_(False)
        self._is_frozen = True
        return self

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute logits of shape (N, num_classes), float32, for images in [0, 1] of shape (N, C, H, W).

        Probabilities are converted to their logarithm. Labels are converted to 1 for the label and 0 for other classes.

        Raises:
            ModelFailed: if the model raises an error, exits or returns no logits.
            InvalidInput: if the number of channels differs from `mean` and `std`, or the number of classes is unknown.
        """
        if not self._is_frozen:
            with self.frozen():
                return self(inputs)
        try:
            return self._answer(inputs)
        except ModelFailed as failure:
            if failure.__cause__ is None:  # the output was invalid, and the message explains it
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
                advice = "; give one value of each for grey images" if inputs.shape[1:2] == (1,) else ""
                stated = f"its `mean` and `std` have {wanted} values{advice}"
                raise InvalidInput(
                    f"{name}: expected images with {wanted} channels, got images of shape {got}; {stated}"
                )
            inputs = (inputs - self.mean) / self.std
        if inputs is given:
            inputs = inputs.clone()
        if inputs.requires_grad:
            # A channels-last model returns such gradients; ART and torchattacks call view() on them.
            inputs.register_hook(Tensor.contiguous)
        return self.forward_unnormalised(inputs)

    def forward_unnormalised(self, inputs: Tensor) -> Tensor:
        """Compute logits of images that are already normalised with `mean` and `std`."""
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
        return logits.detach().to(torch.float32, copy=True)  # some models write every output to the same memory

    def _ask_about_noise(self, inputs: Tensor) -> Tensor:
        noise = torch.rand((4, *inputs.shape[1:]), generator=torch.Generator().manual_seed(0), device="cpu")
        with torch.no_grad(), self.surroundings, guard_user_code(f"the model {self.name}"):
            output = self.model(noise.to(inputs))
        return extract_logits(output, f"the model {self.name}", len(noise), self.num_classes or self.answers.classes)[0]

    def _explain(self, failure: ModelFailed, inputs: Tensor) -> str:
        shape = tuple(inputs.shape)
        if shape not in self._hints:
            self._hints[shape] = ""
            if len(shape) == 4 and 0 not in shape and failure_depends_on_images(failure):
                self._hints[shape] = explain_failure(self._answer, inputs.detach())
        hint = self._hints[shape]
        return f" on images of shape {shape}{'; ' * bool(hint)}{hint}"

    @full_float32()
    def predict_logits(self, inputs: Tensor, batch_size: int = PASS_SIZE) -> Tensor:
        """Compute logits for any number of images in full float32, in batches.

        The batch size is always the same when examples are judged. An image therefore gets the same prediction from
        every attack.

        Args:
            inputs: images in [0, 1], shape (N, C, H, W).
            batch_size: number of images per forward pass.

        Returns:
            The logits, shape (N, K), on the device of `inputs`.
        """
        return self.predict_batched(inputs, batch_size)

    @torch.no_grad()
    def predict_batched(self, inputs: Tensor, batch_size: int = PASS_SIZE) -> Tensor:
        """Compute logits in batches like `predict_logits`, but with torch's current precision settings."""
        with self.frozen():
            self.eval()
            chunks = [self(chunk).to(inputs.device) for chunk in inputs.split(batch_size)]
        return torch.cat(chunks) if chunks else inputs.new_zeros((0, self.num_classes or 0))

    def check(self, inputs: Tensor, labels: Tensor | None = None, *, logits: Tensor | None = None) -> Tensor:
        """Check that images, labels and the model's outputs are valid, and return the outputs.

        If the number of classes was unknown, it is set from the outputs.

        Args:
            inputs: images in [0, 1], shape (N, C, H, W), floating point.
            labels: true classes, int64, shape (N,), each in 0..num_classes-1. None to check no labels.
            logits: logits of the inputs, shape (N, num_classes), if they are known. The model is then not queried.

        Returns:
            The logits of `inputs`, shape (N, num_classes).

        Raises:
            InvalidInput: if the images, labels or outputs are invalid.
        """
        check_images(inputs)
        if isinstance(labels, Tensor):
            self.answers.expect_labels(labels)
        if logits is not None:
            self.answers.expect_classes(logits.shape[1] - 1)
        if self.answers.has_other_class:  # the data may have raised the count
            self.num_classes = None
        logits = self.predict_logits(inputs) if logits is None else logits.to(inputs.device)
        check_logits(logits, len(inputs), self.num_classes, f"the model {self.name}")
        check_several(logits)
        if not torch.isfinite(logits).all():
            raise InvalidInput("expected finite logits, got NaN or infinity on the clean images")
        self.answers.check(logits)
        self.num_classes = logits.shape[1]
        if labels is not None:
            check_labels(labels, len(inputs), self.num_classes)
        return logits


def check_several(logits: Tensor) -> None:
    """Raise InvalidInput if logits, shape (N, K), have fewer than two classes."""
    if logits.shape[1] < 2:
        raise InvalidInput(
            f"expected a classifier with at least 2 classes, got outputs of shape {tuple(logits.shape)}"
            f"{f'; {OF_ONE_LOGIT}' if logits.shape[1] else ''}"
        )


def _check_settings(flags: dict[str, Any], sizes: dict[str, Any]) -> None:
    for word, value in flags.items():
        if not isinstance(value, bool):
            raise type_error(f"{word} as True or False", value)
    for word, value in sizes.items():
        if value is not None:
            read_int(value, f"{word} in pixels as a whole number from 1", 1, 2**31 - 1)


def _normalisation(mean: Any, std: Any) -> tuple[list[float] | None, list[float] | None]:
    if (mean is None) != (std is None):
        raise InvalidInput("mean and std must be given together, got only one")
    if mean is None:
        return None, None
    mean, std = read_channels("mean", mean), read_channels("std", std)
    if len(mean) != len(std):
        raise InvalidInput(f"expected mean and std with the same number of channels, got {len(mean)} and {len(std)}")
    if min(std) <= 0:
        raise InvalidInput(f"expected every std > 0, got {std}")
    return mean, std


def _per_channel(values: Sequence[float] | None, dtype: torch.dtype, device: torch.device) -> Tensor | None:
    return None if values is None else torch.tensor(values, dtype=dtype, device=device).view(1, -1, 1, 1)
