"""Robust accuracy over several threat models and by true class, against counts by hand and SciPy's exact interval."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import binomtest

import davylamp
from davylamp.adapters import ThreatModel
from davylamp.engine.attack_run import AttackRun
from davylamp.engine.sharing.open_results import open_results
from davylamp.engine.store.results import read_outcomes
from davylamp.engine.tables.groups import find_union
from davylamp.engine.tables.table import build_table
from davylamp.errors import InvalidInput, Unsupported
from davylamp.report.text.latex_metrics import table_latex
from davylamp.report.text.tables import table_json

N, CLASSES = 90, 3
NORMS = {"linf": 8 / 255, "l2": 0.5, "l1": 12.0}
TEXT = "l1 12 + l2 0.5 + linf 8/255"


class Case:
    """A model on images of three classes, of which the first six are wrong when clean."""

    def __init__(self, writer, seed=0, model="net"):
        self.random, self.writer = np.random.default_rng(seed), writer
        self.labels = self.random.integers(CLASSES, size=N)
        self.right = np.arange(N) >= 6
        true = torch.as_tensor(self.labels)
        self.clean = torch.nn.functional.one_hot(true, CLASSES) * 4.0
        self.clean[:6] = self.clean[:6].roll(1, 1)
        self.subject = writer.clean(model, self.clean, true)

    def attack(self, name, norm="linf", epsilon: float | None = 8 / 255, rate=0.2, invalid=0.0, **spec):
        """Write a run of random outcomes; return the images that are robust, and those that may be."""
        fooled, bad = self.random.random(N) < rate, self.random.random(N) < invalid
        adv = torch.where(torch.as_tensor(fooled)[:, None], self.clean.roll(1, 1), self.clean)
        spec |= {"norm": norm, "epsilon": epsilon, "violated": torch.as_tensor(bad)}
        self.writer.cell(self.subject, name, self.clean, adv, torch.as_tensor(self.labels), **spec)
        return self.right & ~fooled & ~bad, self.right & (~fooled | bad)


def exact(least, most, level=0.95):
    """The share of images, the lower end where undecided ones count 0, the upper end where they count 1, and n."""
    low = binomtest(int(least.sum()), len(least)).proportion_ci(level, "exact").low
    return least.mean(), low, binomtest(int(most.sum()), len(most)).proportion_ci(level, "exact").high, len(least)


def both(results):
    return tuple(np.all(each, axis=0) for each in zip(*results, strict=True))


def rows_of(folder, **options):
    return build_table(folder, by="models", metrics=["RA", "RA_union"], **options).rows


@pytest.mark.parametrize("invalid", [0.0, 0.1])
def test_an_image_is_robust_under_every_attack_of_every_threat_model(writer, invalid):
    case = Case(writer)
    results = [case.attack("foolbox:pgd", norm, epsilon, invalid=invalid) for norm, epsilon in NORMS.items()]
    results.append(case.attack("art:pgd", "l2", 0.5, invalid=invalid))
    case.attack("foolbox:boundary", "l2", None, rate=1.0)  # no radius: no threat model
    case.attack("foolbox:pgd", rate=1.0, target="random")  # a target: a different question
    expected = exact(*both(results))
    rows = rows_of(writer.store.folder)
    inside = [row for row in rows if row.labels["epsilon"] > 0 and not row.labels["targeted"]]
    assert (len(rows), len(inside)) == (5, 3)
    for row in inside:
        assert row.metrics["RA_union"] == pytest.approx(expected)
        assert row.metrics["RA_union"].value < row.metrics["RA"].value
    assert all(np.isnan(row.metrics["RA_union"].value) for row in rows if row not in inside)
    (mixed,) = rows_of(writer.store.folder, all_threat_models=True)
    assert mixed.metrics["RA_union"] == pytest.approx(expected)
    assert mixed.metrics["RA"].value == 0  # also over the attack without a radius and the targeted one


def test_a_table_has_the_union_if_there_are_several_norms(writer):
    case = Case(writer)
    case.attack("foolbox:pgd")
    folder = writer.store.folder
    with pytest.raises(Unsupported, match="linf 8/255"):
        rows_of(folder)
    results = [case.attack("foolbox:pgd", "linf", 0.05), case.attack("foolbox:pgd", "linf", 0.1)]
    assert "RA_union" not in build_table(folder, by="models").symbols  # radii of one norm: on request only
    assert find_union(read_outcomes(folder)).threat_models == ("linf 8/255", "linf 0.05", "linf 0.1")
    assert len({row.metrics["RA_union"] for row in rows_of(folder)}) == 1
    case.attack("foolbox:pgd", "l2", 0.5)
    table = build_table(folder, by="models")
    assert table.symbols[:3] == ("CA", "RA", "RA_union")
    (finding,) = (each for each in table.findings if each.name == "union")
    assert finding.numbers["threat_models"] == "l2 0.5 + linf 8/255 + linf 0.05 + linf 0.1"
    shown = json.loads(table_json(table))["rows"][0]["metrics"]["RA_union"]
    assert shown["value"] == table.rows[0].metrics["RA_union"].value < results[1][0].mean()
    assert r"RA\_union" in table_latex(table)
    with pytest.raises(Unsupported):
        build_table(folder, by="attacks", metrics=["RA_union"])


def test_models_need_the_same_threat_models(writer):
    one, two = Case(writer, model="one"), Case(writer, model="two", seed=1)
    for norm, epsilon in NORMS.items():
        one.attack("foolbox:pgd", norm, epsilon)
    two.attack("foolbox:pgd")
    table = build_table(writer.store.folder, by="models")
    assert "RA_union" not in table.symbols
    (finding,) = (each for each in table.findings if each.name == "union")
    assert f"{TEXT} (one on demo (90)); linf 8/255 (two on demo (90))" in str(finding)
    for build in (lambda: rows_of(writer.store.folder), lambda: davylamp.gate(writer.store.folder, "RA_union >= 0.1")):
        with pytest.raises(Unsupported, match="two on demo"):
            build()
    (row,) = davylamp.gate(writer.store.folder, "RA_union >= 0.1", model="one").made
    assert (row.model, row.threat, row.attacks) == ("one", TEXT, 3)


def test_folders_of_one_norm_each_have_a_union_together(writer):
    other = type(writer)(writer.store.folder.parent / "other")
    first, second = Case(writer), Case(other)
    second.random = np.random.default_rng(5)  # different outcomes on the same images
    results = [first.attack("foolbox:pgd"), second.attack("foolbox:pgd", "l2", 0.5)]
    with open_results(writer.store.folder, other.store.folder) as folder:
        values = {row.metrics["RA_union"] for row in rows_of(folder)}
    assert len(values) == 1
    assert values.pop() == pytest.approx(exact(*both(results)))


@pytest.mark.parametrize("rate", [0.02, 0.2, 0.5])
def test_a_gate_decides_the_union_by_its_interval(writer, rate):
    case = Case(writer)
    results = [case.attack("foolbox:pgd", norm, epsilon, rate=rate) for norm, epsilon in NORMS.items()]
    value, low, high, n = exact(*both(results))
    (row,) = davylamp.gate(writer.store.folder, "RA_union >= 0.5").made
    assert row.verdict == ("pass" if low >= 0.5 else "fail" if high < 0.5 else "too few images")
    assert (row.value, row.low, row.high, row.images, row.threat) == pytest.approx((value, low, high, n, TEXT))
    alone = davylamp.gate(writer.store.folder, ["RA >= 0.5", "RA_union >= 0.5"]).made
    assert sorted(each.requirement for each in alone) == ["RA >= 0.5"] * 3 + ["RA_union >= 0.5"]
    with pytest.raises(InvalidInput):
        davylamp.gate(writer.store.folder, "RA_union >= 0.5 @ linf 8/255")
    with pytest.raises(Unsupported):
        davylamp.gate(writer.store.folder, "RA_union >= 0.5", against=writer.store.folder)


def test_a_gate_waits_for_every_threat_model_and_for_invalid_results(writer, monkeypatch):
    case = Case(writer)
    results = [case.attack("foolbox:pgd", norm, epsilon, rate=0.01) for norm, epsilon in NORMS.items()]
    folder = writer.store.folder
    assert davylamp.gate(folder, "RA_union >= 0.5").document["verdict"] == "pass"
    results.append(case.attack("art:pgd", "l1", 12.0, rate=0.0, invalid=0.5))
    (row,) = davylamp.gate(folder, "RA_union >= 0.7").made
    assert (row.verdict, row.value) == ("invalid results", pytest.approx(both(results)[0].mean()))
    for norm, verdict in (("l2", "unfinished"), ("unrestricted", "unfinished"), ("l0", "pass")):
        planned = AttackRun(case.subject, "art:pgd", ThreatModel(norm, 0.5 if norm == "l2" else None))
        waiting = replace(read_outcomes(folder), waiting=(planned,))
        monkeypatch.setattr("davylamp.api.gating.read_outcomes", lambda *_, kept=waiting: kept)
        assert davylamp.gate(folder, "RA_union >= 0.1").document["verdict"] == verdict
    monkeypatch.undo()
    writer.failed(case.subject, "foolbox:fgsm", "no reason")
    assert davylamp.gate(folder, "RA_union >= 0.1").document["verdict"] == "unfinished"
    assert davylamp.gate(folder, "RA_union >= 0.999").document["verdict"] == "fail"  # another attack only lowers it


def test_classes_have_simultaneous_exact_intervals(writer):
    case = Case(writer)
    results = {norm: case.attack("foolbox:pgd", norm, epsilon, invalid=0.05) for norm, epsilon in NORMS.items()}
    union, level = both(results.values()), 1 - 0.05 / CLASSES
    table = davylamp.table(writer.store.folder, by="classes")
    assert (table.by, table.symbols, len(table.rows)) == ("classes", ("CA", "RA", "RA_union"), 3 * CLASSES)
    for row in table.rows:
        of_class = case.labels == row.labels["class"]
        expected = {"CA": (case.right,) * 2, "RA": results[row.labels["norm"]], "RA_union": union}
        assert row.labels["images"] == of_class.sum()
        for symbol, values in expected.items():
            assert row.metrics[symbol] == pytest.approx(exact(*(each[of_class] for each in values), level=level))
    for norm, (robust, _) in results.items():
        shares = [robust[case.labels == each].mean() for each in range(CLASSES)]
        of_norm = [row for row in table.rows if row.labels["norm"] == norm]
        lowest = [row.labels["class"] for row in of_norm if "RA" in row.labels["lowest"].split(", ")]
        assert lowest == [place for place, share in enumerate(shares) if share == min(shares)]
    (finding,) = (each for each in table.findings if each.name == "simultaneous-intervals")
    assert finding.numbers == {"classes": "3", "levels": "98.3333"}
    bare = davylamp.table(writer.store.folder, by="classes", metrics=["RA"], bootstrap=0)
    assert np.isnan(bare.frame()["RA low"]).all()
    assert r"Bonferroni" in table_latex(table)
    assert r"\textbf" not in table_latex(table)  # the classes are no rivals


def test_classes_have_their_names_and_only_metrics_of_one_outcome(writer, run):
    case = Case(writer)
    case.attack("foolbox:pgd", rate=0.0)
    folder = str(writer.store.folder)
    rows = json.loads(run("table", folder, "--by", "classes", "--json")[1])["rows"]
    assert [(row["class"], row["class name"], row["metrics"].keys()) for row in rows] == [
        (each, "", {"CA", "RA"}) for each in range(CLASSES)
    ]
    outcomes = read_outcomes(folder)
    clean = {key: replace(each, meta={"class_names": ["cat", "dog", "owl"]}) for key, each in outcomes.clean.items()}
    named = build_table(replace(outcomes, clean=clean), by="classes").frame()
    assert named["class name"].tolist() == ["cat", "dog", "owl"]
    with pytest.raises(Unsupported):
        build_table(folder, by="classes", metrics=["MR"])
    with pytest.raises(InvalidInput):
        build_table(folder, by="classes", pool_images=True)
    with pytest.raises(InvalidInput):
        build_table(folder, by="classes", all_threat_models=True)
