"""What a model gives as a part of its name: "MODEL+outputs:labels"."""

from ....errors import InvalidInput
from ..answers import OUTPUTS, Outputs
from ..classifier import Classifier

PREFIX = "outputs:"


def is_outputs_part(text: str) -> bool:
    """Whether what stands behind a "+" says what the model before it gives."""
    return text.startswith(PREFIX)


def read_outputs(text: str) -> Outputs:
    """What "outputs:labels", or "labels" alone, says.

    Raises:
        InvalidInput: if there are no such outputs.
    """
    said = text.removeprefix(PREFIX)
    for known in OUTPUTS:
        if said == known:
            return known
    raise InvalidInput(f"expected outputs as {', '.join(OUTPUTS)}, got {said!r}")


def say_outputs(classifier: Classifier, part: str, name: str) -> Classifier:
    """The classifier, of which nothing was asked yet, under a name that says what it gives."""
    classifier.say(read_outputs(part))
    classifier.name = name
    return classifier
