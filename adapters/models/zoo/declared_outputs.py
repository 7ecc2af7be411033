"""Output format and version that a model name declares, as in "MODEL+outputs:labels+version:2"."""

import re

from ....errors import InvalidInput, WrongType
from ..output_format import OUTPUTS, Outputs

PREFIX, VERSION = "outputs:", "version:"
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def is_outputs_part(text: str) -> bool:
    """Whether a part of a model name declares an output format."""
    return text.startswith(PREFIX)


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
        wanted = "of at most 64 letters, digits, '-', '_' and '.', the first a letter or digit"
        raise InvalidInput(f"expected a version of the model {wanted}, got {version[:40]!r}")
    return version


def version_in(name: str) -> str:
    """Return the version in a model's name. "" if the name declares no version."""
    return "+".join(read_version(part) for part in name.split("+") if part.startswith(VERSION))
