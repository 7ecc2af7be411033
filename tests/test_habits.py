"""The pages about the project itself: they name what is there, and agree with what is installed."""

import json
import os
import re
import subprocess
import sys
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
    assert [step["run"] for step in job["steps"] if "run" in step][-1].endswith("'.ci/run' }}")
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


def test_a_release_runs_targets_of_the_makefile_and_attaches_what_was_tried():
    steps = [step["run"] for step in read(".github/workflows/release.yml")["jobs"]["release"]["steps"] if "run" in step]
    assert steps == [f"make {each}" for each in ("check-tag", "wheel", "try-wheel", "attach")]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = dict(re.findall(r"^([\w-]+):[^\n]*\n((?:\t[^\n]*\n)+)", makefile, re.MULTILINE))
    assert {step.split()[1] for step in steps} <= {*targets}
    assert "pip install --quiet dist/*.whl" in targets["try-wheel"]  # the wheel, with nothing but what it requires
    assert "davylamp quickstart" in targets["try-wheel"]
    assert "--no-deps" not in targets["try-wheel"]
    assert "--editable" not in targets["try-wheel"]
    assert "dist/*" in targets["attach"]


@pytest.mark.parametrize(("tag", "code"), [(f"v{davylamp.__version__}", 0), (davylamp.__version__, 2), ("v9.9.9", 2)])
def test_a_tag_of_another_version_is_no_release(tag, code):
    (line,) = re.findall(r"^check-tag:.*\n\t(.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    shown = line.replace("$(BIN)/python", sys.executable).replace("$$", "$")
    done = subprocess.run(["bash", "-c", shown], env={**os.environ, "TAG": tag}, cwd=ROOT.anchor, check=False)
    assert bool(done.returncode) == bool(code)


def test_zenodo_is_told_what_the_citation_says():
    cited, deposit = read("CITATION.cff"), json.loads((ROOT / ".zenodo.json").read_text(encoding="utf-8"))
    assert [each["name"] for each in deposit["creators"]] == [each["name"] for each in cited["authors"]]
    for name in ("title", "license", "keywords"):
        assert deposit[name] == cited[name], name
    assert deposit["description"] == cited["abstract"]
    assert deposit["upload_type"] == "software"
    assert "version" not in deposit  # that of the tag


def test_ci_builds_the_site_and_the_wheel():
    steps = (ROOT / ".ci/run").read_text(encoding="utf-8").splitlines()
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert {"make docs", "make wheel", "make test"} <= set(steps)
    assert "sphinx -b html -W --keep-going" in makefile
    assert "twine check --strict" in makefile
