"""Paths as a user writes them."""

import re
from pathlib import Path

from ..errors import InvalidInput, Unavailable

_PATH = re.compile(r"(?<![^:])/(?!/)[^:]*")  # in a name, from the root


def expand_path(text: str | Path) -> Path:
    """The path with `~` and `~user` replaced by the home folder; it need not exist.

    Raises:
        InvalidInput: if it is empty, names a user that there is none of, or can be no path on this system.
    """
    if not str(text):
        raise InvalidInput("expected a path, got an empty text")
    try:
        path = Path(text).expanduser()
        path.exists()
    except RuntimeError:
        raise InvalidInput(f"expected a path, got {str(text)!r}: there is no such user") from None
    except PermissionError:  # whoever opens it says so
        return path
    except (OSError, ValueError) as error:  # too long, a null character, a loop of links
        shown = str(text) if len(str(text)) < 100 else f"{str(text)[:97]}..."
        raise InvalidInput(f"expected a path, got {shown!r} ({getattr(error, 'strerror', None) or error})") from None
    return path


def check_output_path(path: str | Path, *, advice: str = "choose another file for `out`") -> Path:
    """The path of a file that is to be written, with `~` replaced; asked before anything is computed for it.

    Raises:
        Unavailable: if its folder is not there, or it is one itself.
    """
    path = expand_path(path)
    if path.is_dir():
        raise Unavailable(f"could not write {path} (it is a folder); {advice}")
    if not path.parent.is_dir():
        raise Unavailable(f"could not write {path} ({path.parent} is no folder); make it first or {advice}")
    return path


def is_file_name(name: str) -> bool:
    """Whether a name is "path/to/file.py:NAME"."""
    return name.rpartition(":")[0].endswith(".py")


def split_file_name(name: str) -> tuple[Path, str]:
    """The file and the name in it, of "path/to/file.py:NAME"."""
    path, _, inside = name.rpartition(":")
    return expand_path(path), inside


def name_from_here(name: str) -> str:
    """The name of a model or of data with each path in it as it is from the working folder, if it lies in there.

    So "/home/me/work/net.py:make" and "./net.py:make" are "net.py:make" in /home/me/work: one thing has one name.
    """
    here = f"{Path.cwd()}/"
    parts = [part.removeprefix("./") for part in name.split("+")]
    return "+".join(_PATH.sub(lambda match: match[0].removeprefix(here), part) for part in parts)
