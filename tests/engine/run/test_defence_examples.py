"""Examples made once on the original and shown to its defences: what is run, kept, resumed, and said of them."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import binomtest

import davylamp
from davylamp.adapters.models.zoo.load import load_model
from davylamp.engine import AttackChoice, Config, ResultsStore, build_defence, build_table, evaluate, load, make_plan
from davylamp.engine.defence_pairs import undefended_models
from davylamp.engine.plan.rerun import configs_of, transfer_of
from davylamp.engine.run.processes import WorkerPoolExecutor
from davylamp.engine.store.columns import read_examples
from davylamp.engine.store.data_frames import OUTCOMES, results_on_original
from davylamp.engine.store.results import read_outcomes
from davylamp.engine.store.transfers import read_shown
from davylamp.engine.tables.metric_matrix import build_defence_matrix, build_matrix
from davylamp.engine.tables.tradeoff import build_tradeoffs
from davylamp.errors import InvalidInput, UnknownName, Unsupported
from davylamp.metrics import METRICS
from davylamp.report.page.build import build_report
from davylamp.scoring import build_responses

NET = """
import torch

def images():
    inputs = torch.rand(12, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    labels = (inputs.flatten(1) @ WEIGHTS.T).argmax(1)
    labels[:2] = (labels[:2] + 1) % 4
    return inputs, labels

WEIGHTS = torch.randn(4, 192, generator=torch.Generator().manual_seed(9))

def net():
    layer = torch.nn.Linear(192, 4)
    layer.weight.data = 4 * WEIGHTS
    layer.bias.data.zero_()
    return torch.nn.Sequential(torch.nn.Flatten(), layer)
"""
PLAIN, BITS, MEDIAN = "net.py:net", "net.py:net+bit-depth:bits=2", "net.py:net+median"
ATTACKS = (AttackChoice("foolbox:pgd", "linf", 0.01, parameters={"steps": 3}), AttackChoice("foolbox:deepfool", "l2"))


@pytest.fixture
def files(tmp_path, monkeypatch):
    (tmp_path / "net.py").write_text(NET)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def config(examples, **changes):
    whole = Config((PLAIN, BITS, MEDIAN), ATTACKS, "net.py:images", measures=("effect", "cost"), shard_size=6)
    return replace(whole, examples=examples, **changes)


def test_the_original_is_attacked_once_and_each_defence_is_shown_the_examples(files):
    plan = make_plan(config("original"))
    assert {cell.subject.model for cell in plan.cells} == {PLAIN}
    assert {(subject.model, cell.attack) for subject, cell in plan.transfers} == {
        (model, choice.attack) for model in (BITS, MEDIAN) for choice in ATTACKS
    }
    store = ResultsStore("r")
    assert evaluate(plan, store).done == 2
    again = evaluate(make_plan(config("original")), store)
    assert (again.done, again.kept) == (0, 2)
    for subject, cell in plan.transfers:
        expected = load_model(subject.model).predict_logits(read_examples(store, cell))
        shown = read_shown(store, cell.key, subject.key)
        assert shown is not None
        torch.testing.assert_close(shown.logits, expected, atol=1e-5, rtol=1e-5)


def test_the_table_is_the_metrics_of_both_models_on_the_same_examples(files):
    plan = make_plan(config("original"))
    store = ResultsStore("r")
    evaluate(plan, store)
    table = build_defence("r", PLAIN, BITS, bootstrap=50)
    assert [row.labels["made_on"] for row in table.rows] == ["", "original", "original"]
    data = plan.data.load(load_model(PLAIN))
    clean = [load_model(name).predict_logits(data.inputs) for name in (PLAIN, BITS)]
    cells = {cell.attack: cell for cell in plan.cells}
    for row in table.rows[1:]:
        cell = cells[row.labels["examples"]]
        examples = read_examples(store, cell)
        logits = [load_model(name).predict_logits(examples) for name in (PLAIN, BITS)]
        frame = load("r").query("implementation == @cell.attack")
        counted = torch.tensor((frame["usable"] | ~frame["attacked"]).to_numpy())
        assert int(counted.sum()) == row.labels["images"] == 12
        for symbol in ("CAV", "CRR", "CSR", "CCV", "COS"):
            expected = METRICS[symbol].function(*logits, data.labels)
            assert row.metrics[symbol].value == pytest.approx(float(expected), abs=1e-6, nan_ok=True), symbol
        right = [each.argmax(1) == data.labels for each in clean]
        wrong = [each.argmax(1) != data.labels for each in logits]
        rates = [wrong[0][right[0]].double().mean(), wrong[1][right[0] & right[1]].double().mean()]
        assert row.metrics["MRV"].value == pytest.approx(float(rates[1] - rates[0]), abs=1e-9)
        assert row.metrics["MRV"].low <= row.metrics["MRV"].value <= row.metrics["MRV"].high
        assert "AEDV" not in row.metrics  # the same examples: no distance could differ
    assert any(row.metrics["CRR"].value > 0 for row in table.rows[1:])  # or nothing was shown


def test_both_ways_stand_beside_each_other_and_several_defences_in_one_table(files):
    evaluate(make_plan(config("both")), ResultsStore("r"))
    one = build_defence("r", PLAIN, BITS, bootstrap=0)
    assert [row.labels["made_on"] for row in one.rows] == ["", "own", "own", "original", "original"]
    assert {row.labels["defended"] for row in one.rows} == {""}
    every = build_defence("r", PLAIN, f"{PLAIN}+*", bootstrap=0)
    assert [row.labels["defended"] for row in every.rows] == [BITS] * 5 + [MEDIAN] * 5
    rest = [column for column in one.frame() if column != "defended"]
    assert every.frame()[rest].iloc[:5].equals(one.frame()[rest])
    with pytest.raises(UnknownName, match="unknown model"):
        build_defence("r", PLAIN, "other+*")


def test_examples_of_an_earlier_run_that_kept_none_are_made_again(files):
    store = ResultsStore("r")
    evaluate(make_plan(config("defended")), store)
    assert evaluate(make_plan(config("original")), store).done == 2  # the images were not kept
    assert [row.labels["made_on"] for row in build_defence("r", PLAIN, MEDIAN, bootstrap=0).rows].count("original") == 2


def test_predictions_of_a_transfer_run_get_their_logits(files):
    store = ResultsStore("r")
    evaluate(make_plan(config("defended", transfer="full")), store)
    assert [row.labels["made_on"] for row in build_defence("r", PLAIN, BITS, bootstrap=0).rows].count("original") == 0
    summary = evaluate(make_plan(config("both", transfer="full")), store)
    assert (summary.done, summary.kept) == (0, 6)
    assert [row.labels["made_on"] for row in build_defence("r", PLAIN, BITS, bootstrap=0).rows].count("original") == 2


def test_workers_make_the_same(files):
    evaluate(make_plan(config("original")), ResultsStore("one"))
    evaluate(make_plan(config("original")), ResultsStore("two"), executor=WorkerPoolExecutor(2))
    one, two = (build_defence(name, PLAIN, f"{PLAIN}+*", bootstrap=20).frame() for name in ("one", "two"))
    assert one.equals(two)


@pytest.mark.parametrize("examples", ["original", "both"])
def test_the_configuration_is_read_off_the_folder(files, examples):
    plan = make_plan(config(examples))
    evaluate(plan, ResultsStore("r"))
    outcomes = read_outcomes("r", ["OTR"])
    run = transfer_of([each.cell for each in outcomes.done], outcomes.transfers or {}, outcomes.subjects)
    assert (run.examples, run.rule) == (examples, "no")
    (again,) = configs_of(plan.cells, examples=run.examples, defended=run.defended)
    planned = make_plan(again)
    assert {cell.key for cell in planned.cells} == {cell.key for cell in plan.cells}
    assert {(s.key, c.key) for s, c in planned.transfers} == {(s.key, c.key) for s, c in plan.transfers}


def test_whose_defence_a_model_is(files):
    assert undefended_models(["a", "a+x", "a+x+y", "b", "b+x"]) == {"a+x": "a", "a+x+y": "a", "b+x": "b"}
    assert undefended_models(["plain", "hardened.pt", "other"]) == {"hardened.pt": "plain", "other": "plain"}
    with pytest.raises(InvalidInput, match="a model and its defences"):
        undefended_models(["a"])
    with pytest.raises(InvalidInput, match="`surrogate` and `examples`"):
        make_plan(config("original", surrogate=("net.py:net",)))


def test_on_the_command_line(files, run):
    given = ("--models", PLAIN, "--defence", "bit-depth:bits=2", "--data", "net.py:images", "--attacks", "foolbox:fgsm")
    code, _, errors = run("evaluate", *given, "--norm", "linf", "--epsilon", "0.03", "--examples", "original")
    assert code == 0, errors
    code, output, _ = run("table", "results", "--defence", PLAIN, f"{PLAIN}+*", "--csv")
    assert code == 0
    assert output.splitlines()[2].startswith("foolbox:fgsm,original") or ",original," in output
    assert '<section id="defences"' in build_report("results", bootstrap=20)
    rank = ("rank", "nowhere", "--examples")
    for named, *words in (
        ("unknown examples 'theirs'", "evaluate", *given, "--examples", "theirs"),
        ("--examples needs --subjects defences", *rank, "defended"),
        ("--epsilon and --examples cannot be combined", *rank, "original", "--subjects", "defences", "--budget", "1"),
    ):
        code, _, errors = run(*words)
        assert (code, named in errors) == (1, True)
    evaluate(make_plan(config("defended", models=(PLAIN,), attacks=ATTACKS[:1])), ResultsStore("alone"))
    assert '<section id="defences"' not in build_report("alone", bootstrap=20)


def test_what_a_defence_costs_and_keeps(files):
    pgd, fgsm = ATTACKS[0], AttackChoice("foolbox:fgsm", "linf", 0.01)
    plan, store = make_plan(config("both", attacks=(pgd, fgsm, ATTACKS[1]))), ResultsStore("r")
    evaluate(plan, store)
    mine, shown = build_tradeoffs(read_outcomes("r", ["OTR"]))
    assert (mine.made_on, shown.made_on) == ("own", "original")
    assert set(mine.attacks) == set(shown.attacks) == {"foolbox:pgd", "foolbox:fgsm"}  # DeepFool has no radius
    worst = {
        row.labels["model"]: row.metrics for row in build_table("r", by="models").rows if row.labels["norm"] == "linf"
    }
    for point in mine.points:
        assert point.robust == pytest.approx(worst[point.model]["RA"], abs=1e-9)
        assert point.clean == pytest.approx(worst[point.model]["CA"], abs=1e-9)
    data = plan.data.load(load_model(PLAIN))
    cells = [cell for cell in plan.cells if cell.subject.model == PLAIN and cell.threat_model.epsilon]
    for point in shown.points:
        classifier = load_model(point.model)
        answers = [classifier.predict_logits(read_examples(store, cell)).argmax(1) == data.labels for cell in cells]
        assert point.robust.value == pytest.approx(float((answers[0] & answers[1]).double().mean()))
    assert len({point.robust.value for point in shown.points}) > 1  # or the original would do for all


def test_a_random_defence_counts_by_its_draws(files):
    """Its point is the robust accuracy of the table: both are means over draws, not shares of images."""
    name = f"{PLAIN}+noise:sigma=0.3"
    evaluate(make_plan(config("defended", models=(PLAIN, name), attacks=ATTACKS[:1])), ResultsStore("r"))
    (mine,) = build_tradeoffs(read_outcomes("r", ["OTR"]))
    rows = {row.labels["model"]: row.metrics for row in build_table("r", by="models").rows}
    for point in mine.points:
        assert point.robust == pytest.approx(rows[point.model]["RA"], abs=1e-9)
        assert point.clean == pytest.approx(rows[point.model]["CA"], abs=1e-9)
    assert (mine.points[1].robust.value * 12) % 1 != 0  # draws, not images


def test_a_random_defence_is_compared_with_what_it_defends(files):
    """How many draws judge it is no part of the attack: both models met the same one, and every table pairs them."""
    name = f"{PLAIN}+noise:sigma=0.3"
    store, both = ResultsStore("r"), config("defended", models=(PLAIN, name), attacks=ATTACKS[:1])
    evaluate(make_plan(both), store)
    clean, row = build_defence("r", PLAIN, name, bootstrap=0).rows
    assert (clean.labels["made_on"], row.labels["made_on"]) == ("", "own")
    assert len(build_table("r", by="attacks", bootstrap=0).rows) == 1
    assert set(build_matrix("r", ["MR"]).frame.index) == {PLAIN, name}
    evaluate(make_plan(replace(both, judge_samples=7, eot=3)), store)  # the plain model's cells are these already
    _, *rows = build_defence("r", PLAIN, name, bootstrap=0).rows
    assert {row.labels["setting"] for row in rows} == {"draws=20, eot=1", "draws=7, eot=3"}
    settings = [row.labels["setting"] for row in build_table("r", by="attacks", bootstrap=0).rows]
    assert len(settings) == len(set(settings)) == 3  # one model, judged in two ways: not repeats of one another
    (mine,) = build_tradeoffs(read_outcomes("r", ["OTR"]))
    every = [each.columns["robust"].astype(float) for each in read_outcomes("r").done if each.cell.draws]
    assert len(every) == 2
    assert mine.points[1].robust.value <= min(each.mean() for each in every)  # the worst of both for each image


NOISE = f"{PLAIN}+noise:sigma=0.3"


def drop_shares(folder):
    """The transfer records as earlier versions wrote them."""
    store = ResultsStore(folder)
    known = [(key, record.table, record.meta) for key, record in store.read_all("transfer")]
    for path in (folder / "transfer").iterdir():
        path.unlink()
    for key, table, meta in known:
        store.write("transfer", key, table.drop_columns(["draws_fooled"]), meta)


@pytest.mark.parametrize("target", ["", "random"])
def test_a_random_defence_that_is_shown_examples_counts_by_the_share_of_its_draws(files, target):
    """Against 2000 draws of other numbers; what the attack aimed at does not matter, as in the original's rate."""
    attack = replace(ATTACKS[0], epsilon=0.05, target=target)
    plan, store = make_plan(config("original", models=(PLAIN, NOISE), attacks=(attack,))), ResultsStore("r")
    evaluate(plan, store)
    data, (cell,) = plan.data.load(load_model(PLAIN)), plan.cells
    examples, noisy = read_examples(store, cell), load_model(NOISE)
    torch.manual_seed(7)
    draws = [noisy.predict_logits(examples).argmax(1) != data.labels for _ in range(2000)]
    truth = torch.stack(draws).double().mean(0).numpy()
    rows = results_on_original("r", load("r", columns=OUTCOMES), {NOISE: PLAIN})
    rows = rows[rows["model"] == NOISE].sort_values("index").set_index("index")
    share, expected = rows["draws_fooled"], truth[rows.index]
    np.testing.assert_allclose(share * 20, (share * 20).round())
    for wrong_draws, chance in zip((share * 20).round(), expected.clip(0.001, 0.999), strict=True):
        assert binomtest(int(wrong_draws), 20, chance).pvalue > 1e-4
    counted = rows["attacked"]
    assert ((share > 0) & (share < 1))[counted].sum() >= 3  # or a majority would do
    wrong = (load_model(PLAIN).predict_logits(examples).argmax(1) != data.labels).numpy()
    right = load("r").query("attacked")["index"]
    table = build_defence("r", PLAIN, NOISE, bootstrap=0)
    row = table.rows[1]
    assert row.metrics["MRV"].value == pytest.approx(share[counted].mean() - wrong[right].mean())
    outcomes = read_outcomes("r", ["OTR"])
    (shown,) = build_tradeoffs(outcomes)
    record = outcomes.store.read("transfer", store.keys("transfer")[0]).table
    assert shown.points[1].robust.value == pytest.approx(1 - record["draws_fooled"].to_numpy().mean())
    drop_shares(files / "r")
    older = build_defence("r", PLAIN, NOISE, bootstrap=0)
    majority = (record["adv_predicted"].to_numpy() != data.labels.numpy()).astype(float)
    kept = rows.index[counted]
    assert older.rows[1].metrics["MRV"].value == pytest.approx(majority[kept].mean() - wrong[right].mean())
    assert older.rows[1].metrics["MRV"].value != row.metrics["MRV"].value
    assert older.rows[1].metrics["CAV"].value == row.metrics["CAV"].value
    assert older.notes[-1].startswith(f"MRV of {NOISE}")
    (shown,) = build_tradeoffs(read_outcomes("r", ["OTR"]))
    assert shown.points[1].robust.value == pytest.approx(1 - majority.mean())
    rows = results_on_original("r", load("r", columns=OUTCOMES), {NOISE: PLAIN})
    assert "draws_fooled" not in rows


def test_under_targeted_attacks_rates_of_errors_of_a_random_defence_are_majorities_and_it_says_so(files):
    for target in ("", "random"):
        attack, folder = replace(ATTACKS[0], epsilon=0.1, target=target), f"r{target}"
        evaluate(make_plan(config("defended", models=(PLAIN, NOISE), attacks=(attack,))), ResultsStore(folder))
        notes = build_defence(folder, PLAIN, NOISE, bootstrap=0).notes
        said = f"MRV of {NOISE} uses the majority of the samples under targeted attacks"
        assert [note for note in notes if note.startswith("MRV of")] == [said] * bool(target)


def by_hand(plan, names, examples):
    """1 where a model is right on the clean image and on what it is shown of it, by subject."""
    data = plan.data.load(load_model(PLAIN))
    right = {name: (load_model(name).predict_logits(data.inputs).argmax(1) == data.labels) for name in names}
    kept = right[PLAIN]
    return {
        name: (right[name] & (load_model(name).predict_logits(examples).argmax(1) == data.labels))[kept].tolist()
        for name in names
    }


def test_defences_are_ranked_by_what_they_were_shown_and_it_says_so(files, run):
    """Responses are those of the models asked again; the two ways are never in one ranking."""
    plan, store = make_plan(config("original", attacks=ATTACKS[:1])), ResultsStore("r")
    evaluate(plan, store)
    originals = {BITS: PLAIN, MEDIAN: PLAIN}
    rows = results_on_original("r", load("r", columns=OUTCOMES), originals)
    truth = by_hand(plan, (PLAIN, BITS, MEDIAN), read_examples(store, plan.cells[0]))
    for name, expected in truth.items():
        mine = rows[rows["model"] == name].sort_values("index")
        assert (mine["attacked"] & ~mine["success"]).tolist() == expected, name
    assert truth[BITS] != truth[PLAIN]  # or nothing was shown
    responses = build_responses(rows, "defences")
    assert responses.notes
    with pytest.raises(ValueError, match="original and own"):
        build_responses(pd.concat([rows, rows.assign(made_on="own")], ignore_index=True), "defences")
    code, out, err = run("rank", "r", "--subjects", "defences", "--method", "mean", "--json")
    assert code == 0, err
    document = json.loads(out)
    assert {row["subject"] for row in document["rows"]} == {"none", "bit-depth:bits=2", "median"}
    for *refused, named in (
        ("--budget", "0.01", "budget cannot be used with examples that were made on the undefended model"),
        ("--examples", "defended", "no examples were made on defended models; use --examples original"),
    ):
        code, out, err = run("rank", "r", "--subjects", "defences", "--method", "mean", *refused)
        assert (code, out, named in err) == (1, "", True)


@pytest.mark.parametrize("method", ["mean", "canary"])
def test_a_folder_with_both_ways_is_ranked_by_one(files, run, method):
    for way in ("both", "defended"):
        evaluate(make_plan(config(way, attacks=ATTACKS[:1])), ResultsStore(way))
    rank, ranked = ("--subjects", "defences", "--method", method, "--json"), {}
    ways = (("both",), ("both", "--examples", "defended"), ("both", "--examples", "original"), ("defended",))
    for folder, *way in ways:
        code, out, err = run("rank", folder, *rank, *way)
        assert code == 0, err
        ranked[folder, tuple(way)] = json.loads(out)
    default, first, second, only = ranked.values()
    assert default["rows"] == first["rows"] == only["rows"]
    assert method == "canary" or second["rows"] != first["rows"]


def test_python_ranks_by_one_way_and_places_a_defence_among_those_of_a_baseline(files, run):
    """A folder with both ways gives what a folder with that way alone gives; two ways are never set side by side."""
    new = (PLAIN, "net.py:net+jpeg:quality=30")
    for way in ("defended", "original", "both"):
        one = config(way, attacks=ATTACKS[:1])
        evaluate(make_plan(one), ResultsStore(way))
        evaluate(make_plan(replace(one, models=new)), ResultsStore(f"new-{way}"))
    placed, ranked = {}, {}
    for way in ("defended", "original"):
        code, out, err = run("rank", way, "--subjects", "defences", "--method", "mean", "--json")
        assert code == 0, err
        ranked[way] = davylamp.rank("both", "defences", scoring="mean", examples=way)
        alone = {row["subject"]: row["score"] for row in json.loads(out)["rows"]}
        assert dict(zip(ranked[way].subjects, ranked[way].score, strict=True)) == pytest.approx(alone)
        both = davylamp.rank("new-both", "defences", against="both", examples=way)
        alone = davylamp.rank(f"new-{way}", "defences", against=way)
        (placed[way],) = both
        assert [each.score for each in both] == [each.score for each in alone]
    assert placed["defended"].score != placed["original"].score
    with pytest.raises(InvalidInput, match="original in the new results; set `examples`"):
        davylamp.rank("new-original", "defences", against="defended")
    code, _, err = run("rank", "new-original", "--against", "defended", "--subjects", "defences")
    assert (code, "got defended in the baseline and original in the new results" in err) == (1, True)
    code, out, err = run("rank", "new-both", "--against", "both", "--subjects", "defences", "--examples", "original")
    assert code == 0, err
    (noted,) = davylamp.rank("new-both", "defences", against="both")
    assert "examples='original' ranks by these" in noted.notes[0]
    with pytest.raises(InvalidInput, match=r".examples. needs subjects='defences'"):
        davylamp.rank("both", examples="defended")


def test_means_of_metrics_are_over_examples_made_in_one_way(files):
    """A folder with both ways gives the matrix of a folder with that way alone."""
    ways = ("defended", "original", "both")
    for way in ways:
        evaluate(make_plan(config(way)), ResultsStore(way))
    both = {way: build_defence_matrix("both", ["CAV", "CRR", "MRV"], examples=way).frame for way in ways[:2]}
    for way in ways[:2]:
        pd.testing.assert_frame_equal(both[way], build_defence_matrix(way, ["CAV", "CRR", "MRV"]).frame)
    assert not both["defended"].equals(both["original"])
    with pytest.raises(Unsupported, match="no examples made on each defended model itself"):
        build_defence_matrix("original", ["MRV"], examples="defended")
