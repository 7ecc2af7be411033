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


def test_the_forms_for_issues_ask_something():
    forms = [path for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config"]
    assert len(forms) == 3
    for path in forms:
        form = read(path.relative_to(ROOT))
        assert {"name", "description", "body"} <= set(form), path.name
        named = [part["id"] for part in form["body"]]
        assert len(set(named)) == len(named)
        assert all(part["type"] in ("textarea", "input") and part["attributes"]["label"] for part in form["body"])


def test_the_version_is_said_once():
    assert read("CITATION.cff")["version"] == davylamp.__version__
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert 'version = { attr = "davylamp.__version__" }' in text
    assert not re.search(r'^version = "', text, re.MULTILINE)


def test_ci_builds_the_site_and_the_wheel():
    steps = (ROOT / ".ci/run").read_text(encoding="utf-8").splitlines()
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert {"make docs", "make wheel", "make test"} <= set(steps)
    assert "sphinx -b html -W --keep-going" in makefile
    assert "twine check --strict" in makefile
