"""The pages in docs/ are true: every folder has its line, every path exists, and what a page builds works."""

import ast
import importlib
import importlib.util
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest
import torch

import davylamp
from davylamp import cli
from davylamp.adapters import IMPLEMENTATIONS, PARAMETERS, find_implementation
from davylamp.adapters.data.datasets import Data
from davylamp.adapters.models.defences.names import parse_defence
from davylamp.adapters.running.judge import KINDS
from davylamp.benchmarks import Options, PaperTable
from davylamp.benchmarks.reproductions import find_table, list_tables
from davylamp.benchmarks.shared.paper_numbers import load_rows
from davylamp.engine.challenge.challenge_verdict import FEWEST_DRAWS, LEFT, OF_GRADIENTS, WITHIN, Verdict
from davylamp.engine.checks.cell_checks import _JUDGES
from davylamp.engine.checks.indicators import INDICATORS
from davylamp.engine.plan.config import AttackChoice, Config
from davylamp.engine.plan.presets import PRESETS
from davylamp.engine.sharing.flat_tables import COLUMNS
from davylamp.engine.store.store import KINDS as STORE_KINDS
from davylamp.metrics import METRICS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
COLLECTED = ("adapters", "engine", "report", "server")
TRACKERS = {"mlflow", "wandb", "lightning"}  # a page has recipes for them; davylamp needs none


def blocks(page: str) -> dict[str, str]:
    """The files that a page shows: "`name`" on a line of its own, then a fenced block."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return dict(re.findall(r"^`([^`\n]+)`\n\n```\w+\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))


def test_every_room_is_on_the_page_with_its_own_first_line():
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    rooms = dict(re.findall(r"^\| `([\w/]+)/` \| (.+) \|$", text, re.M))
    first_lines = {}
    for part in COLLECTED:
        for init in (ROOT / part).rglob("__init__.py"):
            folder = init.parent.relative_to(ROOT).as_posix()
            if folder != part:
                first_lines[folder] = init.read_text(encoding="utf-8").split('"""')[1].strip().splitlines()[0]
    assert rooms == first_lines


