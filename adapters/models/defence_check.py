"""Checks of the first output of a user's defence."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from ...errors import InvalidInput
from .clamp import describe_out_of_range


class DefenceCheck:
    """Checks that a user's defence passes images in [0, 1] to the model and keeps the number of classes.

    Only the first output is checked. Later queries cost nothing extra.

    Args:
        classifier: the undefended model.
        function: name of the defence, for messages.
        keeps_classes: whether the number of classes must stay the same. False for a defence that adds a class for
            detected images.
        is_random: whether the defence draws random numbers. Its noise may then leave the range [0, 1].
    """

    def __init__(self, classifier: nn.Module, function: str, *, keeps_classes: bool, is_random: bool):
        self.classifier, self.function = classifier, function
        self.keeps_classes, self.is_random = keeps_classes, is_random
        self.note = ""
        self._looked = False

    def check_first_output(self, ask: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
        """Compute logits of the defended model, and record whether the defence passes on images outside [0, 1].

        Args:
            ask: queries the defended model.
            inputs: images, shape (N, C, H, W).

        Returns:
            The logits, shape (N, K).

        Raises:
            InvalidInput: if the defence changes the number of classes.
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
            classes, kept = logits.shape[1], before.shape[1]
            if self.keeps_classes and classes != kept:
                raise InvalidInput(
                    f"{self.function} returned {classes} classes; a defence must keep the {kept} classes of the model"
                )
            text = "" if self.is_random or describe_out_of_range(inputs) else describe_out_of_range(given)
            if text:
                passes = f"{self.function} passes images to the model with values {text}"
                self.note = f"{passes}, outside [0, 1]: scale or clip them"
        self._looked = True
        return logits
