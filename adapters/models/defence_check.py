"""What a defence from a file hands to the classifier that it stands before, looked at in its first answer."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from ...errors import InvalidInput
from .clamp import describe_out_of_range


class DefenceCheck:
    """A look at a defence that nobody but its author knows: it has to keep the range of the images and the classes.

    The look is at the first answer only: afterwards a pass costs nothing more.

    Args:
        classifier: the original.
        function: the defence, for messages.
        keeps_classes: False: it may have another number of classes, as one that says which images it detected.
        is_random: it draws random numbers: noise may leave the range.
    """

    def __init__(self, classifier: nn.Module, function: str, *, keeps_classes: bool, is_random: bool):
        self.classifier, self.function = classifier, function
        self.keeps_classes, self.is_random = keeps_classes, is_random
        self.note = ""
        self._looked = False

    def check_first_output(self, ask: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
        """Logits of the defended model, (N, K), with a note if the original was given images outside [0, 1].

        Args:
            ask: the defended model.
            inputs: images, (N, C, H, W).

        Raises:
            InvalidInput: if the original has another number of classes.
        """
        if self._looked:
            return ask(inputs)
        seen: list[tuple[Tensor, Tensor]] = []

        def see(_: nn.Module, given: tuple[Any, ...], logits: Tensor) -> None:
            if given and isinstance(given[0], Tensor):
                seen.append((given[0].detach(), logits))

        hook = self.classifier.register_forward_hook(see)
        try:
            logits = ask(inputs)
        finally:
            hook.remove()
        for given, before in seen:
            self._check_classes(before.shape[1], logits.shape[1])
            self._note_range(inputs, given)
        self._looked = True
        return logits

    def _check_classes(self, before: int, classes: int) -> None:
        if self.keeps_classes and classes != before:
            raise InvalidInput(f"expected {self.function} to keep the {before} classes of the model, got {classes}")

    def _note_range(self, inputs: Tensor, given: Tensor) -> None:
        if self.is_random or describe_out_of_range(inputs) or not (text := describe_out_of_range(given)):
            return
        self.note = f"{self.function} gives the model images with values {text}, outside [0, 1]: scale or clip them"
