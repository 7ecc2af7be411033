"""A container of Docker or Podman around strict rooms, for where bubblewrap does not work.

Its image is empty: all that is in it is mounted, and can only be read. An engine hands no socket on to what it runs, so
the first process in there fetches it through a socket with a name, and stays to end everything when we are gone.
"""

import itertools
import json
import os
import resource
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ....errors import Unsupported
from ...user_code import one_line

FIRST_PROCESS = "davylamp-first"  # what the first process of a container is called, in at most 15 letters
_ENGINES = ("docker", "podman")
_IMAGE = "davylamp-empty:1"
_EMPTY_ARCHIVE = bytes(10240)  # of tar
_PREFIX = "davylamp-room"
_DOOR = "/davylamp-door"  # the folder of the socket in there
_MASKED = ("/etc/passwd", "/etc/hosts", "/etc/resolv.conf")  # which an engine copies from this machine, or makes
_FIRST_USER = 1 << 30  # nobody has such numbers; engines take those below 1 << 31
_MOST_FILES = _MOST_PROCESSES = 4096
_START_SECONDS, _COMMAND_SECONDS, _LEAVE_SECONDS = 60.0, 30.0, 2.0
# Dumpable off: what runs as the same user can't look into it, nor at the variables that the engine gave it.
_FIRST = """
import ctypes, json, os, select, signal, socket, sys
with open("/proc/self/comm", "w") as file:
    file.write(sys.argv[1])
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
door = socket.socket(socket.AF_UNIX)
door.connect(sys.argv[2])
wire = socket.recv_fds(door, 1, 1)[1][0]
door.close()
woken, wake = os.pipe()
os.set_blocking(wake, False)
signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
signal.signal(signal.SIGCHLD, lambda *_: None)
child = os.fork()
if not child:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(wire, 0)
    os.close(wire)
    os.execve(sys.argv[4], sys.argv[4:], json.loads(sys.argv[3]))
poll = select.poll()
poll.register(wire, select.POLLRDHUP)
poll.register(woken, select.POLLIN)
while True:
    if wire in dict(poll.poll()):
        os._exit(0)
    os.read(woken, 512)
    try:
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                os._exit(os.waitstatus_to_exitcode(ended[1]) & 127)
    except ChildProcessError:
        pass
"""
_PROBE = "import socket; socket.socket(fileno=0).sendall(b'here')"
_numbers = itertools.count()


class Engine(NamedTuple):
    """What runs containers.

    Args:
        program: docker or podman.
        user: as which user what is in them runs; "": as one of their own each.
    """

    program: str
    user: str


class ContainerContent(NamedTuple):
    """What a container shows and allows.

    Args:
        paths: files and folders, which lie there as here and can be read.
        devices: files under /dev.
        variables: the environment of the command.
        scratch: bytes of /tmp and of /dev/shm, each.
        tasks: processes and threads.
        masked: folders in `paths` that are not shown.
    """

    paths: tuple[Path, ...]
    devices: tuple[str, ...]
    variables: Mapping[str, str]
    scratch: int
    tasks: int
    masked: tuple[Path, ...] = ()


