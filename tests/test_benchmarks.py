"""Published numbers and their sources, every reproduction on tiny models, and what the papers say about themselves."""

import importlib
import io
import json
import math
import sys
from itertools import combinations
from pathlib import Path
from statistics import fmean

import pytest
import torch
from rich.console import Console
from torch import nn

from davylamp import cli
from davylamp.adapters import Classifier
from davylamp.benchmarks import paper_checks, reproduction, small_models
from davylamp.benchmarks.canary_checks import TABLE8_WHITE
from davylamp.benchmarks.paper_numbers import find_value, load_published
from davylamp.commands.reproduce import REPRODUCTIONS
from davylamp.engine.bootstrap import Estimate

PUBLISHED = sorted((Path(reproduction.__file__).parent / "published").glob("*.json"))
WITHOUT_MODELS = ("checks", "canary-table9")
# (rows, numbers) of each table, counted in the papers.
SHAPES = {
    "canary_table4": (24, 144),
    "canary_table5": (24, 230),
    "canary_table6": (4, 12),
    "canary_table7": (15, 45),
    "canary_table8": (30, 360),
    "canary_table9": (15, 105),
    "aisafety_table2": (40, 40),
    "aisafety_table3": (48, 48),
    "aisafety_table4": (8, 40),
    "aisafety_table5": (8, 16),
    "aisafety_table6": (24, 96),
    "aisafety_table7": (24, 96),
    "aisafety_table8": (16, 48),
    "aisafety_table9": (16, 48),
    "fooling_table1": (28, 28),
    "robic_table2": (16, 64),
    "hikdeepsec_table1": (9, 54),
    "hikdeepsec_table2": (9, 54),
}


@pytest.mark.parametrize("file", PUBLISHED, ids=lambda file: file.stem)
def test_every_published_file_says_where_it_is_from(file):
    found = json.loads(file.read_text(encoding="utf-8"))
    assert len(found["source"]) > 40
    assert found.get("unit") or found.get("note")
    assert found["rows"]
    labels = [tuple(sorted((k, str(v)) for k, v in row.items() if not isinstance(v, float))) for row in found["rows"]]
    assert len(set(labels)) == len(labels) or file.stem in ("fooling_table1", "canary_table7"), "two rows are alike"


@pytest.mark.parametrize("table", SHAPES)
def test_published_tables_are_whole(table):
    rows = load_published(table)["rows"]
    numbers = [v for row in rows for v in row.values() if isinstance(v, (int, float)) and not isinstance(v, bool)]
    assert (len(rows), len(numbers)) == SHAPES[table]
    assert all(math.isfinite(number) for number in numbers)


def test_printed_numbers_are_those_of_the_papers():
    assert find_value("canary_table4", "MR", attack="SSAH") == 0.784
    assert find_value("canary_table4", "OTR", attack="VMI-FGSM", epsilon="16/255") == 0.621
    assert find_value("canary_table5", "QNC_F", attack="LSA") == 200
    assert find_value("canary_table5", "AED", attack="FGSM") == 0.03528
    assert find_value("canary_table6", "ARTC", attack="MI-FGSM") == 0.34187
    assert find_value("aisafety_table2", "AAW", dataset="SVHN", model="TRADES", attack="PGD-linf") == 0.518
    assert find_value("aisafety_table7", "TKNCov", model="TRADES", attack="PGD-l2") == 0.003
    assert find_value("robic_table2", "D_half_black", model="ResNet50 AdvTrain") == 9.88
    assert find_value("fooling_table1", "FR_AUC", attack="PGD", model="GoogLeNet") == 0.83
    assert find_value("hikdeepsec_table2", "CSR", attack="BIM", epsilon="3/255") == 0.0128


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
def results(tiny, digits, tmp_path_factory):
    """What every reproduction hands back on them, by name; evaluations that are alike are done once."""
    models, data = tiny
    folder = tmp_path_factory.mktemp("results")
    known = {}

    def run(name):
        if name not in known:
            module = importlib.import_module(f"davylamp.benchmarks.{REPRODUCTIONS[name][0]}")
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("davylamp.benchmarks.aisafety_coverage.load_training_inputs", lambda: digits.inputs)
                known[name] = module.run(quick=True, models=models, data=data, limit=2, out=folder)
        return known[name]

    return run


