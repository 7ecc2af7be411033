"""Decides which models, attacks and data run in a separate process, and limits that process."""

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ....errors import Unsupported
from ...defaults import SECONDS, Isolate
from ...paths import is_file_name, split_file_name
from ..defences.names import member_of
from ..remote.address import is_address
from ..zoo.weights_file import is_trained, is_weights_name, read_weights

_LABELS = re.compile(r"\+(?:input:[^+]*?labels|multi-label:[^+]*?any)=([^,+]+)")
_SLOW_PACKAGES = ("torchvision", "timm")


@dataclass(frozen=True)
class Isolation:
    """Settings that decide which code runs in a separate process, and limit that process.

    Args:
        isolate: which code is isolated. "no": none. "auto": models built by a Python file. "yes": all models loaded by
            name, and attacks from files. "strict": all models, attacks and data from files, in a sandbox that shows
            only Python and the file's folder. "strict" raises an error if there is no sandbox.
        seconds: time limit for loading, and for each reply. A process that takes longer is killed.
        gibibytes: memory limit of the process on a CPU, in GiB. If None, four fifths of the machine's memory.
    """

    isolate: Isolate = "no"
    seconds: float = SECONDS
    gibibytes: float | None = None

    def covers(self, name: str) -> bool:
        """Whether the model with this name runs in a separate process.

        Raises:
            Unsupported: if isolation is required, but not possible on this system.
        """
        if is_address(name):  # queried from this process: a sandbox has no network
            return False
        files = {"auto": foreign_files, "strict": read_files}.get(self.isolate)
        wanted = self.isolate == "yes" or (files is not None and bool(files(name)))
        if wanted and not hasattr(socket, "send_fds"):  # file descriptors cannot be passed on
            if self.isolate == "auto":
                return False
            raise Unsupported(f"`isolate={self.isolate!r}` needs Linux or macOS")
        return wanted


NOT_ISOLATED = Isolation()
_settings = [NOT_ISOLATED]  # of attacks and data from files, for the whole process
_ISOLATING = ("yes", "strict")


def attack_isolation() -> Isolation | None:
    """Return the isolation of attacks from files, or None if they run in this process."""
    return _settings[-1] if _settings[-1].isolate in _ISOLATING else None


def isolation_of_data() -> Isolation | None:
    """Return the isolation of image files, or None if they are read in this process."""
    return _settings[-1] if _settings[-1].isolate == "strict" else None


def set_attack_isolation(isolation: Isolation) -> None:
    """Set the isolation of attacks from files for the rest of the process.

    Args:
        isolation: "yes" isolates attacks from files, and "strict" also data from files. With "no" and "auto", neither
            is isolated.
    """
    _settings[-1] = isolation


@contextmanager
def attack_isolation_context(isolation: Isolation) -> Iterator[None]:
    """Set the isolation of attacks from files inside the block. "no" and "auto" keep the current setting."""
    _settings.append(isolation if isolation.isolate in _ISOLATING else _settings[-1])
    try:
        yield
    finally:
        _settings.pop()


def foreign_files(name: str) -> list[Path]:
    """Return the Python files whose code runs when a model is loaded by a name.

    The name may contain Python files, or a weights file. A weights file contains the name of its model, which may
    contain Python files, too.
    """
    parts = [member_of(part) or part for part in name.split("+") if part]
    files = [split_file_name(part)[0] for part in parts if is_file_name(part)]
    for part in parts:
        if is_weights_name(part) and is_trained(path := Path(part).expanduser()):
            base = read_weights(path).base
            files += [split_file_name(each)[0] for each in base.split("+") if is_file_name(each)]
    return files


def read_files(name: str) -> list[Path]:
    """Return every file that a model name refers to: Python, ONNX, weights and detector files, class names and labels.

    The folder of a purifier is one of them.
    """
    members = list(filter(None, map(member_of, name.split("+"))))
    parts = [member_of(part) or part for part in name.split("+")]
    parts = [part.removeprefix("detector:").removeprefix("onnx:") for part in parts]
    parts += _LABELS.findall(name)
    folders = (path for part in members if (path := Path(part).expanduser()).is_dir())
    return [*foreign_files(name), *(path for part in parts if (path := Path(part).expanduser()).is_file()), *folders]


def packages_of(name: str) -> list[str]:
    """Return the packages that a model's files mention, among those whose import takes seconds."""
    texts = [path.read_bytes() for path in foreign_files(name) if path.is_file()]
    return [package for package in _SLOW_PACKAGES if any(package.encode() in text for text in texts)]