def test_every_path_that_a_page_names_exists():
    for page in (*DOCS.glob("*.md"), *(DOCS / "tutorials").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        named = {name for name in re.findall(r"`([\w/]+(?:/|\.py))`", text) if "/" in name}
        written = {name.partition("/")[0] for name in blocks(str(page.relative_to(DOCS)))}
        missing = [name for name in named if not (ROOT / name).exists() and name.partition("/")[0] not in written]
        assert missing == [], page.name
        links = [link for link in re.findall(r"\]\(([\w./-]+)\)", text) if not link.startswith("generated/")]
        assert [link for link in links if not (page.parent / link).exists()] == [], page.name


def test_every_kind_of_invalid_result_is_on_its_page_with_whose_fault_it_is(generator):
    """The faults are written out here once more: whose a reason is decides how the result counts."""
    assert "```{include} generated/reasons.md" in (DOCS / "invalid-results.md").read_text(encoding="utf-8")
    row = r"^\| `([a-z-]+)` \|.*\| (the model|the library|not known) \|$"
    rows = dict(re.findall(row, generator("reference_pages").reasons(), re.M))
    assert {*rows} == {*KINDS}
    assert {kind for kind, fault in rows.items() if fault == "the model"} == {"nan-logits", "nan-gradient", "unstable"}
    unknown = {"model-crashed", "no-gradient", "no-signal", "no-start", "surrogate"}
    assert {kind for kind, fault in rows.items() if fault == "not known"} == unknown


def test_every_page_is_on_the_site():
    listed = set()
    for index in (DOCS / "index.md", DOCS / "tutorials" / "index.md"):
        for tree in re.findall(r"```{toctree}\n(.*?)```", index.read_text(encoding="utf-8"), re.DOTALL):
            names = [line for line in tree.splitlines() if line and not line.startswith(":")]
            listed |= {(index.parent / f"{name}.md").relative_to(DOCS).as_posix() for name in names}
    written = {path.relative_to(DOCS).as_posix() for path in (*DOCS.glob("*.md"), *DOCS.glob("tutorials/*.md"))}
    assert {name for name in listed if not name.startswith("generated/")} == written - {"index.md"}
    faces = {"davylamp", "davylamp.adapters", "davylamp.engine", "davylamp.metrics", "davylamp.scoring"}
    lists = {"commands", "attacks/index", "known-issues", "metrics/index", "reproductions", "files/CONTRIBUTING"}
    lists |= {"parameters", "indicators", "results-folder", "configuration", "presets", "paper-coverage"}
    made = lists | {f"api/{face}" for face in faces}
    assert {name for name in listed if name.startswith("generated/")} == {f"generated/{name}.md" for name in made}


def test_the_python_of_every_page_compiles_and_finds_what_it_imports():
    for page in (*DOCS.glob("*.md"), *(DOCS / "tutorials").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        files = {Path(name).stem for name in re.findall(r"`([\w/]+\.py)`", text)}
        for code in re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
            for node in ast.walk(ast.parse(code)):
                if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[-1] not in files:
                    module = importlib.import_module("." * node.level + node.module, "davylamp.metrics")
                    missing = [name.name for name in node.names if not hasattr(module, name.name)]
                    assert missing == [], (page.name, node.module)
                elif isinstance(node, ast.Import):
                    named = {name.name for name in node.names} - TRACKERS
                    assert all(map(importlib.util.find_spec, named)), page.name


def test_the_numbers_that_a_tracker_gets(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (DOCS / "experiment-trackers.md").read_text(encoding="utf-8")
    first, *recipes = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    names: dict = {}
    exec(first.replace("limit=40", "limit=10"), names)
    logged = names["numbers"](names["evaluation"])
    assert set(logged) == {"CA", "RA", "RA_low", "RA_high"}
    assert 0 <= logged["RA_low"] <= logged["RA"] <= logged["RA_high"] <= 1
    assert (tmp_path / "report.html").exists()
    assert {recipe.split()[1] for recipe in recipes} == TRACKERS


@pytest.fixture
def generator(monkeypatch):
    """The modules that make pages, as the site's settings import them."""
    monkeypatch.syspath_prepend(str(DOCS / "generate"))
    return importlib.import_module


def test_an_attacks_page_says_what_the_libraries_say(generator):
    rows = [find_implementation("foolbox:pgd"), find_implementation("torchattacks:pgd")]
    page = generator("attack_pages").render("pgd", rows)
    assert "| `torchattacks:pgd` | `PGD`, `PGDL2` | linf, l2 |" in page
    import foolbox
    import torchattacks

    theirs = {"foolbox": foolbox.attacks.LinfPGD, "torchattacks": torchattacks.PGD}
    steps = {name: inspect.signature(made.__init__).parameters["steps"].default for name, made in theirs.items()}
    (line,) = [line for line in page.splitlines() if line.startswith("| `steps` |")]
    assert f"| foolbox: `steps` = {steps['foolbox']} (linf), " in line
    assert line.endswith(f"<br>torchattacks: `steps` = {steps['torchattacks']} |")
    known = find_implementation("foolbox:cw")
    page = generator("attack_pages").render("cw", [known])
    assert all(f"- `foolbox:cw`: **{finding}**: " in page for finding in known.findings)
    assert known.repairs[0] in page


def test_the_catalogue_page_says_which_library_has_which_attack(generator):
    libraries = defaultdict(set)
    for row in IMPLEMENTATIONS.values():
        if not row.variant:
            libraries[row.attack].add(row.library)
    pages = generator("attack_pages").render_all()
    header, body = re.findall(
        r"^\| attack \| (.*) \|\n\|[-:| ]+\|\n((?:\|.*\n)+)", pages["attacks/index.md"], re.MULTILINE
    )[0]
    columns = header.split(" | ")
    assert set(columns) == set().union(*libraries.values())
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in body.splitlines()]
    rows = {name.partition("]")[0].strip("["): row for name, *row in cells[:-1]}
    shown = {name: {column for column, cell in zip(columns, row, strict=True) if cell} for name, row in rows.items()}
    assert shown == {name: having for name, having in libraries.items() if len(having) >= 3}
    others = [having for having in libraries.values() if len(having) < 3]
    assert cells[-1] == [f"{len(others)} others", *(str(sum(each in having for having in others)) for each in columns)]
    known = {finding for row in IMPLEMENTATIONS.values() for finding in row.findings}
    assert set(re.findall(r"^\| `([\w-]+)` \|", pages["known-issues.md"], re.MULTILINE)) == known


def test_the_reference_pages_have_all_that_the_code_has(generator):
    reference = generator("reference_pages")
    pages = reference.render_all()

    def first_column(page):
        return set(re.findall(r"^\| `([\w./-]+)` \|", pages[page], re.MULTILINE))

    assert first_column("parameters.md") == {*PARAMETERS}
    assert first_column("configuration.md") == {each.name for each in (*fields(Config), *fields(AttackChoice))} - {
        "row"
    }
    assert first_column("reasons.md") == {*KINDS}
    folders = {f"{kind}/" for kind in (*STORE_KINDS, "images", "locks")} | {"davylamp.json"}
    assert first_column("results-folder.md") == {*COLUMNS} | folders
    assert set(re.findall(r"^## `(\w+)`$", pages["presets.md"], re.MULTILINE)) == {*PRESETS}
    assert set(re.findall(r"\| `([\w-]+)` \|", pages["indicators.md"])) == {*INDICATORS}
    assert {*reference.PROBED} == {*_JUDGES}


def test_every_environment_variable_of_davylamps_is_on_its_page():
    text = (DOCS / "exit-codes.md").read_text(encoding="utf-8")
    shown = {*re.findall(r"`(DAVYLAMP_\w+)`", text)} - {"DAVYLAMP_TOKEN_API_EXAMPLE_ORG"}
    left = {"tests", "docs", ".venv", "build"}
    files = [path for path in ROOT.rglob("*.py") if path.relative_to(ROOT).parts[0] not in left]
    read = {name for path in files for name in re.findall(r"\bDAVYLAMP_[A-Z_]+", path.read_text(encoding="utf-8"))}
    read = {"DAVYLAMP_TOKEN_HOST" if name.startswith("DAVYLAMP_TOKEN_") else name for name in read}
    assert shown == read | {"DAVYLAMP_TEST_POSTGRES"}


def test_every_metrics_page_has_a_line_of_python_that_fits_its_function(generator):
    made = generator("metric_pages")
    for metric in METRICS.values():
        call = ast.parse(made.line_of(metric), mode="eval").body
        assert isinstance(call, ast.Call)
        given = {word.arg: word for word in call.keywords}
        inspect.signature(metric.function).bind(*call.args, **given)
        assert ast.unparse(call.func) == f"davylamp.metrics.{metric.function.__name__}"
    page = made.render("RA")
    assert page.startswith("---\norphan: true\n---\n\n# Robust accuracy (RA)\n")
    for name in ("Robust accuracy", "RA", "RA_worst"):  # a search for it leads here first
        assert f"```{{index}} ! single: {name}\n" in page


def test_every_formula_can_be_typeset():
    from docutils.utils.math.latex2mathml import tex2mathml

    typeset = {symbol: tex2mathml(metric.latex, as_block=True) for symbol, metric in METRICS.items() if metric.latex}
    assert {"RA", "MR", "AIAC", "linf", "AEDV"} <= {*typeset}
    for symbol, text in typeset.items():
        assert text.startswith("<math"), symbol
        assert "merror" not in text, symbol


def test_both_forms_of_a_formula_speak_of_the_same_predictions_and_images():
    def terms(text: str) -> set[str]:
        text = text.replace("x_a", "xa").replace("\\neq", "!=")
        return {*re.findall(r"\b[FP]\(xa?\)|valid|successes", text)}

    in_words = {"FR@K", "QI_Vis", "QI_Vis_T"}  # and those of two models, which leave out the image
    for symbol, metric in METRICS.items():
        if metric.latex and symbol not in in_words and not metric.base and "_O" not in metric.formula:
            assert terms(metric.latex) == terms(metric.formula), symbol
    assert terms("P(x_a)_{F(x_a)} - P(x)_{F(x)}") != terms(METRICS["AIAC"].formula)


def test_there_is_a_page_for_every_metric_and_a_line_for_every_option(generator):
    pages = generator("metric_pages").render_all()
    assert {f"metrics/{symbol}.md" for symbol in METRICS} <= set(pages)
    for symbol, metric in METRICS.items():
        assert metric.formula in pages[f"metrics/{symbol}.md"]
    text = generator("command_page").render()
    assert re.search(
        r"^\| `--epsilon`, `--eps` \| list\[str\] \| radius of the ball, for pixels in \[0, 1\]: 4/255",
        text,
        re.MULTILINE,
    )
    assert set(re.findall(r"^## `davylamp ([\w -]+)`", text, re.MULTILINE)) == {
        command.name for command in cli.app.registered_commands
    }
    reproduced = generator("reproduction_page").render()
    assert all(f"`davylamp reproduce {name}`" in reproduced for name in list_tables() if name != "checks")


def write(page: str, folder: Path) -> None:
    for name, code in blocks(page).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code, encoding="utf-8")


def test_the_attack_of_the_page_is_fgsm(tmp_path, monkeypatch, digits):
    write("my-attack.md", tmp_path)
    monkeypatch.chdir(tmp_path)
    case = (digits.module, digits.inputs, digits.labels)
    ours = davylamp.compare("fgsm", *case, epsilon=0.1, libraries=["foolbox"], also=["my_attack.py:sign_step"])
    assert [pair.verdict for pair in ours.pairs] == ["identical"]
    row = find_implementation("my_attack.py:sign_step")
    assert row.says_norm
    attributes = re.findall(r"^\| `(\w+)`", (DOCS / "my-attack.md").read_text(encoding="utf-8"), re.M)
    for name in attributes:
        davylamp.as_implementation(lambda model, inputs, labels, epsilon: inputs, **{name: _example(name)})


def _example(name):
    examples = {"norm": "l2", "knowledge": "score-based", "kind": "minimum-norm", "targeted": "only", "random": ()}
    return {**examples, "failure": "last", "order": "kept", "title": "Mine", "source": "me", "canonical": "pgd"}[name]


@pytest.fixture(scope="module")
def advlib(tmp_path_factory):
    """A folder with adversarial-library and the package of the page, installed there."""
    source, site = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site)]
    done = subprocess.run([*pip, "adv-lib==0.2.8"], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("adv-lib cannot be fetched here")
    (site / "visdom.py").write_text("")
    write("add-a-library.md", source)
    subprocess.run([*pip, "--no-build-isolation", "--no-index", str(source)], check=True, capture_output=True)
    return site


def test_the_library_of_the_page_takes_part(advlib, tmp_path, digits):
    torch.save((digits.module, digits.inputs, digits.labels), tmp_path / "case.pt")
    script = (
        "import torch, davylamp, warnings\n"
        "warnings.simplefilter('ignore')\n"
        "case = torch.load('case.pt', weights_only=False)\n"
        "found = davylamp.compare('fmn', *case, norm='l2', libraries=['advlib', 'foolbox'], steps=100, fixed=True)\n"
        "frame = found.to_frame().set_index('implementation')\n"
        "print(frame[['MR', 'l2_median', 'violations', 'forwards_median', 'error']].to_string())\n"
        "assert set(frame.index) == {'advlib:fmn', 'foolbox:fmn', 'foolbox:fmn@fixed'}, frame.index\n"
        "assert frame.loc['advlib:fmn', 'MR'] == 1\n"
        "assert frame.loc['advlib:fmn', 'violations'] == 0\n"
        "assert frame.loc['advlib:fmn', 'forwards_median'] == 100\n"
        "ratio = frame.loc['advlib:fmn', 'l2_median'] / frame.loc['foolbox:fmn@fixed', 'l2_median']\n"
        "assert 0.8 < ratio < 1.1, ratio\n"
        "import sys; from davylamp import cli\n"
        "sys.argv = ['davylamp', 'test-attack', 'advlib:fmn', '--quick']\n"
        "cli.main()\n"
    )
    paths = [str(advlib), *([os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else [])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "advlib:fmn" in done.stdout.partition("forwards_median")[2].partition("advlib:fmn")[2]  # of the contract
    assert " 0 failed" in done.stdout


def test_the_metrics_of_the_page_are_computed(tmp_path, monkeypatch, digits):
    write("add-a-metric.md", tmp_path)
    monkeypatch.chdir(tmp_path)
    case = (digits.module, digits.inputs, digits.labels)
    measures = ["my_metrics.py:brightness"]
    evaluation = davylamp.evaluate(*case, attacks="torchattacks:fgsm", epsilon=0.1, out="results", measures=measures)
    table = evaluation.table(metrics=["my_metrics.py:confidence_drop", "my_metrics.py:brightness"]).to_frame()
    result = davylamp.run_attack("torchattacks:fgsm", *case, epsilon=0.1)
    before, after = (each.softmax(1)[range(16), digits.labels] for each in (result.logits, result.adv_logits))
    assert table["my_metrics.py:confidence_drop"].item() == pytest.approx(float((before - after).mean()), abs=1e-6)
    change = (result.adv_inputs - digits.inputs).mean()
    assert table["my_metrics.py:brightness"].item() == pytest.approx(float(change), abs=1e-6)


NETS = """
import torch

def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 4))

def data():
    torch.manual_seed(1)
    images = torch.rand(8, 3, 4, 4)
    return images, model()(images).argmax(1)
"""


COMMANDS = """
import io, json, sys
from contextlib import redirect_stdout
import davylamp
from davylamp import cli, metrics

texts = []
for words in json.loads(sys.argv[1]):
    sys.argv = ["davylamp", *words]
    with redirect_stdout(io.StringIO()) as out:
        try:
            cli.main()
        except SystemExit as stop:
            assert not stop.code, words
    texts.append(out.getvalue())
answer = {
    "mean": davylamp.load("results")["MLC"].mean(),
    "is_the_function": metrics.METRICS["mean logit change"].function is metrics.mean_logit_change,
    "names": metrics.__all__,
    "place": davylamp.__file__,
}
print(json.dumps([*texts, answer]))
"""


def test_the_metric_of_the_page_is_one_function_in_one_file(tmp_path):
    """In a copy of the package with the block at the end of the file that the page names, every command has it."""
    text = (DOCS / "add-a-metric.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(@metric.*?)```", text, re.DOTALL)
    root, package = DOCS.parent, tmp_path / "davylamp"
    left = shutil.ignore_patterns(".*", "__pycache__", "tests", "docs", "benchmarks", "shared", "build", "node_modules")
    shutil.copytree(root, package, ignore=left)
    with (package / "metrics" / "effect.py").open("a", encoding="utf-8") as file:
        file.write(f"\n\n{code}")
    (tmp_path / "nets.py").write_text(NETS, encoding="utf-8")

    case = ("--models", "nets.py:model", "--data", "nets.py:data", "--epsilon", "0.1", "-o", "results")
    lines = (
        ("metrics", "mean logit change", "--json"),
        ("evaluate", "--attacks", "torchattacks:fgsm", *case, "--isolate", "no"),
        ("table", "results", "--json"),
        ("table", "results", "--metric", "mlc", "--json"),
        ("report", "results", "-o", "page.html"),
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    words = [sys.executable, "-c", COMMANDS, json.dumps(lines)]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout, done.stderr)
    known, _, *tables, _, answer = json.loads(done.stdout.splitlines()[-1])
    assert json.loads(known)[0]["symbol"] == "MLC"
    for table in tables:
        (row,) = json.loads(table)["rows"]
        assert row["metrics"]["MLC"]["n"] == 8
        assert row["metrics"]["MLC"]["value"] == pytest.approx(answer["mean"], abs=1e-6)
    assert "Mean logit change" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert answer["is_the_function"]
    assert "mean_logit_change" in answer["names"]
    assert answer["place"].startswith(str(package))


def _accuracy_under_pgd(digits, norm, epsilon):
    """With the library itself: 5 steps of 2.5 epsilon / 5, as --quick cuts them."""
    import eagerpy
    import foolbox

    attacks = {"l2": foolbox.attacks.L2PGD, "linf": foolbox.attacks.LinfPGD}
    attack = attacks[norm](steps=5, abs_stepsize=epsilon / 2, random_start=False)
    model = foolbox.PyTorchModel(digits.module, bounds=(0, 1), device="cpu")
    _, examples, _ = attack(model, eagerpy.astensor(digits.inputs), eagerpy.astensor(digits.labels), epsilons=epsilon)
    return float((digits.module(examples.raw).argmax(1) == digits.labels).double().mean())


def test_the_table_of_the_page_is_set_beside_the_papers(tmp_path, monkeypatch, digits):
    write("add-a-paper-table.md", tmp_path)
    monkeypatch.chdir(tmp_path)
    published = json.loads((tmp_path / "table1.json").read_text(encoding="utf-8"))["rows"]
    whole = load_rows("aisafety_table2")
    for row in published:
        wanted = {"dataset": "CIFAR-10", "model": row["model"], "attack": row["attack"], "AAW": row["accuracy"]}
        assert wanted in whole
    models = {"digits:standard": digits.classifier, "mine": digits.classifier}
    data = Data(digits.inputs, digits.labels, [str(place) for place in range(16)])
    result = find_table("my_tables.py:TABLE").run(Options(quick=True, models=models, data=data, limit=16))
    lines = {line["row"]: line for line in result["lines"]}
    assert set(lines) == {f"{model}, {attack}" for model in models for attack in ("PGD-l2", "PGD-linf")}
    for attack, norm, epsilon, mean in (("PGD-l2", "l2", 0.5, 0.0), ("PGD-linf", "linf", 0.03, 0.2385)):
        accuracy = _accuracy_under_pgd(digits, norm, epsilon)
        for model, number, beside in (("digits:standard", 0.0, "VANILLA"), ("mine", mean, "mean of 2 models")):
            line = lines[f"{model}, {attack}"]
            assert (line["symbol"], line["n"], line["beside"]) == ("AAW", 16, beside)
            assert line["ours"] == pytest.approx(accuracy)
            assert line["published"] == pytest.approx(number)
            assert (line["difference"], line["no_difference"]) == (None, "other data")  # digits, with models of digits
    assert result["labels"] == ["other models", "other data", "other budget"]
    assert result["left_out"] == {"TRADES": "no model was chosen for this name"}


def test_the_row_of_the_page_is_one_of_davylamps(digits):
    text = (DOCS / "add-a-paper-table.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(PaperTable\(.*?)```", text, re.DOTALL)
    table = eval(code, {"PaperTable": PaperTable})
    data = Data(digits.inputs, digits.labels, [str(place) for place in range(16)])
    models = {"digits:standard": digits.classifier, "digits:trades": digits.classifier}
    result = table.run(Options(quick=True, models=models, data=data, limit=4))
    published = [(line["row"], line["symbol"], line["published"], line["beside"]) for line in result["lines"]]
    assert published == [
        ("digits:standard, PGD-linf", "AAW", 0.0, "VANILLA"),
        ("digits:trades, PGD-linf", "AAW", 0.477, "TRADES"),
    ]
    assert {"PAT", "SAT", "PGD-l1", "CLEAN"} <= set(result["left_out"])


def test_the_defences_of_the_page_are_names(run):
    text = (DOCS / "defences.md").read_text(encoding="utf-8")
    names = set(re.findall(r"demo:mnist-lenet5\+(?!my_)([a-z0-9=:-]+[a-z0-9])", text)) | set(
        re.findall(r"--defence ([a-z]\S+=\S+)", text)
    )
    assert {"jpeg:quality=50", "bit-depth:bits=2"} <= names
    for name in names:
        parse_defence(name)
    code, out, _ = run("defences", "--json")
    shown = {way for row in json.loads(out)["defences"] for way in row["gradients"]}
    assert code == 0
    assert shown == set(re.findall(r"^\| `([a-z-]+)` \|", text, re.MULTILINE))


def test_the_defence_of_the_page_is_the_named_one(tmp_path):
    """Four grey levels with the gradient of the identity: `bit-depth:bits=2`, bit for bit."""
    write("defences.md", tmp_path)
    inputs, labels, _ = davylamp.load_data("demo:mnist", limit=4)
    logits, gradients = [], []
    for defence in (f"{tmp_path}/my_defence.py:defend", "bit-depth:bits=2"):
        model = davylamp.load_model(f"demo:mnist-lenet5+{defence}")
        asked = inputs.clone().requires_grad_()
        answers = model(asked)
        torch.nn.functional.cross_entropy(answers, labels).backward()
        logits.append(answers.detach())
        gradients.append(asked.grad)
    assert torch.equal(*logits)
    assert torch.allclose(*gradients, atol=1e-6)
    assert bool(gradients[0].any())


def test_the_verdicts_of_the_page_are_those_of_a_challenge():
    text = (DOCS / "challenge-verdicts.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| [a-z ]+ \| `([^`]+)` \| `([a-z]+)` \|", text, re.MULTILINE)
    assert {word for _, word in table} == set(get_args(Verdict))
    source = inspect.getsource(importlib.import_module("davylamp.engine.challenge.challenge_verdict"))
    for printed, _ in table:
        assert re.split(r"N |\.\.\.", printed)[0].rstrip(": ") in source
    assert (WITHIN, FEWEST_DRAWS, LEFT) == (0.05, 10, 0.01)
    for said in (
        "at most five points above",
        "by fewer than 10 samples",
        "interval of their rate lies above 1 %",
    ):
        assert said in text
    assert len(OF_GRADIENTS) == 3
