"""Command that reports which parts of davylamp are usable on this machine."""

import json
import re
from importlib.metadata import PackageNotFoundError, distribution
from typing import NamedTuple

import typer

from .options import Json
from .table_options import TableOptions

# Purposes of the extras that are not attack libraries.
EXTRAS = {
    "demo": "embedded models and images",
    "timm": "models of timm",
    "hf": "models and data of Hugging Face",
    "onnx": "ONNX models",
    "isolate": "a sandbox for models and attacks from files",
    "kornia": "defences and transformations of Kornia",
    "corruptions": "corrupted images",
    "detectors": "detectors of adversarial examples",
    "maite": "MAITE models and data",
    "plot": "figures as files",
    "serve": "serving a report or a model over HTTP",
    "server": "a server for a lab's tasks and results",
    "ray": "evaluations on several machines",
}
_CORRUPTIONS = (
    'pip install --no-deps "imagecorruptions-imaug>=1.1.5,<1.2"'  # in addition to the extra, see docs/install.md
)


class Availability(NamedTuple):
    """State of an attack library, or of an extra of davylamp, on this machine.

    Args:
        name: name of the library or extra.
        version: installed version of a library. "" for an extra.
        what: for a library, the number of its attacks. For an extra, its purpose.
        problem: reason why the library or extra cannot be used. "" if it can be used.
        command: command that installs the library or extra. "" if nothing needs to be installed.
    """

    name: str
    version: str
    what: str
    problem: str = ""
    command: str = ""


def examine(view: TableOptions, as_json: Json = False) -> None:
    """Show which attack libraries and extras can be used on this machine, and how to install the others."""
    from ..report.text.console import print_table

    view.check("json" if as_json else "")
    libraries, extras = examine_libraries(), examine_extras()
    devices, sandbox = _devices(), _sandbox()
    if as_json:
        document = {
            "libraries": [state._asdict() for state in libraries],
            "extras": [state._asdict() for state in extras],
            "devices": devices,
            "sandbox": sandbox,
        }
        print(json.dumps(document, indent=2))  # noqa: T201 - standard output is the product
        return
    usable = [state for state in libraries if not state.problem]
    with view.open() as console:
        rows = [(state.name, state.version or "-", state.what, state.problem or "usable") for state in libraries]
        print_table("", ("library", "version", "attacks", "state"), rows, console)
        there = [state.name for state in extras if not state.problem]
        lines = [
            f"extras: {', '.join(there) or 'none'}",
            f"devices: {', '.join(devices)}",
            f"models and attacks from files run in: {sandbox}",
            *(f"not installed: {state.name} ({state.what}): {state.command}" for state in extras if state.problem),
            *(f"{state.name}: {state.command}" for state in libraries if state.command),
            f"{len(usable)} of {len(libraries)} attack libraries are usable",
        ]
        for line in lines:
            console.print(line, highlight=False, markup=False)
    if not usable:
        raise typer.Exit(1)


def examine_libraries() -> list[Availability]:
    """Return the state of each attack library. A library can be used if all its attack classes can be imported."""
    from ..adapters.catalogue.lookup import LIBRARIES, load_class
    from ..errors import DavylampError, MissingLibrary

    states = []
    for library in LIBRARIES.values():
        problem = command = ""
        broken: list[str] = []
        for row in library.attacks:
            try:
                for norm in row.classes:
                    load_class(row, norm)
            except MissingLibrary as error:
                problem, _, command = str(error).partition("; run: ")
                break
            except (DavylampError, ImportError, AttributeError, OSError) as error:
                broken.append(row.name)
                problem = f"{len(broken)} attacks cannot be loaded: {type(error).__name__}: {error}"
        count = f"{len({row.attack for row in library.attacks})}"
        states.append(Availability(library.name, library.version, count, " ".join(problem.split())[:200], command))
    return states


def examine_extras() -> list[Availability]:
    """Return the state of each extra that is not a library. An extra can be used if its requirements are installed."""
    required = distribution("davylamp").requires or ()
    states = []
    for name, what in EXTRAS.items():
        of_extra = [line for line in required if re.search(rf"extra == ['\"]{name}['\"]", line) and _applies(line)]
        lacking = [each for each in (re.split(r"[\s<>=!~;\[]", line)[0] for line in of_extra) if not _is_there(each)]
        command = f'pip install "davylamp[{name}]"' if lacking else ""
        if name == "corruptions" and not _is_there("imagecorruptions-imaug"):
            lacking, command = [*lacking, "imagecorruptions-imaug"], f"{command} && {_CORRUPTIONS}".lstrip(" &")
        states.append(Availability(name, "", what, f"without {', '.join(lacking)}" if lacking else "", command))
    return states


def _applies(requirement: str) -> bool:
    """Whether a requirement applies to this platform and Python version. Other markers are ignored."""
    import sys

    if "sys_platform" in requirement:
        return sys.platform in requirement
    return 'python_version >= "3.11"' not in requirement or sys.version_info >= (3, 11)


def _is_there(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def _devices() -> list[str]:
    import torch

    names = ["cpu"]
    names += [f"cuda:{i} ({torch.cuda.get_device_name(i)})" for i in range(torch.cuda.device_count())]
    return [*names, "mps"] if torch.backends.mps.is_available() else names


def _sandbox() -> str:
    from ..adapters.models.sandbox.bubblewrap import find_sandbox

    sandbox = find_sandbox()
    return "a sandbox (bubblewrap)" if sandbox.program else f"a separate process without a sandbox: {sandbox.explained}"
