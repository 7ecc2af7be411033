"""Every reproduction on tiny models: labels, nulls, resuming, numbers again by other means; the small models."""

# pyright: reportPrivateImportUsage=false

import io
import json
import math
import sys
from statistics import fmean

import numpy as np
import pandas as pd
import pytest
import torch
from rich.console import Console
from torch import nn

from davylamp import cli
from davylamp.adapters import Classifier
from davylamp.benchmarks import Options
from davylamp.benchmarks.reproductions import list_tables
from davylamp.benchmarks.shared import reproduction, small_models
from davylamp.benchmarks.shared.counterpart import Counterpart, Pairing, data_set_of
from davylamp.benchmarks.shared.paper_numbers import find_value, load_published
from davylamp.benchmarks.shared.paper_result import PaperLine, join_results, plain_line, print_result
from davylamp.engine import load
from davylamp.engine.statistics.bootstrap import Estimate
from davylamp.engine.training.inner_maximisation import ascend, initial_perturbation
from davylamp.metrics import half_distortion

TABLES = list_tables()


@pytest.fixture(scope="module")
def tiny(digits):
    """Two models that see 16 x 16 digits: the trained one, and another one with the same layers, hardly trained."""
    torch.manual_seed(3)
    other = nn.Sequential(
        *(type(part)(*_arguments(part)) if list(part.parameters()) else part for part in digits.module)
    )
    optimiser = torch.optim.Adam(other.parameters(), 1e-2)
    for _ in range(30):
        optimiser.zero_grad()
        nn.functional.cross_entropy(other(digits.inputs), digits.labels).backward()
        optimiser.step()
    names = [f"digit_{i}" for i in range(4)]
    data = reproduction.Data(digits.inputs[:4], digits.labels[:4], names)
    return {"standard": digits.classifier, "pgd-training": Classifier(other)}, data


def _arguments(part):
    if isinstance(part, nn.Conv2d):
        return part.in_channels, part.out_channels, part.kernel_size, part.stride, part.padding
    return part.in_features, part.out_features


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("results")


@pytest.fixture(scope="module")
def results(tiny, digits, folder):
    """What every reproduction hands back on them, by name; evaluations that are alike are done once."""
    models, data = tiny
    known = {}

    def run(name):
        if name not in known:
            options = Options(quick=True, models=models, data=data, limit=2, out=folder)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("davylamp.benchmarks.aisafety.coverage.load_training_inputs", lambda: digits.inputs)
                known[name] = TABLES[name].run(options)
        return known[name]

    return run


@pytest.mark.parametrize("name", [name for name in TABLES if TABLES[name].runs_models and name != "aisafety-figure3"])
def test_every_reproduction_runs_and_says_what_it_is_compared_with(results, name):
    result = results(name)
    document = json.loads(json.dumps(result, allow_nan=False))
    assert result["labels"][:2] == ["other models", "other data"]
    assert document["source"] == load_published(result["table"])["source"]
    assert result["lines"]
    assert result["images"] == 2
    assert {"readings", "left_out", "notes", "budget", "models", "data"} <= set(result)
    for line in result["lines"]:
        ours, theirs = {"row", "symbol", "ours", "low", "high", "n"}, {"published", "difference", "beside"}
        assert set(line) == ours | theirs | {"no_difference", "column", "labels", "model"}
        assert line["difference"] is None  # models and data are not the paper's
        assert line["no_difference"]
        if None not in (line["ours"], line["low"]):
            top = math.inf if line["high"] is None else line["high"]
            slack = 1e-6 * abs(line["ours"])  # of the search for the half distortion of a replicate
            assert line["low"] - slack <= line["ours"] <= top + slack
        assert line["n"] >= (line["ours"] is not None)
    console = Console(file=io.StringIO(), width=1000)
    print_result(result, console)
    first = console.file.getvalue().splitlines()[0]
    assert first.startswith("Stand-ins: ")
    assert all(f"{model} for " in first or f"{model}, " in first for model in result["models"])
    symbols = {line["symbol"] for line in result["lines"]}
    if "-figure" not in name and name != "canary-defences":  # of which the papers print no numbers
        assert all(
            any(line["published"] is not None for line in result["lines"] if line["symbol"] == s) for s in symbols
        )