@pytest.mark.parametrize("name", [name for name in REPRODUCTIONS if name not in WITHOUT_MODELS])
def test_every_reproduction_runs_and_says_what_it_is_compared_with(results, name):
    result = results(name)
    document = json.loads(json.dumps(result, allow_nan=False))
    assert result["labels"][:2] == ["other models", "other data"]
    assert document["source"] == load_published(result["table"])["source"]
    assert result["lines"]
    assert result["images"] == 2
    assert {"readings", "left_out", "notes", "budget", "models", "data"} <= set(result)
    for line in result["lines"]:
        assert set(line) == {"row", "symbol", "ours", "low", "high", "n", "published", "difference", "beside"}
        if line["difference"] is not None:
            assert line["difference"] == pytest.approx(line["ours"] - line["published"])
        if None not in (line["ours"], line["low"]):
            top = math.inf if line["high"] is None else line["high"]
            assert line["low"] - 1e-12 <= line["ours"] <= top + 1e-12
        assert line["n"] >= (line["ours"] is not None)
    reproduction.print_result(result, Console(file=io.StringIO(), width=300))
    symbols = {line["symbol"] for line in result["lines"]}
    if name not in ("robic-figure1", "robic-figure2", "fooling-figures"):
        assert all(
            any(line["published"] is not None for line in result["lines"] if line["symbol"] == s) for s in symbols
        )


def test_printing_shows_labels_numbers_readings_and_what_is_left_out(results, capsys):
    from davylamp.report.tables import make_console

    reproduction.print_result(results("canary-table4"), make_console())
    printed = capsys.readouterr().out
    for text in ("other models, other data, other budget", "0.791", "left out: SSAH: no library", "AIAC: after minus"):
        assert text in printed


def test_numbers_are_those_of_the_results_folder(results, tiny, tmp_path):
    """FGSM's MR, done again with the library itself."""
    import eagerpy
    import foolbox

    models, data = tiny
    fooled = []
    for model in models.values():
        right = model(data.inputs[:2]).argmax(1) == data.labels[:2]
        wrapped = foolbox.PyTorchModel(model, bounds=(0, 1))
        labels = eagerpy.astensor(data.labels[:2])
        attack = foolbox.attacks.LinfFastGradientAttack(random_start=False)
        _, examples, _ = attack(wrapped, eagerpy.astensor(data.inputs[:2]), labels, epsilons=16 / 255)
        wrong = model(examples.raw).argmax(1) != data.labels[:2]
        fooled.append(float((wrong & right).sum() / right.sum()))
    line = next(own for own in results("canary-table4")["lines"] if (own["row"], own["symbol"]) == ("FGSM", "MR"))
    assert line["ours"] == pytest.approx(fmean(fooled))


def test_defence_is_measured_on_the_examples_of_the_undefended_model(results):
    lines = {(own["row"], own["symbol"]): own["ours"] for own in results("hikdeepsec-table1")["lines"]}
    rows = {row for row, _ in lines}
    assert len(rows) == 9
    for row in rows:
        assert lines[row, "CAV"] == pytest.approx(lines[row, "CRR"] - lines[row, "CSR"])
        assert lines[row, "ACC"] - lines[row, "CAV"] <= 1 + 1e-12


def test_undefined_and_incomparable_numbers_are_null():
    nothing = Estimate(math.nan, math.nan, math.nan, 0)
    line = reproduction._plain_line(reproduction.Line("row", "MR", nothing, 0.5, "theirs"))
    assert (line["ours"], line["low"], line["difference"], line["n"]) == (None, None, None, 0)
    known = reproduction.Line("row", "FDL", Estimate(0.25, 0.125, 0.5, 4), 0.5, "theirs", comparable=False)
    assert reproduction._plain_line(known)["difference"] is None
    assert reproduction._plain_line(known._replace(comparable=True))["difference"] == -0.25


def test_results_are_kept_resumed_and_never_mixed_with_those_of_another_size(tiny, tmp_path):
    from davylamp.benchmarks import canary_table7

    models, data = tiny
    seen: list[str] = []
    options = {"models": models, "data": data, "limit": 2, "out": tmp_path}
    first = canary_table7.run(quick=True, **options)
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}
    again = canary_table7.run(quick=True, progress=lambda name, _: seen.append(name), **options)
    assert again["lines"] == first["lines"]
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")} == written
    canary_table7.run(quick=True, **{**options, "limit": 3})
    assert len(list(tmp_path.iterdir())) == 2


def test_full_runs_the_papers_own_budgets():
    from davylamp.benchmarks.canary_setting import SETTING

    cut = reproduction.shrink(SETTING.config, SETTING.default)
    for before, after in zip(SETTING.config.attacks, cut.attacks, strict=True):
        assert after.parameters["max_queries"] <= 100
        assert after.parameters.get("steps", 0) <= 10
        assert before.parameters.get("max_queries", 10_000) == 10_000
    assert {own.attack for own in cut.attacks} == {own.attack for own in SETTING.config.attacks}


