"""Checks and converts paths, and names of the form "path/to/file.py:NAME", given by a user."""

import re
from os import PathLike
from pathlib import Path

from ..errors import InvalidInput, Unavailable

_PATH = re.compile(r"(?<![^:])/(?!/)[^:]*")  # in a name, from the root


def expand_path(text: str | PathLike[str]) -> Path:
    """Return a path with `~` and `~user` replaced by the home folder. The path need not exist.

    Raises:
        InvalidInput: if the path is empty, names a user that does not exist, or is not valid on this system.
    """
    if not str(text):
        raise InvalidInput("expected a path, got an empty text")
    try:
        path = Path(text).expanduser()
        path.exists()
    except RuntimeError:
        raise InvalidInput(f"expected a path, got {str(text)!r}: there is no such user") from None
    except PermissionError:  # reported when the path is opened
        return path
    except (OSError, ValueError) as error:  # too long, a null character, a loop of links
        shown = str(text) if len(str(text)) < 100 else f"{str(text)[:97]}..."
        raise InvalidInput(f"expected a path, got {shown!r} ({getattr(error, 'strerror', None) or error})") from None
    return path


def check_output_path(path: str | Path, *, advice: str = "choose a different file for `out`") -> Path:
    """Check that an output file can be written, and return its path with `~` replaced.

    Call this function before a long computation, so that a wrong path is reported at once.

    Raises:
        Unavailable: if the file's folder does not exist, or the path is a folder. The message ends with `advice`.
    """
    path = expand_path(path)
    if path.is_dir():
        raise Unavailable(f"could not write {path} (it is a folder); {advice}")
    if not path.parent.is_dir():
        raise Unavailable(f"could not write {path} (there is no folder {path.parent}); create it first or {advice}")
    return path


def is_file_name(name: str) -> bool:
    """Whether a name has the form "path/to/file.py:NAME"."""
    return name.rpartition(":")[0].endswith(".py")


def split_file_name(name: str) -> tuple[Path, str]:
    """Split "path/to/file.py:NAME" into the file and the name."""
    path, _, inside = name.rpartition(":")
    return expand_path(path), inside


def name_from_here(name: str) -> str:
    """Return the name of a model or of data, with paths inside the working folder written relative to this folder.

    An object thus has the same name however its path is written. In a folder F, the absolute path "F/net.py:make" and
    "./net.py:make" become "net.py:make".
    """
    here = f"{Path.cwd()}/"
    parts = [part.removeprefix("./") for part in name.split("+")]
    return "+".join(_PATH.sub(lambda match: match[0].removeprefix(here), part) for part in parts)
