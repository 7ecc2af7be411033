"""Which models run in a process of their own, and what that process may use."""

import re
import socket
from dataclasses import dataclass
from pathlib import Path

from ....errors import Unsupported
from ...defaults import SECONDS, Isolate
from ...paths import is_file_name, split_file_name
from ..remote.address import is_address
from ..zoo.weights_file import is_trained, is_weights_name, read_weights

_LABELS = re.compile(r"\+input:[^+]*?labels=([^,+]+)")
_SLOW_PACKAGES = ("torchvision", "timm")


@dataclass(frozen=True)
class Isolation:
    """How models are kept apart from our process.

    Args:
        isolate: "no": not at all. "auto": those that a Python file makes. "yes": every model that is loaded by name,
            and attacks of files. "strict": every model that is read from files, and attacks and data of files, in a
            sandbox that shows Python and the folder of the file only, or not at all.
        seconds: that one answer, or loading, may take; what takes longer is killed.
        gibibytes: of memory that the process may ask for, on a CPU; None: four fifths of the machine's.
    """

    isolate: Isolate = "no"
    seconds: float = SECONDS
    gibibytes: float | None = None

    def covers(self, name: str) -> bool:
        """Whether a model of this name runs in a process of its own.

        Raises:
            Unsupported: if that is said and cannot be done on this system.
        """
        if is_address(name):  # asked from here: a room has no network
            return False
        files = {"auto": foreign_files, "strict": read_files}.get(self.isolate)
        wanted = self.isolate == "yes" or (files is not None and bool(files(name)))
        if wanted and not hasattr(socket, "send_fds"):  # open files cannot be handed over
            if self.isolate == "auto":
                return False
            raise Unsupported(f"expected Linux or macOS for --isolate {self.isolate}, got another system")
        return wanted


NOT_ISOLATED = Isolation()


def foreign_files(name: str) -> list[Path]:
    """The Python files whose code a model of this name runs: parts of a chain, and what a file of weights is of."""
    parts = [part for part in name.split("+") if part]
    files = [split_file_name(part)[0] for part in parts if is_file_name(part)]
    for part in parts:
        if is_weights_name(part) and is_trained(path := Path(part).expanduser()):
            base = read_weights(path).base
            files += [split_file_name(each)[0] for each in base.split("+") if is_file_name(each)]
    return files


def read_files(name: str) -> list[Path]:
    """Every file that a name says is read: the Python files, and those of ONNX, weights, detectors and class names."""
    parts = [part.removeprefix("detector:").removeprefix("onnx:") for part in name.split("+")]
    parts += _LABELS.findall(name)
    return [*foreign_files(name), *(path for part in parts if (path := Path(part).expanduser()).is_file())]


def packages_of(name: str) -> list[str]:
    """Packages that a model's files mention and that take seconds to import."""
    texts = [path.read_bytes() for path in foreign_files(name) if path.is_file()]
    return [package for package in _SLOW_PACKAGES if any(package.encode() in text for text in texts)]