class Container:
    """A container for one command, which is told of a socket; `command` starts it.

    Args:
        engine: what runs it.
        command: what is run, with the socket as its standard input.
        content: what it shows and allows.

    Raises:
        Unsupported: if its user could not read the files: it is no root, even where we are.
    """

    def __init__(self, engine: Engine, command: Sequence[str], content: ContainerContent):
        number = next(_numbers)
        user = engine.user or str(_FIRST_USER + 64 * os.getpid() + number % 64)
        paths = [*_outermost(content.paths)]
        if not engine.user:
            _check_readable(paths)
        self._engine = engine
        self.name = f"{_PREFIX}-{_this_process()}-{number}"
        self._folder = Path(tempfile.mkdtemp(prefix=f"{self.name}-"))
        door, empty = self._folder / "door", self._folder / "empty"
        door.mkdir()
        empty.touch()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(door / "wire"))
        # The folder around them is ours alone.
        for path, mode in ((door, 0o755), (door / "wire", 0o666), (empty, 0o644)):
            path.chmod(mode)
        self._listener.listen(1)
        self._listener.settimeout(_START_SECONDS)
        mounts = [(path, path) for path in paths] + [(empty, each) for each in _MASKED] + [(door, _DOOR)]
        bound = [word for source, target in mounts for word in ("--volume", f"{source}:{target}:ro")]
        given = [word for each in content.devices for word in ("--device", each)]
        first = [sys.executable, "-I", "-S", "-c", _FIRST, FIRST_PROCESS, f"{_DOOR}/wire"]
        self.command = [
            *(engine.program, "run", "--name", self.name, "--user", user, *_limits(content), *given, *bound, _IMAGE),
            *(*first, json.dumps({**content.variables}), *command),
        ]

    def hand_over(self, wire: socket.socket) -> None:
        """Have the first process in there get a socket, once it asks; the caller can close its descriptor at once."""
        threading.Thread(target=self._hand_over, args=(os.dup(wire.fileno()),), daemon=True).start()

    def end(self, process: "subprocess.Popen[bytes]") -> None:
        """See that it is gone after our end of the socket was closed: killing the engine's program ends no container.

        Args:
            process: the engine's program that started it.
        """
        with suppress(subprocess.TimeoutExpired):
            process.wait(_LEAVE_SECONDS)
            return
        _do(self._engine.program, "kill", self.name)

    def close(self) -> None:
        """Remove what it needed to start."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _hand_over(self, file: int) -> None:
        try:
            with suppress(OSError):  # it ended before it asked
                connection, _ = self._listener.accept()
                with connection:
                    if _is_allowed(connection):
                        socket.send_fds(connection, [b"."], [file])
        finally:
            os.close(file)
            self.close()


def find_engine(content: ContainerContent) -> tuple[Engine | None, str]:
    """Docker or Podman, whichever runs Python in a container here, and why not if neither does.

    It also ends the containers of processes of ours that were killed.

    Args:
        content: what every container shows.
    """
    reasons = []
    for name in _ENGINES:
        program = shutil.which(name)
        if program is None:
            reasons.append(f"{name} is not installed")
            continue
        _sweep(program)
        why = _prepare_image(program)
        for user in () if why else _users(name):
            why = _try(Engine(program, user), content)
            if not why:
                return Engine(program, user), ""
        reasons.append(f"{name} runs no container here ({why})")
    return None, "; ".join(reasons)


def _users(name: str) -> Sequence[str]:
    """As whom a container may run, the likeliest first: never as root of this machine, and able to read our files."""
    if os.getuid() == 0:
        return ("",)
    users = f"{os.getuid()}:{os.getgid()}", "0:0"  # the latter is this user, where the engine is not root's
    return users if name == "docker" else users[::-1]


def _is_allowed(connection: socket.socket) -> bool:
    """Whether who asks is whom we want there: this user, or if that is root, another one."""
    size = struct.calcsize("3i")
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return user != 0 if os.getuid() == 0 else user == os.getuid()


def _try(engine: Engine, content: ContainerContent) -> str:
    """Why Python in a container does not answer through its socket; "" if it does."""
    ours, theirs = socket.socketpair()
    try:
        container = Container(engine, [sys.executable, "-I", "-S", "-c", _PROBE], content)
    except (OSError, Unsupported) as error:
        ours.close()
        theirs.close()
        return one_line(error)
    with ours, theirs:
        container.hand_over(theirs)
        try:
            code, words = _do(engine.program, *container.command[1:])
            ours.setblocking(False)
            with suppress(OSError):
                if ours.recv(4) == b"here":
                    return ""
            return words or f"exit code {code}"
        finally:
            container.close()


def _do(*command: str, given: bytes = b"") -> tuple[int, str]:
    """Run a command of an engine; its exit code, and the last line that it printed."""
    try:
        done = subprocess.run(command, input=given, capture_output=True, timeout=_COMMAND_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, one_line(error)
    lines = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
    return done.returncode, one_line(lines[-1]) if lines else ""


def _prepare_image(program: str) -> str:
    """Make the empty image, if it is not there; why that does not work, "" if it does."""
    if _do(program, "image", "inspect", _IMAGE)[0] == 0:
        return ""
    code, words = _do(program, "import", "-", _IMAGE, given=_EMPTY_ARCHIVE)
    return (words or f"exit code {code}") if code else ""


def _limits(content: ContainerContent) -> Iterator[str]:
    """What a container may do, in words that Docker and Podman share."""
    size, memory = content.scratch, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 4 // 5
    yield from ("--rm", "--pull", "never", "--log-driver", "none", "--network", "none", "--read-only")
    # A label of SELinux would forbid it to read what is mounted.
    yield from ("--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--security-opt", "label=disable")
    yield from ("--pids-limit", str(content.tasks), "--memory", str(memory), "--shm-size", str(size))
    yield from ("--tmpfs", f"/tmp:size={size},mode=1777,exec", "--workdir", "/tmp")
    for path in ("/run", "/var/tmp", *content.masked):  # the first two Podman would make such that they can be written
        yield from ("--tmpfs", f"{path}:ro,size=64k")
    for name, kind, most in (
        ("nofile", resource.RLIMIT_NOFILE, _MOST_FILES),
        ("nproc", resource.RLIMIT_NPROC, _MOST_PROCESSES),
    ):
        hard = resource.getrlimit(kind)[1]
        count = most if hard == resource.RLIM_INFINITY else min(most, hard)
        yield from ("--ulimit", f"{name}={count}:{count}")


def _outermost(paths: Sequence[Path]) -> Iterator[Path]:
    """Those that exist, without those that lie in another of them."""
    existing = [path for path in dict.fromkeys(paths) if path.exists()]
    return (path for path in existing if not any(other in path.parents for other in existing))


def _check_readable(paths: Sequence[Path]) -> None:
    for path in paths:
        needed = 0o5 if path.is_dir() else 0o4
        if path.stat().st_mode & needed != needed:
            raise Unsupported(
                f"expected files that everybody can read, as a container that root starts runs as another user, got "
                f"{path}: chmod -R o+rX it, or run davylamp as another user"
            )


def _this_process() -> str:
    return _named(os.getpid())


def _named(process: int) -> str:
    """A process, such that no other is ever called the same: where it is counted, its number, and when it began."""
    place = Path("/proc", str(process))
    return f"{(place / 'ns/pid').stat().st_ino}-{process}-{(place / 'stat').read_text().rpartition(')')[2].split()[19]}"


def _sweep(program: str) -> None:
    """End containers of processes that were killed, and remove their folders."""
    with suppress(OSError, subprocess.SubprocessError):
        listing = (program, "ps", "--all", "--filter", f"name={_PREFIX}", "--format", "{{.Names}}")
        done = subprocess.run(listing, capture_output=True, text=True, timeout=_COMMAND_SECONDS, check=False)
        for name in filter(_is_left, done.stdout.split()):
            _do(program, "kill", name)
            _do(program, "rm", "--force", name)
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}-*"):
        if _is_left(folder.name) and folder.lstat().st_uid == os.getuid():
            shutil.rmtree(folder, ignore_errors=True)


def _is_left(name: str) -> bool:
    """Whether a container, or its folder, is of a process that is gone; those counted elsewhere we cannot know."""
    words = name.removeprefix(f"{_PREFIX}-").split("-")
    if not name.startswith(f"{_PREFIX}-") or len(words) < 4 or not all(word.isdigit() for word in words[:3]):
        return False
    if words[0] != _this_process().split("-")[0]:
        return False
    try:
        return _named(int(words[1])) != "-".join(words[:3])
    except PermissionError:
        return False
    except (OSError, IndexError):
        return True
