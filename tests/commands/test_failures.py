"""How a command ends: one line and an exit code, whatever happens, also to its output."""

import os
import subprocess
import sys

import pytest

from davylamp.commands import attacks
from davylamp.commands.errors import refuse_empty
from davylamp.errors import InvalidInput


def shell(script: str) -> subprocess.CompletedProcess:
    """Run a shell script in which `davylamp` is this Python's; its exit code is that of davylamp."""
    command = f"set -o pipefail; davylamp() {{ '{sys.executable}' -m davylamp.cli \"$@\"; }}; {script}"
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")  # noqa: PTH110
@pytest.mark.parametrize("arguments", ["reproduce", "reproduce --json"])
def test_a_full_disk_behind_the_output_is_one_line(arguments):
    done = shell(f"davylamp {arguments} > /dev/full")
    assert done.returncode == 1
    assert done.stderr == "davylamp: could not write the output (No space left on device)\n"


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["at the end", "in the midst"])
def test_a_reader_that_goes_away_is_quiet(unbuffered):
    # The reader has gone before Python has started.
    done = shell(f"export PYTHONUNBUFFERED={unbuffered}; davylamp reproduce --json | :")
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 1)


def test_output_in_ascii_escapes_a_letter_and_loses_no_result(tmp_path):
    script = (
        "import sys\n"
        "from davylamp import cli\n"
        "from davylamp.commands.errors import open_output\n"
        "from davylamp.report.text.console import print_table\n"
        "open_output(); print_table('', ('model',), [('é',)])\n"
        "sys.argv = ['davylamp', 'reproduce', 'é']; cli.main()"
    )
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 1
    assert "\\xe9" in done.stdout
    assert done.stderr.startswith("davylamp: unknown reproduction '\\xe9'")


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["evaluate", "--models", ""], "--models"),
        (["evaluate", "--models="], "--models"),
        (["evaluate", "-o", " "], "-o"),
        (["serve", "results", "--host", ""], "--host"),
        (["attacks", ""], "argument 2"),
    ],
)
def test_an_empty_text_is_refused_and_named(arguments, option, run, tmp_path):
    with pytest.raises(InvalidInput, match=f"expected a value for {option}, got an empty text"):
        refuse_empty(arguments)
    code, out, err = run(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (KeyError("CA"), 70, "KeyError: 'CA'; this is a bug; run with DAVYLAMP_DEBUG=1"),
        (RuntimeError("two\nlines \x1b[31m"), 70, "RuntimeError: two lines \\x1b[31m; this is a bug"),
        (MemoryError(), 1, "out of memory; use fewer images"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), 1, "out of memory"),
        (InvalidInput("expected\nthis\x1b]0;x\x07"), 1, "davylamp: expected this\\x1b]0;x\\x07"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_no_error_is_a_traceback(error, code, words, run, monkeypatch):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(attacks, "choose_rows", fail)
    monkeypatch.delenv("DAVYLAMP_DEBUG", raising=False)
    returned, out, err = run("attacks", "pgd")
    assert (returned, out) == (code, "")
    assert words in err
    assert err.count("\n") == bool(words)
    monkeypatch.setenv("DAVYLAMP_DEBUG", "1")
    assert ("Traceback" in run("attacks", "pgd")[2]) == bool(words)


@pytest.mark.parametrize(
    "arguments",
    [
        ("table", "~nosuchuser/x"),
        ("report", "~nosuchuser/x"),
        ("evaluate", "~nosuchuser/x.toml"),
        ("table", "x" * 5000),
    ],
)
def test_a_path_that_cannot_be_is_one_line(arguments, run):
    code, out, err = run(*arguments)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("davylamp: expected a path, got ")
