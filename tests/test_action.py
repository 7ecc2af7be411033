"""The GitHub action and its example workflow: their shell lines run here, with GitHub's expressions filled in."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import yaml

ROOT = Path(__file__).parent.parent
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
WORKFLOW = yaml.safe_load((ROOT / "examples" / "robustness-gate.yml").read_text(encoding="utf-8"))
STEPS = WORKFLOW["jobs"]["gate"]["steps"]


# A process that has imported what commands need, and forks for each of them: importing takes seconds.
SERVER = """
import json, os, socket, sys
import foolbox
import torchvision
from davylamp import cli
from davylamp.api import evaluation, gating

listener = socket.socket(socket.AF_UNIX)
listener.bind("davylamp.socket")
listener.listen()
print("ready", flush=True)
while True:
    wire = listener.accept()[0]
    if os.fork():
        wire.close()
        continue
    given, streams, _, _ = socket.recv_fds(wire, 1 << 20, 3)
    if not (child := os.fork()):
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))
        folder, environment, words = json.loads(given)
        os.chdir(folder)
        os.environ.update(environment)
        sys.argv = ["davylamp", *words]
        cli.main()
    wire.sendall(bytes([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]))
    os._exit(0)
"""
COMMAND = """#!{python} -IS
import json, os, socket, sys
wire = socket.socket(socket.AF_UNIX)
wire.connect({socket!r})
socket.send_fds(wire, [json.dumps([os.getcwd(), dict(os.environ), sys.argv[1:]]).encode()], [0, 1, 2])
sys.exit(wire.recv(1)[0])
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder in which the workflow's evaluation ran, with `davylamp` on the path."""
    folder = tmp_path_factory.mktemp("action")
    program = folder / "bin" / "davylamp"
    program.parent.mkdir()
    program.write_text(COMMAND.format(python=sys.executable, socket=str(folder / "davylamp.socket")))
    program.chmod(0o755)
    (evaluation,) = [step["run"] for step in STEPS if "evaluate" in step.get("run", "")]
    server = [sys.executable, "-c", SERVER]
    with subprocess.Popen(server, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd=folder) as process:
        try:
            assert process.stdout.readline() == b"ready\n"
            assert shell(folder, evaluation.replace("--limit 100", "--limit 60")) == (0, "")
            yield folder
        finally:
            process.kill()


def shell(folder, script, environment=None):
    """Exit code of a step as GitHub runs it, and its errors."""
    path = {"PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    command = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", script]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **path, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr if done.returncode else ""


def act(folder, **given):
    """Run the action's own step: its exit code, outputs and summary."""
    inputs = {name: str(about.get("default", "")) for name, about in ACTION["inputs"].items()} | given
    *_, step = ACTION["runs"]["steps"]
    files = {name: folder / name for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    for file in (*files.values(), folder / "davylamp-gate.xml", folder / "davylamp-gate.sarif"):
        file.unlink(missing_ok=True)
    environment = {
        name: re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda match: inputs[match[1]], text)
        for name, text in step["env"].items()
    }
    code, _ = shell(folder, step["run"], {**environment, **{name: str(file) for name, file in files.items()}})
    outputs = dict(line.split("=", 1) for line in files["GITHUB_OUTPUT"].read_text().splitlines())
    return code, outputs, files["GITHUB_STEP_SUMMARY"].read_text()


def test_the_workflow_passes(place):
    (step,) = [step for step in STEPS if step.get("id") == "gate"]
    assert step["uses"] == "./"
    code, outputs, summary = act(place, **step["with"])
    assert (code, outputs["verdict"]) == (0, "pass")
    assert summary.startswith("### davylamp gate: pass: 2 pass")
    assert ET.parse(place / outputs["junit"]).getroot().get("tests") == "2"
    assert (place / outputs["sarif"]).stat().st_size
    assert outputs.keys() == {name for name, each in ACTION["outputs"].items() if "steps.gate.outputs" in each["value"]}


def test_a_failure_and_too_few_images_end_the_job(place):
    code, outputs, _ = act(place, require="RA >= 0.99\n", undecided="pass")
    assert (code, outputs["verdict"]) == (1, "fail")
    code, outputs, summary = act(place, require="RA >= 0.8")
    assert (code, outputs["verdict"]) == (3, "too few images")
    assert "more image" in summary
    shutil.copytree(place / "results", place / "before")
    assert act(place, require="RA >= 0.8", undecided="pass", against="before", margin="0.1")[0] == 0


def test_an_input_is_no_shell_code(place):
    code, outputs, _ = act(place, require="RA >= 0.5; touch broken", results="results$(touch broken)")
    assert (code, outputs["verdict"]) == (2, "error")
    assert not (place / "broken").exists()


def test_every_input_and_permission_is_used():
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    assert all(f"inputs.{name}" in text for name in ACTION["inputs"])
    assert not re.search(r"run: .*\$\{\{", text)
    (step,) = [step for step in STEPS if step.get("id") == "gate"]
    assert set(step["with"]) <= set(ACTION["inputs"])
