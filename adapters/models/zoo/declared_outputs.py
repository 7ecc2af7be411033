"""Output format, randomness and version that a model name declares: "MODEL+outputs:labels+random:yes+version:2"."""

import re

from ....errors import InvalidInput, WrongType
from ..classifier import Classifier
from ..output_format import OUTPUTS, Outputs
from ..remote.address import is_address

PREFIX, VERSION, RANDOM = "outputs:", "version:", "random:yes"
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def is_outputs_part(text: str) -> bool:
    """Whether a part of a model name declares an output format."""
    return text.startswith(PREFIX)


def is_declaration(text: str) -> bool:
    """Whether a part of a model name declares an output format, randomness or a version."""
    return text.startswith((PREFIX, VERSION, RANDOM.partition(":")[0] + ":"))


def declare(classifier: Classifier, part: str) -> None:
    """Apply a declaration to a loaded model. A version is applied to the whole model, see `version_in`."""
    if is_outputs_part(part):
        classifier.declare_outputs(read_outputs(part))
    elif part == RANDOM:
        classifier.random = True


def check_declaration(part: str, original: str) -> None:
    """Check a declaration before the model is loaded.

    Args:
        part: a part of a model name.
        original: the name before it.

    Raises:
        InvalidInput: if its value is invalid, or the model is remote and declared random.
    """
    if is_outputs_part(part):
        read_outputs(part)
    elif not part.startswith(VERSION) and part != RANDOM:
        raise InvalidInput(f"expected {RANDOM}, got {part[:40]!r}")
    elif part == RANDOM and is_address(original.partition("+")[0]):
        raise InvalidInput(f"+{RANDOM} cannot be used for a remote model; add ?random=yes to its address instead")


def read_outputs(text: str) -> Outputs:
    """Return the output format declared in "outputs:labels", or "labels" alone.

    Raises:
        InvalidInput: if there is no such output format.
    """
    declared = text.removeprefix(PREFIX)
    for known in OUTPUTS:
        if declared == known:
            return known
    raise InvalidInput(f"expected outputs as {', '.join(OUTPUTS)}, got {declared!r}")


def read_version(text: str) -> str:
    """Return the version declared in "version:2", or "2" alone. The version becomes part of the model identity.

    Raises:
        InvalidInput: if the version has characters other than letters, digits, "-", "_" and ".".
        WrongType: if the argument is not a string.
    """
    if not isinstance(text, str):
        raise WrongType(f"expected a version of the model as a string, such as '2', got {type(text).__name__}")
    version = text.removeprefix(VERSION)
    if not _VERSION.fullmatch(version):
        wanted = "of at most 64 letters, digits, '-', '_' and '.', beginning with a letter or digit"
        raise InvalidInput(f"expected a version of the model {wanted}, got {version[:40]!r}")
    return version


def version_in(name: str) -> str:
    """Return the version in a model's name. "" if the name declares no version."""
    return "+".join(read_version(part) for part in name.split("+") if part.startswith(VERSION))