def test_what_the_papers_say_about_themselves():
    found = {(check["paper"], check["statement"]): check for check in paper_checks.run()["checks"]}
    failing = {key for key, check in found.items() if not check["holds"]}
    by_paper = {paper: sum(key[0] == paper for key in failing) for paper, _ in found}
    assert by_paper["CANARY 5.4.2, Table 8"] == 0
    assert by_paper["CANARY, Tables 4 and 6"] == 0
    assert by_paper["CANARY, Table 9"] == 0
    assert by_paper["AISafety, Table IV"] == 0
    assert by_paper["RoBIC, eq. 3 and 4"] == by_paper["RoBIC, eq. 3"] == 0
    assert ("HikDeep-Sec, Table 1", "CAV = CRR - CSR, FGSM 2/255") in failing
    assert by_paper["HikDeep-Sec, Table 1"] == 1
    assert by_paper["HikDeep-Sec, Table 2"] == 0
    assert ("AISafety, Tables II and IV", "CAV = CA - CA(VANILLA), CIFAR-10 TRADES") in failing
    assert by_paper["AISafety, Tables II and IV"] == 1
    means = {key[1]: check for key, check in found.items() if key[0] == "CANARY 5.4.2, Table 8"}
    assert means["mean MR (white) of all, 15"]["computed"] == pytest.approx(1402.6 / 1500)
    assert means["mean MR (black) of all, 15"]["computed"] == pytest.approx(773.6 / 1500)
    assert all(found[key]["note"] for key in failing)


def test_table_8_is_over_the_only_twelve_attacks_that_give_its_means():
    """Leaving an attack out, or another one in, or exchanging one misses a mean by more than rounding explains."""
    symbols = ("MR", "AIAC", "ARTC")
    rows = {(row["attack"], row.get("epsilon", "")): row for row in load_published("canary_table4")["rows"]}
    table8 = [row for row in load_published("canary_table8")["rows"] if row["attack_type"] == "white"]
    target = [fmean(row[symbol] for row in table8) for symbol in symbols]

    def fits(names):
        means = [fmean(rows[name][symbol] for name in names) for symbol in symbols]
        return all(abs(mean - wanted) <= 1e-3 for mean, wanted in zip(means, target, strict=True))

    chosen = set(TABLE8_WHITE)
    others = set(rows) - chosen
    assert fits(chosen)
    neighbours = [chosen - {name} for name in chosen] + [chosen | {name} for name in others]
    neighbours += [chosen - {out} | {new} for out in chosen for new in others]
    neighbours += [chosen - set(two) for two in combinations(chosen, 2)]
    assert not any(fits(names) for names in neighbours)


def test_swapping_two_columns_of_four_rows_mends_the_attention_of_table_8():
    rows = {(row["attack"], row.get("epsilon", "")): row for row in load_published("canary_table4")["rows"]}
    table8 = [row for row in load_published("canary_table8")["rows"] if row["attack_type"] == "white"]
    for symbol, other in (("ACAMC_A", "ACAMC_T"), ("ACAMC_T", "ACAMC_A")):
        values = [rows[name][other if name[1] == "1/255" else symbol] for name in TABLE8_WHITE]
        assert fmean(values) == pytest.approx(fmean(row[symbol] for row in table8), abs=1e-3)


def test_small_models_learn_and_the_defended_ones_withstand_more(monkeypatch, tmp_path):
    """On a part of the digits: enough to tell them apart, a fraction of the time."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(small_models, "TRAINED_ON", 500)
    monkeypatch.setattr(small_models, "_EPOCHS", 4)
    data = small_models.load_digits_data(100)
    accuracy, robust = {}, {}
    for name, model in small_models.small_models().items():
        accuracy[name] = float((model.predict_logits(data.inputs).argmax(1) == data.labels).double().mean())
        adv = small_models._ascend(data.inputs, lambda x, m=model: nn.functional.cross_entropy(m(x), data.labels))
        assert float((adv - data.inputs).abs().max()) <= small_models.EPSILON + 1e-6
        robust[name] = float((model.predict_logits(adv).argmax(1) == data.labels).double().mean())
    assert min(accuracy.values()) > 0.6
    assert min(robust["pgd-training"], robust["trades"]) > robust["standard"] + 0.1
    assert len(list(tmp_path.rglob("*.pt"))) == 3
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

    assert set(REPRODUCTIONS) == set(json.loads(run("--json")[1]))
    code, out, _ = run("checks", "--json")
    assert code == 0
    assert json.loads(out)["held"] > 70
    assert "misprint" in run("checks")[1]
    for arguments in (("checks", "--limit", "3"), ("canary-table4", "--quick", "--full"), ("canary-table44",)):
        code, out, errors = run(*arguments)
        assert code == 1
        assert out == ""
        assert errors.count("\n") == 1
