"""Every command on a terminal of 80 and of 120 columns: no word is broken, no line is longer; a pipe gets no escape.

The commands are those of the app: one that is new has to say here how it is run, or why only its help is shown.
"""

import fcntl
import os
import pty
import re
import struct
import sys
import termios

import numpy as np
import pytest
import torch

from davylamp import cli

WIDTHS = (80, 120)
NET = """
import torch
from torch import nn

def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 5)).eval()

def a_model_with_quite_a_long_name():
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 5)).eval()

def of_larger_images():
    torch.manual_seed(2)
    return nn.Sequential(nn.Flatten(), nn.Linear(3072, 5)).eval()
"""
ASK = [
    "--model",
    "net.py:make",
    "--data",
    "npz:d.npz",
    "--limit",
    "6",
    "--isolate",
    "no",
    "--library",
    "foolbox,torchattacks",
]
# Of each command: lines of arguments; FOLDER is a results folder of two models and four attacks.
RUNS = {
    "attacks": ["-v", "pgd -v", "--library foolbox --wide"],
    "metrics": ["-v", "AMD"],
    "defences": ["", "jpeg"],
    "doctor": [""],
    "corruptions": [""],
    "detectors": ["", "feature-squeezing"],
    "corruptions run": [
        "net.py:of_larger_images --data npz:large.npz --corruption brightness --severity 1,5 --isolate no -o C"
    ],
    "compare": [f"pgd {' '.join(ASK)} --epsilon 16/255 --steps 3"],
    "saturation": [f"fgsm {' '.join(ASK)} --norm linf"],
    "certify": [f"net.py:make+smoothing:sigma=0.25 {' '.join(ASK[2:8])} --n 20 --n0 5"],
    "status": ["FOLDER", "FOLDER --wide"],
    "table": ["FOLDER", "FOLDER --by models", "FOLDER --wide --metric MR,AMD,QNC_F,QNC_B"],
    "curves": ["FOLDER", "FOLDER --x-axis queries"],
    "check": ["FOLDER"],
    "measure": ["FOLDER --metric effect"],
    "gate": ["FOLDER --require RA>=0 --require CA>=0"],
    "evidence": ["FOLDER --model net.py:make", "FOLDER --model net.py:make --wide"],
    "test-attack": ["foolbox:fgsm --quick", "foolbox:fgsm --misbehaving --plant nan"],
    "rank": ["FOLDER --method mean", "FOLDER --subjects implementations --method borda --wide"],
    "reproduce": [""],
    "cite": ["pgd --keys"],
    "robust-accuracy": [f"net.py:make {' '.join(ASK[2:8])} --epsilon 32/255"],
    "evaluate": [f"{' '.join(['--models', *ASK[1:]])} --attacks foolbox:fgsm --epsilon 16/255 -o E"],
}
HELP_ONLY = {
    "challenge": "an attack by every part takes a minute; its tables are print_table's",
    "harden": "it trains; it prints a few lines",
    "figure": "it writes files; it prints lines",
    "merge": "it needs a second folder; it prints lines",
    "import": "it needs another program's file; it prints a line",
    "export": "it prints a line",
    "verify": "it needs a verdict: tests/engine/sharing/test_verdict.py",
    "fit": "it trains; it prints two lines",
    "standing": "it needs AutoAttack's results on a published test set: tests/engine/exchange",
    "detect": "it needs a trained detector; tests/commands/test_detectors.py reads its table",
    "report": "it prints a line",
    "serve": "it does not end",
    "serve-model": "it does not end",
    **dict.fromkeys([name for name in cli.COMMANDS if name.startswith("server ")], "it needs a server: tests/server"),
    "quickstart": "half a minute; tests/report/test_quickstart.py reads it",
}
RESUMED = {"evaluate", "corruptions run"}  # which say another thing when all is there
TIMED = {"compare", "evaluate"}  # whose seconds differ from run to run, and which announce their runs on a terminal
ANNOUNCED = {"by", "runs"}
NUMBER = re.compile(r"[-+]?[\d.]+(e-?\d+)?")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with two models in a file, images, and a results folder."""
    folder = tmp_path_factory.mktemp("terminal")
    (folder / "net.py").write_text(NET)
    inputs = torch.rand(12, 3, 8, 8, generator=torch.Generator().manual_seed(3))
    with torch.random.fork_rng():
        scope: dict = {}
        exec(NET, scope)
        large = torch.rand(6, 3, 32, 32, generator=torch.Generator().manual_seed(4))
        labels = scope["of_larger_images"]()(large).argmax(1)
        np.savez(folder / "large.npz", inputs=large.numpy(), labels=labels.numpy())
        np.savez(folder / "d.npz", inputs=inputs.numpy(), labels=scope["make"]()(inputs).argmax(1).numpy())
    models = "net.py:make,net.py:a_model_with_quite_a_long_name"
    attacks = "foolbox:pgd,torchattacks:fgsm,foolbox:fgsm,foolbox:deepfool"
    line = f"evaluate --models {models} --data npz:d.npz --attacks {attacks} --param steps=3 --isolate no -o results"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["davylamp", *line.split(), "--transfer", "full"])
        with pytest.raises(SystemExit) as stop:
            cli.main()
    assert not stop.value.code
    return folder


@pytest.fixture
def shown(place, capsys, monkeypatch):
    """Run a command in this process as on a terminal of some columns, or in a pipe (None)."""
    monkeypatch.chdir(place)

    def run(words, columns):
        monkeypatch.setenv("TERM", "xterm")
        for name, value in {"TTY_COMPATIBLE": "1", "TTY_INTERACTIVE": "0"}.items():
            monkeypatch.setenv(name, value) if columns else monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("COLUMNS", str(columns)) if columns else monkeypatch.delenv("COLUMNS", raising=False)
        monkeypatch.setattr(sys, "argv", ["davylamp", *words])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        captured = capsys.readouterr()
        return stop.value.code or 0, captured.out + captured.err

    return run


def plain(text):
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def words_of(text):
    """The words of an output, without what frames them."""
    text = re.sub("[─━╭╮╰╯│┃╸╺]", " ", plain(text))
    return {word.strip(",;:.") for word in text.split()} - {""}


def problems(on_terminal, in_pipe, columns, *, timed=False):
    """Lines that are too long, and words that the pipe does not know."""
    lines = [line for line in plain(on_terminal).splitlines() if len(line) > columns]
    hint = re.compile(
        r"not\s+shown:.*?\((?:--wide,\s+--columns|-v)\)$|\.\.\.\s+\d+\s+more\s+\w+", re.DOTALL | re.MULTILINE
    )
    hint_words = {word for match in hint.findall(plain(on_terminal)) for word in words_of(match)}
    broken = words_of(on_terminal) - words_of(in_pipe) - hint_words
    return lines + sorted(word for word in broken if not (timed and (NUMBER.fullmatch(word) or word in ANNOUNCED)))


def test_every_command_of_the_app_is_here():
    names = {command.name for command in cli.app.registered_commands}
    assert names == set(RUNS) | set(HELP_ONLY)
    assert not set(RUNS) & set(HELP_ONLY)


@pytest.mark.parametrize("name", sorted({command.name for command in cli.app.registered_commands}))
def test_the_help(shown, name):
    _, whole = shown([name, "--help"], 400)
    for columns in WIDTHS:
        code, text = shown([name, "--help"], columns)
        assert code == 0
        assert problems(text, whole, columns) == []


@pytest.mark.parametrize(("name", "line"), [(name, line) for name, lines in RUNS.items() for line in lines])
def test_the_output(shown, name, line):
    words = [name, *line.replace("FOLDER", "results").split()]
    if name in RESUMED:
        shown(words, None)
    _, in_pipe = shown(words, None)
    assert "\x1b" not in in_pipe
    for columns in WIDTHS:
        code, text = shown(words, columns)
        assert code == 0, text
        assert problems(text, in_pipe, columns, timed=name in TIMED) == []


def test_the_check_can_fail():
    assert problems("foolbox:p\ngd 0.63\n9", "foolbox:pgd 0.639", 80) == ["0.63", "9", "foolbox:p", "gd"]
    assert problems("a" * 81, "a" * 81, 80) == ["a" * 81]


@pytest.mark.parametrize("words", [["--help"], ["attacks"]])
def test_on_a_real_terminal(words):
    """The same from a process of its own at a pseudo-terminal of 80 columns."""
    child, terminal = pty.fork()
    if not child:
        os.environ.pop("COLUMNS", None)
        os.environ["TERM"] = "xterm"
        os.execv(sys.executable, [sys.executable, "-m", "davylamp.cli", *words])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 80, 0, 0))
    text = b""
    while True:
        try:
            piece = os.read(terminal, 1 << 16)
        except OSError:  # the other end is closed
            break
        text += piece
    assert os.waitpid(child, 0)[1] == 0
    lines = plain(text.decode()).splitlines()
    assert len(lines) > 20
    assert max(map(len, lines)) <= 80
    assert b"\x1b[1m" in text
