"""`davylamp table` and `curve` as a user meets them, on a real evaluation whose images are kept."""

import csv
import io
import json
import sys

import numpy as np
import pytest
import torch
from torch import nn

from davylamp import metrics
from davylamp.adapters import Classifier
from davylamp.adapters.data.datasets import Data
from davylamp.engine import AttackChoice, Config, ResultsStore, evaluate, make_plan
from davylamp.engine.finding import note
from davylamp.engine.statistics.bootstrap import Estimate
from davylamp.engine.tables.budget_curves import build_curves
from davylamp.engine.tables.table import Table, TableRow
from davylamp.engine.tables.transfer_table import build_transfer
from davylamp.report.parts.curve_figure import write_curve_figure
from davylamp.report.text.tables import print_results, table_csv, table_json, table_markdown

ATTACKS = (
    AttackChoice("torchattacks:pgd", "linf", 0.02, parameters={"steps": 3}),
    AttackChoice("torchattacks:fgsm", "linf", 0.02),
    AttackChoice("best(torchattacks:fgsm)", "linf", 0.5),
)
MODELS = ("first", "second")


def net(seed):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Flatten(), nn.Linear(192, 4)).eval().requires_grad_(False)


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    """Two linear models, three attacks, 24 images labelled as the first model sees them."""
    inputs = torch.rand(24, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    nets = {name: net(seed) for seed, name in enumerate(MODELS)}
    labels = nets["first"](inputs).argmax(1)
    folder = tmp_path_factory.mktemp("world")
    config = Config(attacks=ATTACKS, transfer="full", keep_images=True, measures=("effect", "cost", "distance"))
    models = {name: Classifier(module) for name, module in nets.items()}
    plan = make_plan(config, models=models, data=Data(inputs, labels, [str(i) for i in range(24)]))
    evaluate(plan, ResultsStore(folder))
    return folder, plan, nets, inputs, labels


def test_a_row_for_each_model_over_all_threat_models_is_the_mean_of_its_cells(world, run):
    folder = world[0]
    code, out, _ = run("table", folder, "--by", "pairs", "--metric", "MR,AED", "--json")
    cells = json.loads(out)["rows"]
    code, out, _ = run(
        "table",
        folder,
        "--by",
        "models",
        "--all-threat-models",
        "--knowledge",
        "white-box",
        "--metric",
        "MR,AED",
        "--json",
    )
    rows = json.loads(out)["rows"]
    assert code == 0
    assert [(row["model"], row["attacks"], row["cells"]) for row in rows] == [(name, 3, 3) for name in MODELS]
    assert not {"norm", "epsilon", "targeted"} & set(rows[0])
    for row in rows:
        for symbol in ("MR", "AED"):
            mine = [cell["metrics"][symbol]["value"] for cell in cells if cell["model"] == row["model"]]
            assert row["metrics"][symbol]["value"] == pytest.approx(np.mean(mine))
    code, out, _ = run("table", folder, "--by", "models", "--all-threat-models")
    assert code == 0
    assert "Mean over attacks" in out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--knowledge", "decision"), "expected decision attacks, got white-box only"),
        (("--all-threat-models",), "--all-threat-models needs --by models, got --by attacks"),
        (("--knowledge", "white-box", "--transfer"), "--transfer cannot be combined with --by,"),
        (("--knowledge", "white-box", "--defence", "first", "second"), "--defence cannot be combined with --by,"),
    ],
)
def test_what_a_table_cannot_choose_is_refused(world, run, options, said):
    code, _, errors = run("table", world[0], *options)
    assert code == 1
    assert said in " ".join(errors.split())


def test_the_numbers_are_the_metrics_of_the_raw_images(world, run):
    folder, plan, nets, inputs, labels = world
    chosen = ["MR", "AIAC", "ACAC", "AMD", "AED", "APCR", "RMSD", "OTR", "CF", "RA"]
    options = [word for symbol in chosen for word in ("--metric", symbol)]
    code, out, _ = run("table", folder, "--by", "pairs", *options, "--json")
    rows = json.loads(out)["rows"]
    assert code == 0
    assert len(rows) == len(plan.cells) == 6
    for cell in plan.cells:
        (row,) = [r for r in rows if (r["model"], r["implementation"]) == (cell.subject.model, cell.attack)]
        images = np.load(ResultsStore(folder).images_path(f"{cell.key}-0"))["inputs"]
        adv = torch.tensor(images).float() / (255 if images.dtype == np.uint8 else 1)
        module = nets[cell.subject.model]
        before, after = module(inputs), module(adv)
        success = (before.argmax(1) == labels) & (after.argmax(1) != labels)
        clean = torch.stack([each(inputs).argmax(1) for each in nets.values()])
        others = torch.stack([each(adv).argmax(1) for each in nets.values()])
        attacked = before.argmax(1) == labels
        truth = {
            "MR": metrics.misclassification_ratio(before, after, labels),
            "AIAC": metrics.adversarial_confidence_increase(before, after, labels),
            "ACAC": metrics.adversarial_class_confidence(after[attacked], labels[attacked]),
            "AMD": metrics.maximum_distortion(inputs, adv, success),
            "AED": metrics.euclidean_distortion(inputs, adv, success),
            "APCR": metrics.pixel_change_ratio(inputs, adv, success),
            "RMSD": metrics.pixel_rms_distance(inputs[attacked], adv[attacked]),
            "OTR": metrics.observable_transfer_rate(clean, others, labels, MODELS.index(cell.subject.model)),
            "CF": metrics.macro_f1(before, labels),
            "RA": (attacked & ~success).double().mean(),
        }
        for symbol, value in truth.items():
            assert row["metrics"][symbol]["value"] == pytest.approx(float(value), rel=1e-4, abs=1e-6), symbol


