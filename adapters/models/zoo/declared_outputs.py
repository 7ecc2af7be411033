"""What a model gives, and which version of it this is, as parts of its name: "MODEL+outputs:labels+version:2"."""

import re

from ....errors import InvalidInput, WrongType
from ..classifier import Classifier
from ..output_format import OUTPUTS, Outputs

PREFIX, VERSION = "outputs:", "version:"
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


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


def read_version(text: str) -> str:
    """What "version:2", or "2" alone, says: text that counts as a part of what the model is.

    Raises:
        InvalidInput: if it is no letters, digits, "-", "_" and ".".
        WrongType: if it is no text.
    """
    if not isinstance(text, str):
        raise WrongType(f"expected a version of the model as text, as '2', got {type(text).__name__}")
    said = text.removeprefix(VERSION)
    if not _VERSION.fullmatch(said):
        raise InvalidInput(f"expected a version of the model of letters, digits, '-', '_' and '.', got {said[:40]!r}")
    return said


def version_in(name: str) -> str:
    """The version that a model's name says, "" if it says none."""
    return "+".join(read_version(part) for part in name.split("+") if part.startswith(VERSION))


def declare_outputs(classifier: Classifier, part: str, name: str) -> Classifier:
    """The classifier, of which nothing was asked yet, under a name that says what it gives."""
    classifier.declare_outputs(read_outputs(part))
    classifier.name = name
    return classifier
