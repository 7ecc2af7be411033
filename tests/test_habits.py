"""The pages about the project itself: they name what is there, and agree with what is installed."""

import re
from importlib.metadata import metadata
from pathlib import Path

import pytest

import davylamp

ROOT = Path(__file__).parent.parent
yaml = pytest.importorskip("yaml")  # Ray and torchattacks' neighbours bring it


def read(name):
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_what_is_cited_is_this_version():
    cited = read("CITATION.cff")
    assert cited["cff-version"] == "1.2.0"
    assert (cited["version"], cited["license"]) == (davylamp.__version__, metadata("davylamp")["License-Expression"])
    assert {"message", "title", "authors"} <= set(cited)  # what the format asks for


def test_the_workflow_runs_what_ci_runs_on_the_oldest_python():
    workflow = read(".github/workflows/ci.yml")
    job = workflow["jobs"]["check"]
    assert [step["run"] for step in job["steps"] if "run" in step][-1] == ".ci/run"
    assert (ROOT / ".ci/run").is_file()
    oldest = metadata("davylamp")["Requires-Python"].removeprefix(">=")
    assert job["strategy"]["matrix"]["python"][0] == oldest


def test_before_a_commit_the_same_tools_run():
    hooks = read(".pre-commit-config.yaml")["repos"][0]["hooks"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for hook in hooks:
        tool = re.sub(r"^\.venv/bin/", "$(BIN)/", hook["entry"]).split(" --")[0]
        assert tool in makefile, hook["id"]


def test_every_page_that_contributing_names_exists():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([\w./-]+)\)", text)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
