"""Test folder with everything that a command reads, and a function that runs a command in it and checks the output."""

import io
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import unicodedata
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
from PIL import Image

from davylamp import cli
from davylamp.commands import errors
from davylamp.tools.speed.synthetic_results import write_results

LIMIT = 30  # seconds after which a command counts as hanging
MEMORY = 6 << 30  # bytes of address space beyond what is there: /dev/zero is endless
NET = """
import torch
from torch import nn


def good():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 3))


def narrow():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(48, 3))


def pair():
    return lambda images: (images.flatten(1)[:, :3], 0)


def leaves():
    raise SystemExit


number = 3
"""
METRICS = "model,CA,MR,AIAC\na,0.9,0.5,0.2\nb,0.8,0.6,0.3\nc,0.7,0.9,0.1\n"


class Answer(NamedTuple):
    """Output and exit of a command. `crash` is the traceback of an exception other than SystemExit."""

    code: int
    out: str
    err: str
    crash: str


class Hanging(BaseException):
    """The command was still running after `LIMIT` seconds."""


def build_world(folder: Path) -> Path:
    """Write a model file, images in three forms, a TOML file, a table of metrics and two results folders."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "net.py").write_text(NET, encoding="utf-8")
    (folder / "metrics.csv").write_text(METRICS, encoding="utf-8")
    images = np.random.default_rng(0).integers(0, 256, (4, 3, 8, 8), dtype=np.uint8)
    labels = np.array([0, 1, 2, 0])
    np.savez(folder / "images.npz", inputs=images, labels=labels)
    for number, image in enumerate(images):
        path = folder / "folder" / f"class{labels[number]}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.transpose(1, 2, 0)).save(path)
        (folder / "listed").mkdir(exist_ok=True)
        Image.fromarray(image.transpose(1, 2, 0)).save(folder / "listed" / f"{number}.png")
    (folder / "listed" / "labels.csv").write_text("file,label\n0.png,0\n1.png,1\n", encoding="utf-8")
    with in_folder(folder):
        write_results(
            "many", models=("a", "b", "c"), attacks=("foolbox:fgsm", "art:fgsm", "art:cw"), images=6, classes=4
        )
        small = ("--models", "net.py:good", "--data", "npz:images.npz", "--attacks", "foolbox:fgsm", "--norm", "linf")
        small += ("--attacks", "torchattacks:pgd", "--epsilon", "8/255", "--epsilon", "0.1", "--param", "max_queries=9")
        toml = call(["evaluate", *small, "--print-config"])
        run = call(["evaluate", *small, "--out", "results", "--keep-images"])
        if toml.code or run.code:
            raise RuntimeError(toml.err + run.err + toml.crash + run.crash)
        Path("run.toml").write_text(toml.out, encoding="utf-8")
    return folder


@contextmanager
def in_folder(folder: Path) -> Iterator[Path]:
    """Change to a folder, and change back on exit."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield folder
    finally:
        os.chdir(before)


@contextmanager
def copy_of(world: Path) -> Iterator[Path]:
    """Work in a copy of the test folder, which is deleted on exit."""
    with tempfile.TemporaryDirectory(prefix="davylamp-fuzz-", dir=world.parent) as place:  # rooms see one folder
        copy = Path(place, "world")
        shutil.copytree(world, copy)
        with in_folder(copy):
            yield copy


def call(arguments: Sequence[str]) -> Answer:
    """Run `davylamp ARGUMENTS` in this process. Its output must be text that any terminal accepts."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace")
    code, crash, bugs = 0, "", [""]

    def explain(error: BaseException) -> int:
        code = errors.explain(error)
        bugs.append("".join(traceback.format_exception(error)) if code == errors.BUG else "")
        return code

    with ExitStack() as stack:
        stack.enter_context(patch.object(sys, "argv", ["davylamp", *arguments]))
        stack.enter_context(patch.object(cli, "explain", explain))
        stack.enter_context(redirect_stdout(out))
        stack.enter_context(redirect_stderr(err))
        stack.enter_context(warnings.catch_warnings())
        stack.enter_context(_bounds())
        try:
            cli.main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        except BaseException:
            code, crash = errors.BUG, traceback.format_exc()
    texts = []
    for stream in (out, err):
        try:
            stream.flush()
        except (OSError, ValueError):
            crash = crash or traceback.format_exc()
        texts.append(stream.buffer.getvalue().decode("utf-8", "replace") if not stream.closed else "")
    return Answer(code, texts[0], texts[1], crash or bugs[-1])


@contextmanager
def _bounds() -> Iterator[None]:
    """Limit time and memory. The timeout is raised again every second, in case a command catches everything."""

    def stop(*_: object) -> None:
        raise Hanging(f"still at work after {LIMIT} s")

    before, soft = signal.signal(signal.SIGALRM, stop), resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, soft[1]))
    signal.setitimer(signal.ITIMER_REAL, LIMIT, 1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, soft)


def faults(arguments: Sequence[str], answer: Answer) -> list[str]:
    """Return the faults of a command's output, one message each. Empty if it behaved correctly.

    A correct command ends by itself and raises only SystemExit. Its exit code is 0, or 2 for --strict, without an error
    message; or 1 with exactly one line that begins with "davylamp:"; or 2 with the option parser's "Error". JSON output
    is valid, and no control characters are printed.
    """
    if answer.crash:
        return [signature(answer.crash)]
    broken = []
    complaints = [line for line in answer.err.splitlines() if line.startswith("davylamp:")]
    if answer.code == 0 and complaints:
        broken.append(f"exit code 0 with a complaint: {complaints[0]}")
    if answer.code == 1 and len(complaints) != 1:
        broken.append(f"exit code 1 with {len(complaints)} complaints: {answer.err[-200:]!r}")
    if answer.code == 2 and "Error" not in answer.err and "--strict" not in arguments:
        broken.append(f"exit code 2 without a reason: {answer.err[-200:]!r}")
    if answer.code not in (0, 1, 2):
        broken.append(f"exit code {answer.code}")
    broken += [f"{word} is printed" for word in ("Traceback (most", "Warning:") if word in answer.out + answer.err]
    if "--json" in arguments and answer.out.strip() and "--help" not in arguments:
        try:
            json.loads(answer.out, parse_constant=_refuse)
        except ValueError as error:
            broken.append(f"no JSON: {error}")
    controls = {char for char in answer.out + answer.err if unicodedata.category(char) == "Cc"} - set("\n\t\r")
    if controls:
        broken.append(f"control characters are printed: {sorted(controls)!r}")
    return broken


def signature(crash: str) -> str:
    """Return the last line of a traceback and the innermost location in davylamp, which is equal for equal defects."""
    lines = [line for line in crash.strip().splitlines() if not line.startswith("davylamp:")]
    places = [line.strip() for line in lines if "davylamp" in line and line.strip().startswith("File")]
    where = places[-1].rpartition("davylamp/")[2] if places else ""
    return f"{(lines or [crash])[-1][:150]} at {where}"


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def describe(arguments: Sequence[str], answer: Answer, seconds: float) -> str:
    """Describe a try in one line, for a log."""
    return f"{time.strftime('%H:%M:%S')} code {answer.code} in {seconds:.1f} s: {' '.join(map(repr, arguments))}"