def test_corruptions_of_small_images_are_set_against_the_first_model():
    torch.manual_seed(0)
    models = {
        name: Classifier(nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 3))) for name in ("standard", "trades")
    }
    data = reproduction.Data(torch.rand(3, 3, 32, 32), torch.tensor([0, 1, 2]), ["a", "b", "c"])
    result = TABLES["aisafety-figure3"].run(Options(quick=True, models=models, data=data, limit=3))
    assert {line["row"] for line in result["lines"]} == {"standard", "trades"}
    assert {"mCE", "RmCE"} <= {line["symbol"] for line in result["lines"]}
    assert result["left_out"] == {}
    (flips,) = (line for line in result["lines"] if (line["row"], line["symbol"]) == ("standard", "mFR"))
    assert flips["ours"] == 1  # against itself
    relative = next(line for line in result["lines"] if (line["row"], line["symbol"]) == ("standard", "mCE/base"))
    assert relative["ours"] == 1


def test_printing_shows_labels_numbers_readings_and_what_is_left_out(results, capsys):
    from davylamp.report.text.console import make_console

    print_result(results("canary-table4"), make_console())
    printed = capsys.readouterr().out
    for text in ("other models, other data, other budget", "0.791", "AIAC: after minus"):
        assert text in printed
    print_result({**results("canary-table4"), "left_out": {"ZOO": "too slow"}}, make_console())
    assert "omitted: ZOO: too slow" in capsys.readouterr().out


def test_numbers_are_those_of_the_results_folder(results, tiny, tmp_path):
    """FGSM's MR, done again with the library itself."""
    lines = results("canary-table4")["lines"]  # our adapter quiets the import of the library
    import eagerpy
    import foolbox

    models, data = tiny
    fooled = []
    for model in models.values():
        right = model(data.inputs[:2]).argmax(1) == data.labels[:2]
        wrapped = foolbox.PyTorchModel(model, bounds=(0, 1), device="cpu")
        labels = eagerpy.astensor(data.labels[:2])
        attack = foolbox.attacks.LinfFastGradientAttack(random_start=False)
        _, examples, _ = attack(wrapped, eagerpy.astensor(data.inputs[:2]), labels, epsilons=16 / 255)
        wrong = model(examples.raw).argmax(1) != data.labels[:2]
        fooled.append(float((wrong & right).sum() / right.sum()))
    line = next(each for each in lines if (each["row"], each["symbol"]) == ("FGSM", "MR"))
    assert line["ours"] == pytest.approx(fmean(fooled))


def test_a_models_row_is_the_mean_over_the_attacks_of_table_8(results, folder):
    """Table 8's MR and AED again, by pandas from the records."""
    lines = {(group["row"], group["symbol"]): group["ours"] for group in results("canary-table8")["lines"]}
    records = pd.concat([load(part) for part in folder.glob("canary-*") if len(load(part)["cell"].unique()) == 48])
    small = records["epsilon"].round(4) == round(1 / 255, 4)
    names = records["attack"].str.split(" ").str[0]  # of those that learn, without what they learned from
    transferable = names.isin(["mi-fgsm", "vmi-fgsm", "ni-fgsm", "si-fgsm"])
    black = names.isin(["lsa", "tremba", "boundary", "spatial", "spsa", "hopskipjump", "genattack"])
    assert len(records["model"].unique()) == 2
    white = ~black & (~transferable | small) & (names != "ssah")  # as the paper's means are
    for kind, chosen in (("black", black), ("white", white)):
        for model, group in records[chosen].groupby("model"):
            cells = group.groupby("cell")
            assert len(cells) == {"black": 7, "white": 12}[kind]
            assert lines[f"{kind} {model}", "MR"] == pytest.approx(cells["MR"].mean().mean())
            wanted = cells["AED"].mean().mean() / math.sqrt(3)
            assert lines[f"{kind} {model}", "AED"] == (pytest.approx(wanted) if math.isfinite(wanted) else None)


def test_half_distortion_is_in_grey_levels(results, folder):
    lines = {(group["row"], group["symbol"]): group["ours"] for group in results("robic-table2")["lines"]}
    compared = 0
    for part in folder.glob("robic-*"):
        records = load(part)
        if set(records["attack"]) != {"bp", "surfree"}:
            continue
        for (model, attack), group in records.groupby(["model", "attack"]):  # pyright: ignore[reportGeneralTypeIssues]
            symbol = "D_half_white" if attack == "bp" else "D_half_black"
            distances = torch.tensor(group["distance"].to_numpy()) * 255 / math.sqrt(3 * 16 * 16)
            wanted = float(half_distortion(distances).value)
            assert lines[model, symbol] == (pytest.approx(wanted) if math.isfinite(wanted) else None)
            compared += 1
    assert compared == 4


