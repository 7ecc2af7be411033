"""What the tutorials claim is what their cells printed when the site was built; the notebooks run elsewhere, too.

Tests that take more than a few seconds, or need the site, are marked and run with `make docs`.
"""

import json
import re
import shlex
from pathlib import Path

import pytest
import torch

import davylamp

DOCS = Path(__file__).parent.parent / "docs"
BLOCK = re.compile(r"^(?:`(?P<file>[^`\n]+)`\n\n)?```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
ROBUST_ACCURACY = r"^(\w+) +linf .*0\.\d+ \[(0\.\d+), (0\.\d+)\]$"
HERE = ("evaluate", "compare", "challenge")  # in this process: rooms of their own have tests of theirs


@pytest.fixture
def small(tmp_path, monkeypatch):
    """An empty folder, where what a page imports is found."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def perform(page: Path, run) -> tuple[dict, dict[str, str]]:
    """Write its files, run its Python in one namespace and its commands in this process."""
    names, printed = {}, {}
    for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
        if block["file"]:
            Path(block["file"]).write_text(block["text"], encoding="utf-8")
            if block["file"].startswith("make_"):
                exec(block["text"], {})
        elif block["kind"] == "python":
            exec(block["text"], names)
        elif block["kind"] == "console":
            for line in re.findall(r"^\$ davylamp (.*)$", block["text"], re.MULTILINE):
                words = shlex.split(line)
                code, out, errors = run(*words, *(("--isolate", "no") if words[0] in HERE else ()))
                assert code == 0, (line, errors)
                printed[line] = out
    return names, printed


def page_of(name: str) -> Path:
    return DOCS / "tutorials" / f"{name}.md"


def outputs_of(name: str) -> list[str]:
    """What the cells of a page printed when the site was built, set-up and imports left out; pictures by their type."""
    built = DOCS / "_build" / "jupyter_execute" / "tutorials" / f"{name}.ipynb"
    assert built.exists(), "`make docs` builds the site, which executes the tutorials, before these tests"
    executed, page = (_code_cells(text) for text in (built.read_text(encoding="utf-8"), notebook_of(name)))
    assert [cell["source"] for cell in executed] == [cell["source"] for cell in page], "built before the page changed"
    shown = [[_shown(output) for output in cell["outputs"]] for cell in executed]
    assert max(len(text.splitlines()) for texts in shown for text in texts) <= 40
    return ["".join(texts) for texts in shown if texts]


def notebook_of(name: str) -> str:
    pytest.importorskip("jupytext")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(DOCS / "generate"))
        from notebooks import convert
    return convert(page_of(name).read_text(encoding="utf-8"))


def _code_cells(notebook: str) -> list[dict]:
    cells = [cell for cell in json.loads(notebook)["cells"] if cell["cell_type"] == "code"]
    return [{**cell, "source": "".join(cell["source"]).strip()} for cell in cells]


def _shown(output: dict) -> str:
    if output["output_type"] == "stream":
        return "".join(output["text"])
    return "".join("".join(text) if kind == "text/plain" else f"<{kind}>" for kind, text in output["data"].items())


@pytest.mark.tutorial
def test_the_first_evaluation():
    _, counts, picture, table, report = outputs_of("first-evaluation")
    assert counts.splitlines() == ["attacked 59", "success 44", "robust 15", "invalid 0"]
    assert "<image/png>" in picture
    intervals = {model: (float(low), float(high)) for model, low, high in re.findall(ROBUST_ACCURACY, table, re.M)}
    assert intervals["plain"][1] < intervals["robust"][0]
    assert "<text/html>" in report


@pytest.mark.tutorial
def test_comparing_two_libraries():
    table, defaults, matched, _, findings = outputs_of("compare-two-libraries")
    assert re.search(r"foolbox:pgd .* 41\.0\n.*torchattacks:pgd .* 10\.0", table)
    assert "weaker: torchattacks than foolbox" in defaults
    assert "identical: foolbox, torchattacks" in matched
    assert "black-on-failure" in findings


@pytest.mark.tutorial
def test_my_own_model():
    shown = outputs_of("own-model")
    assert "results: 4 runs done, 0 failed" in shown[2]
    assert "<image/png>" in shown[5]
    assert "results: 0 fail, 0 warn" in shown[6]


@pytest.mark.tutorial
def test_a_defence_that_is_not_real():
    """The verdicts that the page names, in its order."""
    shown = [" ".join(text.split()) for text in outputs_of("is-this-defence-real")]
    assert "robust accuracy 0.00 [0.00, 1.00]" in shown[1]
    assert "fail Unavailable gradients" in shown[2]
    verdicts = ("gradient masking: its gradients are zero", "linf 0.1: falls to", "linf 0.1: holds against these")
    assert all(verdict in text for verdict, text in zip(verdicts, shown[3:], strict=True))


@pytest.mark.tutorial
def test_ranking():
    _, models, figure, attacks = outputs_of("rank")
    groups = dict(re.findall(r"^ +\d +(demo:\S+) .* (\w)$", models, re.M))
    assert groups.pop("demo:digits-cnn-robust") == groups.pop("demo:digits-cnn-robust+median") == "a"
    assert set(groups.values()) == {"b"}
    assert "<image/png>" in figure
    assert "attacks of ranked" in attacks


@pytest.mark.tutorial
def test_writing_an_attack():
    """It is the MI-FGSM of one of the libraries."""
    _, compared, contract, _ = outputs_of("write-an-attack")
    assert "identical: torchattacks:mi-fgsm, my_attack.py:momentum_steps" in compared
    assert ": 0 failed" in contract


@pytest.mark.tutorial
def test_reproducing(small, run):
    _, printed = perform(DOCS / "reproduce.md", run)
    said = re.findall(r"^Spearman (0\.\d+)", printed["reproduce canary-table9"], re.MULTILINE)
    readme = " ".join((DOCS.parent / "README.md").read_text(encoding="utf-8").split())
    assert "Spearman {} (white-box) and {} (black-box)".format(*said) in readme
    shown = (DOCS / "reproduce.md").read_text(encoding="utf-8")
    assert printed["reproduce canary-table9"].partition("CANARY Table 9, black-box")[0] in shown


def test_metrics_alone(small, run):
    names, _ = perform(DOCS / "metrics-alone.md", run)
    assert 0 <= names["summarise"](names["values"]).mean <= 1


@pytest.mark.filterwarnings("ignore:Please import:DeprecationWarning")  # by ART, where it is imported first
def test_coming_from_another_library(monkeypatch):
    """Both sides of each pair give the same images."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)  # Foolbox would move the model
    text = (DOCS / "coming-from.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## From (\w+)\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    model, data = davylamp.load_model("demo:mnist-lenet5").model, davylamp.load_data("demo:mnist", limit=5)
    run_pairs = 0
    for library, section in sections:
        codes = re.findall(r"^```python\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
        if not codes:
            assert library == "RobustBench"
            continue
        names = {"model": model, "images": data.inputs.clone(), "labels": data.labels}
        for code in codes:
            exec(code, names)
        assert names["result"].success is not None
        assert torch.equal(names["ours"], names["theirs"]), library
        run_pairs += 1
    assert run_pairs == 3


def test_every_tutorial_is_executed_tested_and_listed():
    pages = {path.stem: path.read_text(encoding="utf-8") for path in (DOCS / "tutorials").glob("*.md")}
    index, text = pages.pop("index"), Path(__file__).read_text(encoding="utf-8")
    executed = {name for name, page in pages.items() if "file_format: mystnb" in page}
    assert pages.keys() == executed
    assert {name for name in executed if f'outputs_of("{name}")' in text and f"{name}.ipynb" in pages[name]} == executed
    assert all(f"({name}.md)" in index and f"\n{name}\n" in index for name in pages)


def test_a_notebook_opens_elsewhere():
    """It begins with what installs davylamp, and has neither a path nor a link into this repository."""
    for page in (DOCS / "tutorials").glob("*.md"):
        if "file_format: mystnb" in page.read_text(encoding="utf-8"):
            notebook = notebook_of(page.stem)
            assert "%pip install" in _code_cells(notebook)[0]["source"]
            assert not re.search(r"\.md\b|\.\./|\{doc\}|\{download\}|As a notebook", notebook), page.stem


@pytest.mark.tutorial
def test_a_notebook_runs(small, monkeypatch):
    """The notebook that the site offers, in a kernel of its own, as Jupyter runs it."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as in the build
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    notebook = nbformat.reads(notebook_of("compare-two-libraries"), as_version=4)
    nbformat.validate(notebook)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(small)}}).execute()
    assert all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code")
