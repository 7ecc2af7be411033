"""The tutorials run from top to bottom as they stand, and what they claim holds; so do their notebooks.

Those that take more than a few seconds are marked and run with `make docs`.
"""

import re
import shlex
import sys
from pathlib import Path

import pytest
import torch

import davylamp

DOCS = Path(__file__).parent.parent / "docs"
BLOCK = re.compile(r"^(?:`(?P<file>[^`\n]+)`\n\n)?```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
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


@pytest.mark.tutorial
def test_ten_minutes(small, run):
    names, printed = perform(page_of("ten-minutes"), run)
    assert {pair.verdict for pair in names["comparison"].pairs} == {"identical"}
    frame = names["evaluation"].to_frame()
    assert set(frame["model"]) == {"plain", "robust"}
    assert "plain" in printed["table digits --by models"]
    assert (small / "digits.html").stat().st_size > 50_000


@pytest.mark.tutorial
def test_comparing_two_libraries(small, run):
    names, _ = perform(page_of("compare-two-libraries"), run)
    passes = names["defaults"].to_frame().set_index("implementation")["forwards_median"]
    assert (passes["foolbox:pgd"], passes["torchattacks:pgd"]) == (41, 10)
    assert {pair.verdict for pair in names["matched"].pairs} == {"identical"}
    assert all(names["carlini"].to_frame()["findings"].astype(bool))


@pytest.mark.tutorial
def test_my_model(small, run):
    _, printed = perform(page_of("my-model"), run)
    assert (small / "report.html").exists()
    (table,) = [out for line, out in printed.items() if line.startswith("table")]
    assert "foolbox:pgd" in table


@pytest.mark.tutorial
def test_an_honest_evaluation(small, run):
    _, printed = perform(page_of("honest-defence"), run)
    (verdict,) = [out for line, out in printed.items() if line.startswith("challenge")]
    assert "falls" in verdict
    words = re.findall(r"`(falls|masks|holds|unknown)`:", page_of("honest-defence").read_text(encoding="utf-8"))
    assert words == ["falls", "masks", "holds", "unknown"]


@pytest.mark.tutorial
def test_ranking(small, run):
    names, printed = perform(page_of("rank"), run)
    assert names["ranking"].to_frame()["subject"][0] == "demo:mnist-lenet5-robust"
    assert "attacks of ranked" in printed["rank ranked --subjects attacks"]


@pytest.mark.tutorial
def test_reproducing(small, run):
    _, printed = perform(DOCS / "reproduce.md", run)
    said = re.findall(r"^Spearman (0\.\d+)", printed["reproduce canary-table9"], re.MULTILINE)
    readme = " ".join((DOCS.parent / "README.md").read_text(encoding="utf-8").split())
    assert "Spearman {} (white-box) and {} (black-box)".format(*said) in readme
    shown = (DOCS / "reproduce.md").read_text(encoding="utf-8")
    assert printed["reproduce canary-table9"].partition("CANARY Table 9, black-box")[0] in shown


def test_writing_an_attack(small, run):
    """With the steps of the page it is the MI-FGSM of the libraries, to rounding."""
    _, printed = perform(page_of("write-an-attack"), run)
    from my_attack import momentum_steps

    model, data = davylamp.load_model("demo:mnist-lenet5"), davylamp.load_data("demo:mnist", limit=10)
    case = (model, data.inputs, data.labels)
    theirs = davylamp.run_attack("torchattacks:mi-fgsm", *case, epsilon=0.2, steps=5, step_size=0.04, decay=1.0)
    ours = davylamp.run_attack(momentum_steps, *case, epsilon=0.2, steps=5, decay=1.0)
    differing = (theirs.adv_inputs - ours.adv_inputs).abs() > 1e-6
    assert differing.float().mean() < 0.01
    assert ": 0 broken" in printed["contract my_attack.py:momentum_steps --quick"]
    sys.modules.pop("my_attack")


def test_metrics_alone(small, run):
    names, _ = perform(page_of("metrics-alone"), run)
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


def test_every_tutorial_is_run_and_listed():
    pages = {path.stem for path in (DOCS / "tutorials").glob("*.md")} - {"index"}
    text = Path(__file__).read_text(encoding="utf-8")
    assert {name for name in pages if f'page_of("{name}")' in text} == pages
    index = page_of("index").read_text(encoding="utf-8")
    assert all(f"({name}.md)" in index and f"\n{name}\n" in index for name in pages)


@pytest.mark.tutorial
@pytest.mark.parametrize("name", ["metrics-alone", "ten-minutes", "compare-two-libraries"])
def test_the_notebook_runs(name, small, monkeypatch):
    """The notebook that the site offers, in a kernel of its own, as Jupyter runs it."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("jupytext")
    monkeypatch.syspath_prepend(str(DOCS / "generate"))
    from notebooks import convert

    notebook = nbformat.reads(convert(page_of(name).read_text(encoding="utf-8")), as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert len(cells) == page_of(name).read_text(encoding="utf-8").count("```python")
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(small)}}).execute()
    assert all(cell.execution_count for cell in cells)
    assert any(cell.outputs for cell in cells)