def test_defence_is_measured_on_the_examples_of_the_undefended_model(results, tiny):
    """CCV of FGSM at 3/255 again, with the library itself."""
    printed = results("hikdeepsec-table1")["lines"]  # our adapter quiets the import of the library
    import eagerpy
    import foolbox

    models, data = tiny
    inputs, labels = data.inputs[:2], data.labels[:2]
    wrapped = foolbox.PyTorchModel(models["standard"], bounds=(0, 1), device="cpu")
    attack = foolbox.attacks.LinfFastGradientAttack(random_start=False)
    _, examples, _ = attack(wrapped, eagerpy.astensor(inputs), eagerpy.astensor(labels), epsilons=3 / 255)
    lines = {(each["row"], each["symbol"]): each["ours"] for each in printed}
    logits = [model(examples.raw) for model in models.values()]
    both = torch.stack([each.argmax(1) == labels for each in logits]).all(0)
    p, q = (each.double().softmax(1).gather(1, labels[:, None])[:, 0] for each in logits)
    assert both.any()
    assert lines["FGSM 3/255", "CCV"] == pytest.approx(float((p - q)[both].abs().mean()), rel=1e-5)
    for row in {row for row, _ in lines}:
        assert lines[row, "CAV"] == pytest.approx(lines[row, "CRR"] - lines[row, "CSR"])


def test_transferred_examples_are_those_of_the_surrogate(tiny):
    """Accuracy on PGD's examples again, with the library itself."""
    models, data = tiny
    surrogate = small_models.load_small_model("inception")
    options = Options(quick=True, models={**models, "Inception-V3": surrogate}, data=data, limit=2)
    printed = TABLES["aisafety-table3"].run(options)["lines"]  # our adapter quiets the import of the library
    import eagerpy
    import foolbox

    inputs, labels = data.inputs[:2], data.labels[:2]
    wrapped = foolbox.PyTorchModel(surrogate, bounds=(0, 1), device="cpu")
    attack = foolbox.attacks.LinfPGD(steps=5, abs_stepsize=2.5 * 0.03 / 5, random_start=False)
    _, examples, _ = attack(wrapped, eagerpy.astensor(inputs), eagerpy.astensor(labels), epsilons=0.03)
    wanted = float((models["pgd-training"](examples.raw).argmax(1) == labels).double().mean())
    lines = [line for line in printed if line["row"] == "pgd-training, PGD-linf from Inception-V3"]
    assert [line["ours"] for line in lines] == [wanted, wanted]
    assert [line["beside"] for line in lines] == ["CIFAR-10 PAT", "SVHN PAT"]


def test_a_relu_in_several_places_is_a_layer_in_each():
    """An inplace one, too, and in passes of 32 images; two of its own give the same."""
    from davylamp.adapters import Classifier
    from davylamp.benchmarks.aisafety.coverage import read_activations

    torch.manual_seed(0)
    first, second = nn.Linear(4, 5), nn.Linear(5, 3)
    shared = nn.ReLU()
    one = nn.Sequential(nn.Flatten(), first, shared, second, shared)
    two = nn.Sequential(nn.Flatten(), first, nn.ReLU(), second, nn.ReLU())
    inputs = torch.rand(300, 1, 2, 2)
    ours, theirs = (read_activations(Classifier(net, num_classes=3), inputs) for net in (one, two))
    assert [layer.shape for layer in ours] == [(300, 5), (300, 3)]
    assert all(map(torch.equal, ours, theirs))


def test_coverage_of_the_profiled_set_itself_goes_beyond_nothing(tiny):
    from davylamp.benchmarks.aisafety import coverage as aisafety_coverage

    models, data = tiny
    layers = aisafety_coverage.read_activations(models["standard"], data.inputs)
    assert [layer.shape[0] for layer in layers] == [4, 4]
    low, high = aisafety_coverage.read_ranges(models["standard"], data.inputs)
    assert torch.equal(low, torch.cat(layers, 1).amin(0))
    assert torch.equal(high, torch.cat(layers, 1).amax(0))
    itself = aisafety_coverage._cover(layers, low, high)
    assert itself["NBCov"] == itself["SNACov"] == 0
    doubled = aisafety_coverage._cover([2 * layer for layer in layers], low, high)
    alive = torch.cat(layers, 1).amax(0) > 0
    assert doubled["SNACov"] == pytest.approx(float(alive.double().mean()))