def test_plain_output(world, run):
    code, out, err = run("table", world[0])
    assert (code, err) == (0, "")
    assert "Mean over models; value [95 % interval] (images of all runs)" in out.splitlines()
    (head,) = (line.split() for line in out.splitlines() if line.startswith("implementation"))
    assert head.index("MR") < head.index("AMD") < head.index("QNC_F")
    code, out, _ = run("table", world[0], "--by", "models", "--bootstrap", "0")
    assert "Mean over attacks, RA the worst case over them; value (images of all runs)" in out.splitlines()
    (head,) = (line.split() for line in out.splitlines() if line.startswith("model "))
    assert [name for name in head if name in ("CA", "RA", "CF", "MR")] == ["CA", "RA", "CF", "MR"]


def test_csv_agrees_with_json(world, run):
    _, text, _ = run("table", world[0], "--csv", "--metric", "MR", "--seed", "3")
    rows = list(csv.DictReader(io.StringIO(text)))
    document = json.loads(run("table", world[0], "--json", "--metric", "MR", "--seed", "3")[1])
    assert len(rows) == len(document["rows"]) == 3
    for row, entry in zip(rows, document["rows"], strict=True):
        assert row["implementation"] == entry["implementation"]
        assert float(row["MR low"]) == entry["metrics"]["MR"]["low"]
        assert int(row["MR n"]) == entry["metrics"]["MR"]["n"]


def test_the_seed_decides_the_interval_only(world, run):
    def estimate_at(seed):
        return json.loads(run("table", world[0], "--json", "--metric", "AED", "--seed", seed)[1])["rows"][0]["metrics"]

    assert estimate_at(0) == estimate_at(0)
    assert estimate_at(0)["AED"]["low"] != estimate_at(1)["AED"]["low"]
    assert estimate_at(0)["AED"]["value"] == estimate_at(1)["AED"]["value"]


def test_transfer(world, run):
    code, out, _ = run("table", world[0], "--transfer")
    assert code == 0
    assert "torchattacks:pgd, linf 0.02 " in out
    assert "made on / tested on" in out.splitlines()[-4]
    code, out, _ = run("table", world[0], "--transfer", "-v")
    assert code == 0
    assert "Transfer of torchattacks:pgd, linf 0.02" in out
    assert "Threat: mean over the attacks" in out
    (table,) = build_transfer(world[0]).tables
    _, text, _ = run("table", world[0], "--transfer", "--csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == 3 * 9 + 6
    (one,) = [r for r in rows if [r[k] for k in ("implementation", "made_on", "tested_on")] == [
        table.attacks[0]["implementation"], "second", "first"
    ]]  # fmt: skip
    assert float(one["rate"]) == table.rates[0][1][0].value


def test_a_defence(world, run):
    code, out, _ = run("table", world[0], "--defence", "first", "second", "--json")
    rows = json.loads(out)["rows"]
    assert code == 0
    assert rows[0]["examples"] == "clean"
    assert len(rows) == 4
    _, _, nets, inputs, labels = world
    truth = metrics.accuracy_variance(nets["first"](inputs), nets["second"](inputs), labels)
    assert rows[0]["metrics"]["CAV"]["value"] == pytest.approx(float(truth))
    assert rows[0]["metrics"]["MRV"]["value"] is None


def test_metrics_by_the_names_of_the_papers(world, run):
    names, symbols = (
        run("table", world[0], "--metric", each, "--csv")[1] for each in ("mr,AND,ra", "MR,AMD,AED,APCR,RA")
    )
    assert names == symbols != ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--csv", "--json"], "expected one format, got --csv and --json"),
        (["--transfer", "--metric", "MR"], "--transfer cannot be combined with"),
        (["--defence", "first", "second", "--pool-images"], "--defence cannot be combined"),
        (["--metric", "MRR"], "unknown metric 'MRR'; did you mean MR or MRV"),
        (["--metric", "ADMS"], "ADMS is not available in this folder: it was not measured; `davylamp measure FOLDER"),
        (["--defence", "first", "third"], "unknown model 'third'"),
    ],
)
def test_a_mistake_is_one_line(world, run, arguments, message):
    code, out, err = run("table", world[0], *arguments)
    assert (code, out) == (1, "")
    assert err.startswith(f"davylamp: {message}")
    assert err.count("\n") == 1