def test_orders_that_a_text_states_are_counted_in_pairs():
    from davylamp.benchmarks.fooling import figures as fooling_figures

    values = {"FGSM": 0.5, "PGD": 0.4, "DeepFool": 0.3, "CW": 0.45, "UAP": 0.6, "I-FGSM-LL": 0.2}
    rows = {name: {"QI_Wup": Estimate(v, v, v, 9), "QI_Vis": Estimate(1 - v, 0, 1, 9)} for name, v in values.items()}
    statements = list(fooling_figures.judge("fooling_figures", rows))
    assert any("image-agnostic" in line and line.endswith("4 of 4 pairs of attacks here") for line in statements)
    assert any(
        "DeepFool and CW do the least" in line and line.endswith("5 of 8 pairs of attacks here") for line in statements
    )


def test_undefined_and_incomparable_numbers_are_null():
    nothing = Estimate(math.nan, math.nan, math.nan, 0)
    line = plain_line(PaperLine("row", "MR", nothing, 0.5, "theirs"), "digits")
    assert (line["ours"], line["low"], line["difference"], line["n"]) == (None, None, None, 0)
    known = PaperLine("row", "FDL", Estimate(0.25, 0.125, 0.5, 4), 0.5, "theirs", "another reading")
    assert plain_line(known)["difference"] is None
    assert plain_line(known._replace(why=""), "other model")["difference"] is None
    assert plain_line(known._replace(why=""))["difference"] == -0.25


@pytest.mark.parametrize(
    ("data", "data_set"),
    [
        ("digits", "digits"),
        ("demo:cifar10+fog:1", "CIFAR-10+fog:1"),
        ("demo:cifar10", "CIFAR-10"),
        ("torchvision:cifar10:/data", "CIFAR-10"),
        ("torchvision:cifar10-train:/data", ""),
        ("torchvision:svhn", "SVHN"),
        ("demo:tiny-imagenet", "Tiny-ImageNet"),
        ("npz:cifar10", ""),
        ("imagefolder:imagenet", ""),
    ],
)
def test_data_sets_are_known_by_names_that_say_them(data, data_set):
    assert data_set_of(data) == data_set


@pytest.mark.parametrize(
    ("mine", "theirs", "model", "row", "why"),
    [
        ("CIFAR-10", "CIFAR-10", "mine", "PAT", ""),
        ("SVHN", "CIFAR-10", "mine", "PAT", "SVHN, not CIFAR-10"),
        ("unknown data", "CIFAR-10", "mine", "PAT", "unknown data, not CIFAR-10"),
        ("CIFAR-10", "CIFAR-10", "stand-in", "VANILLA", "other model"),
        ("CIFAR-10", "CIFAR-10", "nobody", "", "other model"),
        ("CIFAR-10", "CIFAR-10", None, None, "1 of 2 models"),
        ("data", "", "mine", "PAT", ""),
    ],
)
def test_a_difference_is_of_the_papers_model_on_the_papers_data(mine, theirs, model, row, why):
    models = {"mine": Counterpart("PAT", same=True), "stand-in": Counterpart("VANILLA"), "nobody": Counterpart()}
    pairing = Pairing(models, ("VANILLA", "PAT"), mine)
    assert pairing.why_other(model, row, theirs) == why
    line = plain_line(PaperLine("row", "MR", Estimate(0.25, 0.125, 0.5, 4), 0.5, "theirs"), why)
    assert line["difference"] == (None if why else -0.25)
    console = Console(file=io.StringIO(), width=200)
    other = {**line, "difference": 0.125, "no_difference": ""}
    print_result({**_RESULT, "lines": [line, other]}, console)
    assert (f"1 of 2 numbers ({why})" if why else "-0.25") in console.file.getvalue().replace("for 1 of", "1 of")


def test_the_mean_over_all_of_the_papers_models_needs_all_of_them():
    models = {"a": Counterpart("VANILLA", same=True), "b": Counterpart("PAT", same=True)}
    assert Pairing(models, ("VANILLA", "PAT"), "SVHN").why_other(None, None, "SVHN") == ""
    assert Pairing({**models, "c": Counterpart()}, ("VANILLA", "PAT"), "SVHN").why_other(None, None, "SVHN") != ""


_RESULT = {
    "table": "t",
    "stand_ins": "Stand-ins: digits for SVHN.",
    "source": "a paper",
    "labels": ["other data"],
    "models": ["net"],
    "data": "digits",
    "images": 4,
    "budget": "the paper's",
    "readings": {},
    "left_out": {},
    "notes": [],
    "seconds": 1.0,
}


def test_of_two_numbers_beside_the_same_published_one_the_first_stays():
    line = {"symbol": "AAW", "beside": "CIFAR-10 VANILLA"}
    first = {**_RESULT, "data": "demo:cifar10", "images": 2, "lines": [{**line, "row": "resnet, PGD-linf"}]}
    rest = [
        {**line, "row": "digits:standard, PGD-linf"},
        {**line, "row": "digits:standard, PGD-linf", "beside": "SVHN VANILLA"},
        {**line, "row": "digits:standard, PGD-linf from digits:inception"},
    ]
    joined = join_results([first, {**_RESULT, "labels": ["other data", "other budget"], "lines": rest}])
    assert joined["lines"] == [*first["lines"], *rest[1:]]
    assert (joined["data"], joined["images"]) == ("demo:cifar10 and digits", 6)
    assert joined["labels"] == ["other data", "other budget"]


def test_cifar_rows_stand_beside_the_resnet_and_the_rest_beside_digits():
    from davylamp.benchmarks.aisafety import setting as aisafety

    small = aisafety.setting_of(("PGD-linf",), "aisafety_table2", transferred=("PGD-l2",))
    for options, wanted in (
        (Options(), ["demo:cifar10", "digits"]),
        (Options(data="digits"), ["digits"]),
        (Options(data="npz:cifar.npz"), ["demo:cifar10"]),
        (Options(models=("digits:trades",)), ["digits"]),
        (Options(models=("demo:cifar10-resnet18",)), ["demo:cifar10"]),
        (Options(models=("net.py:net",), data="npz:x.npz"), ["digits"]),
    ):
        assert [part.data for part in aisafety._parts("aisafety_table2", small, options)] == wanted
    cifar = aisafety._on_cifar("aisafety_table2", small)
    assert cifar.default.models == ("demo:cifar10-resnet18",)
    assert [choice.surrogate for choice in cifar.config.attacks] == [()]
    for table, model, row in (
        ("aisafety_table2", "demo:cifar10-resnet18", "VANILLA"),
        ("aisafety_table4", "demo:cifar10-resnet18+resize-pad", "RAND"),
        ("aisafety_table2", "digits:fgsm-training", "SAT"),
        ("aisafety_table4", "digits:fgsm-training", "NAT"),
        ("aisafety_table6", "digits:fgsm-training", "NAT"),
        ("aisafety_table2", "mine.py:net", ""),
    ):
        assert aisafety.recognise(model, table=table) == Counterpart(row)
    for dataset, drop in (("CIFAR-10", -0.064), ("SVHN", 0.001)):  # CA of SAT less CA of VANILLA is NAT's CAV
        labels = {"dataset": dataset, "attack": "CLEAN"}
        clean = [find_value("aisafety_table2", "CA", model=model, **labels) for model in ("SAT", "VANILLA")]
        cav = find_value("aisafety_table4", "CAV", dataset=dataset, model="NAT")
        assert clean[0] - clean[1] == pytest.approx(drop, abs=1e-9)
        assert abs(cav - drop) < 1.5e-3


def test_results_are_kept_resumed_and_never_mixed_with_those_of_another_size(tiny, tmp_path):
    canary_table7 = TABLES["canary-table7"]
    models, data = tiny
    seen: list[str] = []
    options = {"models": models, "data": data, "limit": 2, "out": tmp_path}
    first = canary_table7.run(Options(quick=True, **options))
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}
    again = canary_table7.run(Options(quick=True, progress=lambda name, _: seen.append(name), **options))
    assert again["lines"] == first["lines"]
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")} == written
    canary_table7.run(Options(quick=True, **{**options, "limit": 3}))
    assert len(list(tmp_path.iterdir())) == 2