def test_curves_in_print_and_in_files(world, run, tmp_path):
    code, out, err = run("curves", world[0], "--budget", "4/255,0.02", "--bootstrap", "50")
    assert err == "chosen: x_axis epsilon, seed 0\n"
    lines = out.splitlines()
    assert code == 0
    assert lines[0] == "Accuracy against linf (pixel range)"
    assert lines[1].split()[-7:] == ["4/255", "0.02", "half", "at", "D_half", "R^2", "OPT"]
    assert len(lines) == 2 + 6 + 1
    assert lines[-1].startswith("- D_half: Half distortion; OPT: ")
    text = run("curves", world[0], "--csv", "--budget", "0.02", "--bootstrap", "50")[1]
    rows = list(csv.DictReader(io.StringIO(text)))
    document = json.loads(run("curves", world[0], "--json", "--bootstrap", "50")[1])
    for row in rows:
        (curve,) = [
            c for c in document["curves"] if all(c[k] == row[k] for k in ("model", "implementation", "setting"))
        ]  # fmt: skip
        assert row["half at"] == ("" if curve["half_at"] is None else str(curve["half_at"]))
    best = [c for c in build_curves(world[0], budgets=[0.02], bootstrap=0).curves if c.kind == "distances"]
    ours = [row for row in rows if row["kind"] == "distances" and float(row["budget"]) == 0.02]
    assert [float(row["accuracy"]) for row in ours] == [float(c.accuracy[c.budgets == 0.02][0]) for c in best]
    for name in ("curves.svg", "curves.png"):
        code, _, _ = run("curves", world[0], "--x-axis", "queries", "--bootstrap", "20", "-o", name)
        assert code == 0
        assert (tmp_path / name).stat().st_size > 2000


def test_the_figure_says_what_it_shows(world, tmp_path):
    import matplotlib as mpl

    with mpl.rc_context({"svg.fonttype": "none"}):
        write_curve_figure(build_curves(world[0], bootstrap=20), tmp_path / "curves.svg")
    text = (tmp_path / "curves.svg").read_text(encoding="utf-8")
    for shown in (
        "linf distance (pixel range)",
        "accuracy (proportion of all images)",
        "best(torchattacks:fgsm)",
        *MODELS,
    ):
        assert shown in text


def test_curve_mistakes_are_one_line(world, run):
    for arguments, message in (
        (["-o", "curves.gif"], "expected a file that ends in .svg, .png, .pdf"),
        (["-o", "none/curves.svg"], "could not write none/curves.svg"),
        (["--model", "third"], "unknown model 'third'"),
        (["--norm", "l2"], "no results of this norm and model; norms with results in the folder: linf"),
        (["--csv", "--json"], "expected one format"),
    ):
        code, _, err = run("curves", world[0], "--bootstrap", "20", *arguments)
        assert code == 1
        assert err.startswith(f"davylamp: {message}")
        assert err.count("\n") == 1


def test_without_matplotlib(world, run, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    code, _, err = run("curves", world[0], "-o", "curves.svg")
    assert code == 1
    assert err.startswith('davylamp: matplotlib is not installed; run: pip install "davylamp[plot]"')


@pytest.fixture
def awkward():
    """A table whose texts mean something to every format."""
    labels = {"model": '[a]|b_1 & 50% \\x, "q"\n#$', "setting": ""}
    undefined = Estimate(*[float("nan")] * 3, 0)
    rows = (TableRow(labels, {"MR": Estimate(0.5, 0.25, float("inf"), 8), "FR@5": undefined}),)
    return Table("pairs", ("model", "setting"), ("MR", "FR@5"), rows, (note("failed", "failed: x [bold]"),))


def test_csv_survives_any_text(awkward):
    (row,) = csv.DictReader(io.StringIO(table_csv(awkward)))
    assert row["model"] == awkward.rows[0].labels["model"]
    assert (row["MR"], row["MR n"], row["FR@5"], row["FR@5 n"]) == ("0.5", "8", "", "0")


def test_markdown_survives_any_text(awkward):
    head, rule, line = table_markdown(awkward).splitlines()
    assert (head, rule) == ("| model | MR | FR@5 |", "| --- | --- | --- |")
    assert line == '| [a]\\|b_1 & 50% \\\\x, "q" #$ | 0.5 [0.25, inf] (8) | - |'


def test_json_has_null_for_what_is_undefined(awkward):
    document = json.loads(table_json(awkward))
    assert document["notes"] == ["failed: x [bold]"]
    assert document["rows"][0]["metrics"] == {
        "MR": {"value": 0.5, "low": 0.25, "high": None, "n": 8},
        "FR@5": {"value": None, "low": None, "high": None, "n": 0},
    }


def test_print_shows_notes_and_marks_nothing_up(awkward, capsys):
    print_results(awkward)
    out = capsys.readouterr().out
    assert "- failed: x [bold]" in out
    assert "[a]|b_1" in out