def test_full_runs_the_papers_own_budgets():
    from davylamp.benchmarks.canary.setting import SETTING

    cut = reproduction.shrink(SETTING.config, SETTING.default)
    for before, after in zip(SETTING.config.attacks, cut.attacks, strict=True):
        assert after.parameters["max_queries"] <= 60
        assert after.parameters.get("steps", 0) <= 8
        limits = {"at-saturation(art:jsma)": 4000, "foolbox:hopskipjump": 200}
        assert before.parameters.get("max_queries", 10_000) == limits.get(before.attack, 10_000)
    assert {limits.attack for limits in cut.attacks} == {limits.attack for limits in SETTING.config.attacks}


def test_small_models_learn_and_the_defended_ones_withstand_more(monkeypatch, tmp_path):
    """On a part of the digits: enough to tell them apart, a fraction of the time."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(small_models, "TRAINED_ON", 500)
    data = small_models.load_digits_data(100)
    accuracy, robust = {}, {}
    for name, model in small_models.small_models().items():
        accuracy[name] = float((model.predict_logits(data.inputs).argmax(1) == data.labels).double().mean())
        rules = ("linf", small_models.EPSILON, 5, 0.05)
        start = initial_perturbation(data.inputs, "linf", small_models.EPSILON, "none")
        adv = ascend(data.inputs, start, lambda x, m=model: nn.functional.cross_entropy(m(x), data.labels), rules)
        assert float((adv - data.inputs).abs().max()) <= small_models.EPSILON + 1e-6
        robust[name] = float((model.predict_logits(adv).argmax(1) == data.labels).double().mean())
    assert min(accuracy.values()) > 0.6
    assert min(robust["pgd-training"], robust["trades"]) > robust["standard"] + 0.1
    surrogate = small_models.load_small_model("inception").predict_logits(data.inputs).argmax(1)
    assert float((surrogate == data.labels).double().mean()) > 0.6
    assert len(list(tmp_path.rglob("*.pt"))) == 4
    again = small_models.load_small_model("trades")
    assert torch.equal(again(data.inputs[:2]), small_models.load_small_model("trades")(data.inputs[:2]))


def test_the_command_lists_runs_and_refuses(capsys, monkeypatch):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["davylamp", "reproduce", *arguments])
        try:
            cli.main()
            code = 0
        except SystemExit as stop:
            code = stop.code or 0
        return code, *capsys.readouterr()

    assert set(TABLES) == set(json.loads(str(run("--json")[1])))
    code, out, _ = run("checks", "--json")
    assert code == 0
    assert json.loads(str(out))["held"] > 70
    assert "misprint" in str(run("checks")[1])
    for arguments in (("checks", "--limit", "3"), ("canary-table4", "--quick", "--full"), ("canary-table44",)):
        code, out, errors = run(*arguments)
        assert code == 1
        assert out == ""
        assert errors.count("\n") == 1


def test_places_of_half_distortions_are_those_of_scipy():
    from scipy.stats import rankdata

    from davylamp.benchmarks.robic.ranking import rank_replicates

    halves = np.array([[3.0, 1, 2, 1], [0.5, math.inf, 0.1, 4], [math.nan, 2, math.inf, 1]])
    expected = [rankdata(np.where(np.isnan(row), math.inf, row)) for row in halves]
    np.testing.assert_array_equal(rank_replicates(halves), expected)


def test_attacks_are_ranked_by_the_half_distortions_of_the_results(results, folder):
    lines = results("robic-figures-ranking")["lines"]
    for model in ("standard", "pgd-training"):
        for names in ({"SurFree", "RayS", "GeoDA", "QEBA"}, {"BP", "CW", "PGD, best effort"}):
            rows = [
                line
                for line in lines
                if line["row"].endswith(f" on {model}") and line["row"].rpartition(" on ")[0] in names
            ]
            halves = [math.inf if line["ours"] is None else line["ours"] for line in rows if line["symbol"] == "D_half"]
            places = [line["ours"] for line in rows if line["symbol"] == "rank"]
            assert len(halves) == len(places) == len(names)
            assert halves == sorted(halves)
            known = [place for place in places if place is not None]  # the others have invalid results alone
            assert known == sorted(known)
            assert known
            assert sum(known) == len(known) * (len(known) + 1) / 2
    published = {line["row"].rpartition(" on ")[0]: line["published"] for line in lines if line["symbol"] == "rank"}
    assert (published["SurFree"], published["RayS"], published["BP"]) == (1, 3, 2)


def test_platforms_are_counted_from_the_lists():
    from davylamp.adapters import IMPLEMENTATIONS
    from davylamp.metrics import METRICS

    for name, wanted in (
        ("canary-table3", {"metrics": len(METRICS), "attacks": len({row.attack for row in IMPLEMENTATIONS.values()})}),
        ("aisafety-table10", {"attacks": 1, "competition": 1, "scenarios": 0}),
    ):
        table = TABLES[name]
        result = table.run(Options())
        ours = {line["column"]: line["ours"] for line in result["lines"]}
        assert wanted.items() <= ours.items()
        (part,) = table.grid(result)
        rows = dict(part.rows)
        assert list(rows)[-1] == ("davylamp",)
        assert all(cell.published is None for cell in rows["davylamp",])
        console = Console(file=io.StringIO(), width=200)
        table.print(result, console)
        assert "davylamp" in console.file.getvalue()
    assert find_value("canary_table3", "metrics", tool="AISafety") == 23  # as section VI of that paper says
    assert find_value("canary_table3", "attacks", tool="DEEPSEC") == 16


def test_the_correlation_of_figure_3_is_that_of_the_points(results):
    result = results("robic-figure3")
    (line,) = (line for line in result["lines"] if line["symbol"] == "r")
    published = [(row["D_half_white"], row["D_half_black"]) for row in load_published("robic_table2")["rows"]]
    assert line["published"] == pytest.approx(np.corrcoef(np.array(published).T)[0, 1])
    assert line["published"] == pytest.approx(0.866, abs=5e-4)
    assert line["no_difference"]
    assert line["ours"] is None  # of two models
    from davylamp.benchmarks.robic.table2 import _correlation

    assert _correlation([1, 2, 3, math.inf], [2, 4, 7, 1]) == pytest.approx(np.corrcoef([1, 2, 3], [2, 4, 7])[0, 1])
    assert math.isnan(_correlation([1, 1, 1], [2, 4, 7]))


def test_the_ends_of_figure_7_are_the_highest_and_lowest_rates(results, folder):
    lines = [line for line in results("canary-figure7")["lines"] if line["row"].startswith("standard, ")]
    records = pd.concat([load(part) for part in folder.glob("canary-*") if len(load(part)["cell"].unique()) == 48])
    rates = sorted(records[records["model"] == "standard"].groupby("cell")["MR"].mean())
    ours = {line["row"].partition(": ")[0]: line["ours"] for line in lines}
    assert [ours[f"standard, best {place}"] for place in (1, 2, 3)] == pytest.approx(rates[:-4:-1])
    assert [ours[f"standard, worst {place}"] for place in (1, 2, 3)] == pytest.approx(rates[:3])


def test_the_ranks_of_figure_6_and_the_statements_about_them(results):
    from davylamp.benchmarks.canary import figures

    values = {"FGSM": 0.2, "AdvGan": 0.4, "LSA": 0.3}
    rows = {name: {"ALMS": Estimate(value, value, value, 9)} for name, value in values.items()}
    rows["HSJA"] = {"ALMS": Estimate(math.nan, math.nan, math.nan, 0)}
    titles = [line.row for line in figures._ranked("net", rows, ["ALMS"])]
    ranked = [f"net, {name}: rank {place} of 3" for place, name in enumerate(("AdvGan", "LSA", "FGSM"), 1)]
    assert titles == [*ranked, "net, HSJA: not ranked"]
    held = [line.rpartition(": ")[2] for line in figures._judged("canary_figures", rows)]
    assert held == ["0 of 0 pairs here", "0 of 2 pairs here"]  # LSA and FGSM against AdvGan
    small = results("canary-figure6")  # 16 pixels are too few for ALMS, and there are no VGG16 weights for ADMS
    assert all(line["ours"] is None for line in small["lines"])
    assert any(note.startswith("ALMS has no value") for note in small["notes"])


def test_seconds_per_image_are_those_of_the_attacks_together(results, folder):
    (line,) = (line for line in results("robic-table1")["lines"] if line["row"] == "standard, RoBIC")
    assert line["no_difference"] == "other machine"
    for part in folder.glob("results-*"):
        records = load(part)
        if set(records["attack"]) == {"bp", "surfree"}:
            each = records[records["model"] == "standard"].groupby("attack")["seconds"].mean()
            assert line["ours"] == pytest.approx(each.sum())
            break
    else:
        pytest.fail("no results of RoBIC's attacks")
