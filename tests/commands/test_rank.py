"""`davylamp rank` as a user meets it."""

import io
import json
import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pandas as pd
import pytest

import davylamp
import davylamp.report.sections.ranking
from davylamp.commands.config_options import in_options, named_by_option
from davylamp.errors import DavylampError
from davylamp.report.parts.report_data import read_folder
from davylamp.report.text.ranking import PlacementOutput, RankingOutput
from davylamp.scoring import rank_table
from davylamp.tools.speed.synthetic_results import write_results

from ..golden import corpus
from ..page_blocks import flatten

pytestmark = pytest.mark.usefixtures("few_draws")
ATTACKS = ("art:fgsm", "foolbox:fgsm", "art:pgd", "foolbox:pgd", "art:cw")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("rank") / "results"
    write_results(path, attacks=ATTACKS, images=24, models=("weak", "middle", "strong"), side=32)
    return path


def test_models_of_a_folder(run, folder):
    code, out, _ = run("rank", folder)
    assert code == 0
    assert not any(detail in out for detail in ("R-hat", "Hardest images", "Images that separate"))
    code, out, _ = run("rank", folder, "--items", "2", "-v")
    assert code == 0
    lines = out.splitlines()
    assert lines[0].startswith("rank 1: strong, ability ")
    notes = [line for line in lines if line.startswith("- ")]
    assert notes[0].startswith("- IRT and the plain mean give the same order")
    once = "- an attack counts once, the strongest of its libraries on each image: "
    assert once + "fgsm (art, foolbox); pgd (art, foolbox)" in notes
    (place,) = (place for place, line in enumerate(lines) if "1pl, bernoulli responses" in line)
    assert lines[place + 1].split()[:3] == ["rank", "subject", "ability"]
    names = [line.split()[1] for line in lines[place + 2 : place + 5]]
    assert names == ["strong", "middle", "weak"]
    assert "R-hat" in out
    assert out.count("\nsynthetic image-") == 4
    assert "Images that separate the subjects best: synthetic image-" in out
    (shares,) = (
        line
        for line in lines
        if line.startswith("- Attacks that separate the subjects, by proportion of the information: ")
    )
    # Every model falls to the search for the smallest change: it tells none apart.
    assert {"fgsm linf 4/255", "pgd linf 4/255"} == set(re.findall(r"(\w+ l\S+(?: \d+/255)?) \d+%", shares))


def test_what_separates_attacks_are_models(run, folder):
    code, out, err = run("rank", folder, "--subjects", "attacks", "--norm", "linf", "--json")
    assert code == 0, err
    (sentence,) = (line for line in json.loads(out)["sentences"] if "by proportion of the information" in line)
    assert sentence.startswith("Models that separate the subjects, by proportion of the information: ")
    shares = [int(share) for share in re.findall(r"(\d+)%", sentence)]
    assert len(shares) == 3
    assert shares == sorted(shares, reverse=True)


def test_neighbours_that_share_a_letter_are_projected_and_fewer_images_ranked(run, folder):
    code, out, err = run("rank", folder, "--norm", "linf", "--stability", "--json")
    assert code == 0, err
    document = json.loads(out)
    shared = [a["group"] for a, b in pairwise(document["rows"]) if set(a["group"]) & set(b["group"])]
    projected = [line for line in document["sentences"] if "if the observed difference" in line]
    assert len(projected) <= len(shared)
    assert bool(projected) == bool(shared)
    assert [part["images"] for part in document["stability"]] == [6, 12, 24]
    code, out, err = run("rank", folder, "--norm", "linf", "--stability")
    assert "Ranked by fewer images" in out


def test_libraries_are_compared_in_words(run, folder):
    code, out, err = run("rank", folder, "--subjects", "implementations", "--norm", "linf", "--json")
    assert code == 0, err
    sentences = " ".join(json.loads(out)["sentences"])
    assert "at equal ability" in sentences.lower()
    assert "art" in sentences
    assert "Benjamini-Hochberg" in sentences


def test_terminal_and_page_call_one_number_by_one_name(run, folder, monkeypatch):
    """The page ranks by means where there are too many responses to fit: it says mean, as the terminal does."""
    columns = {}
    for method, most in (("irt", 1000), ("mean", 0)):
        monkeypatch.setattr(davylamp.report.sections.ranking, "MOST", most)
        section = davylamp.report.sections.ranking.write_ranking(read_folder(folder))
        (table,) = (block for block in flatten(section.blocks) if getattr(block, "name", "") == "ranking-table")
        columns[method] = [column.label for column in table.columns], [row[3].value for row in table.rows]
        code, out, err = run("rank", folder, "--method", method, "--json")
        assert code == 0, err
        assert [row["score"] for row in json.loads(out)["rows"]] == pytest.approx(columns[method][1])
        code, out, err = run("rank", folder, "--method", method)
        assert (
            columns[method][0][3] in next(line for line in out.splitlines() if line.startswith("rank  subject")).split()
        )
    assert {name: shown[0][3] for name, shown in columns.items()} == {"irt": "ability", "mean": "mean"}
    assert columns["mean"][0].count("mean") == columns["irt"][0].count("mean") == 1


def test_json_holds_everything(run, folder):
    code, out, _ = run("rank", folder, "--subjects", "implementations", "--library", "art", "--norm", "linf", "--json")
    assert code == 0
    document = json.loads(out)
    assert {row["subject"] for row in document["rows"]} == set(ATTACKS[:4])
    assert len(document["rank_probability"]) == 4
    assert document["diagnostics"]["rhat"] < 1.05
    assert len(document["differential"]) == len(document["items"]) <= 24
    assert {"effect", "p", "p_adjusted"} < set(document["differential"][0])


def test_csv_of_a_ranking_without_a_model(run, folder, tmp_path):
    code, out, _ = run("rank", folder, "--method", "borda", "--csv", "--norm", "linf", "--budget", "0.05")
    assert code == 0
    (tmp_path / "ranking.csv").write_text(out)
    table = pd.read_csv(tmp_path / "ranking.csv")
    assert list(table["rank"]) == sorted(table["rank"])
    assert {"score", "low", "high", "rank_low", "rank_high", "group"} < set(table.columns)


def test_canary_of_a_folder_and_of_a_file(run, folder, tmp_path):
    code, out, _ = run("rank", folder, "--method", "canary", "--json")
    assert code == 0
    document = json.loads(out)
    assert "15 metrics" in document["title"]
    scores = [row["score"] for row in document["rows"]]
    assert (scores[0], scores[2]) == (1, 0)
    path = tmp_path / "metrics.csv"
    path.write_text("attack,MR,QN\nfast,0.9,100\nslow,0.5,20000\nbad,0.2,50000\n")
    code, out, _ = run("rank", path, "--subjects", "attacks", "--sensitivity")
    assert code == 0
    assert [line.split()[1] for line in out.splitlines() if line.split()[0] in "123"][:3] == ["fast", "slow", "bad"]
    assert "Ranked without" in out


def test_the_curve_the_caps_and_the_categories_of_canary(run, tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("attack,MR,AED,QN\nfast,0.9,0.2,100\nslow,0.5,0.3,20000\nbad,0.2,0.4,50000\n")
    arguments = ("rank", path, "--subjects", "attacks")
    values = pd.read_csv(path, index_col=0)
    options = {"view": "attack", "curve": "paper", "uncapped": True}
    expected = rank_table(values.to_numpy(), list(values.index), list(values.columns), **options)
    code, out, err = run(*arguments, "--curve", "paper", "--uncapped", "--json")
    assert code == 0, err
    document = json.loads(out)
    assert document["method"] == "CANARY, paper curve"
    assert {row["subject"]: row["score"] for row in document["rows"]} == pytest.approx(
        dict(zip(expected.subjects, expected.score, strict=True))
    )
    assert set(document["categories"]) == {"attack effects", "disturbance cost", "computing cost"}
    assert document["categories"]["disturbance cost"] == {"fast": 1, "slow": pytest.approx(0.5, abs=0.3), "bad": 0}
    assert not any("cap" in note for note in document["notes"])
    code, out, err = run(*arguments)
    assert code == 0, err
    assert "at the cap for every subject, so without effect on the ranking: AED" in " ".join(out.split())
    assert "--uncapped" in out
    assert "Scores by category" in out
    placed = davylamp.rank(path, "attacks", against=path.with_name(write_newer(path)), uncapped=True)
    assert placed[0].ranking.method == "CANARY, intercept curve, items anchored"


def write_newer(path):
    """Write a baseline with other subjects."""
    (path.parent / "baseline.csv").write_text(path.read_text().replace("fast", "a").replace("slow", "b"))
    return "baseline.csv"


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """White-box and black-box attacks."""
    path = tmp_path_factory.mktemp("both") / "results"
    write_results(
        path,
        attacks=("foolbox:pgd", "art:square", "foolbox:fgsm"),
        images=24,
        models=("weak", "middle", "strong"),
        side=32,
        seed=3,
    )
    return path


def test_canary_prints_both_layers(run, both):
    code, out, err = run("rank", both, "--method", "canary")
    assert code == 0, err
    titles = [line for line in out.splitlines() if line.startswith("models of ")]
    assert [title.split(", ")[1].partition(":")[0] for title in titles] == ["white-box attacks", "black-box attacks"]
    _, out, _ = run("rank", both, "--method", "canary", "--json")
    document = json.loads(out)
    for layer, rows in (("white-box", document["rows"]), ("black-box", document["black-box"]["rows"])):
        _, out, _ = run("rank", both, "--method", "canary", "--knowledge", layer, "--json")
        assert json.loads(out)["rows"] == rows
    _, out, _ = run("rank", both, "--method", "canary", "--csv")
    assert list(pd.read_csv(io.StringIO(out))["attacks"]) == ["white-box"] * 3 + ["black-box"] * 3


@pytest.mark.parametrize("subjects", ["models", "attacks", "implementations", "defences"])
def test_python_ranks_metrics_as_the_command_does(run, both, subjects):
    options = {"original": "weak"} if subjects == "defences" else {}
    given = [part for name, value in options.items() for part in (f"--{name}", value)]
    code, out, err = run("rank", both, "--method", "canary", "--subjects", subjects, "--seed", "3", "--json", *given)
    rank: Any = davylamp.rank  # with a baseline it is something else
    if code:
        with pytest.raises(DavylampError) as refused:
            rank(both, subjects, scoring="canary", seed=3, **options)
        assert err == f"davylamp: {refused.value}\n"
        return
    ranking = rank(both, subjects, scoring="canary", seed=3, **options)
    document = json.loads(out)
    assert ranking.to_dict()["rows"] == document["rows"]
    alone = "no ranking by black-box attacks: one attack, "
    assert any(note.startswith(alone) for note in document["notes"]) == (subjects == "implementations")
    assert ranking.notes[-1] == "ranked by white-box attacks; knowledge='black-box' ranks by the others"


def test_python_takes_a_table_of_metrics_and_refuses_what_it_would_ignore(both, tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("attack,MR,QN\nfast,0.9,100\nslow,0.5,20000\nbad,0.2,50000\n")
    rank: Any = davylamp.rank
    assert list(rank(path, "attacks").to_frame()["subject"]) == ["fast", "slow", "bad"]
    for results, options, words in (
        (path, {"norm": "l2"}, "a CSV table cannot be combined with `norm`"),
        (path, {"scoring": "borda"}, "a CSV table cannot be combined with `scoring`"),
        (both, {"scoring": "canary", "budget": 0.1}, "scoring='canary' cannot be combined with `budget`"),
        (both, {"scoring": "canary", "model": "2pl"}, "scoring='canary' cannot be combined with `model`"),
        (davylamp.load(both), {"scoring": "canary"}, "expected a results folder or a CSV table"),
    ):
        with pytest.raises(DavylampError, match=words):
            rank(results, "attacks", **options)


@pytest.mark.parametrize(
    ("results", "options", "words"),
    [
        (None, {"sensitivity": True}, "unknown keyword 'sensitivity'; known: adaptive, against, batch_images, budget"),
        (None, {"stability": True, "items": 7}, "unknown keyword 'stability'; known"),
        (None, {"subjects": "implementations", "library": "nope"}, "unknown keyword 'library'; known"),
        (None, {"bogus": None}, "unknown keyword 'bogus'; known"),
        (None, {"epsilon": 0.1}, "unknown keyword 'epsilon'; did you mean budget"),
        (3, {}, "expected a results folder, a CSV table of metrics or a frame of `load`, got 3"),
        (None, {"against": 3}, "expected a results folder, a CSV table of metrics or a frame of `load`, got 3"),
    ],
)
def test_python_refuses_what_it_does_not_know(folder, results, options, words):
    with pytest.raises(DavylampError, match=words):
        davylamp.rank(results or folder, **options)


@pytest.mark.parametrize(
    ("name", "words", "note"),
    [
        ("invalid", "attacks", "2 runs failed: their responses are missing"),
        ("defence", "defences --original models.py:cnn --examples original", "responses to examples made on"),
    ],
)
def test_python_has_every_note_of_the_command(run, tmp_path, name, words, note):
    path = corpus.unpack(name, tmp_path)
    code, out, err = run("rank", path, "--method", "mean", "--json", "--subjects", *words.split())
    assert code == 0, err
    subjects, _, rest = words.partition(" ")
    options = dict(zip(rest.replace("--", "").split()[::2], rest.split()[1::2], strict=True))
    notes = davylamp.rank(path, subjects, scoring="mean", **options).notes
    assert any(each.startswith(note) for each in notes)
    assert len(notes) == len(json.loads(out)["notes"])


def test_one_subject_gets_a_sentence_at_each_door(run, tmp_path):
    rank: Any = davylamp.rank
    path, table = tmp_path / "results", tmp_path / "one.csv"
    write_results(path, attacks=("foolbox:pgd",), images=6, models=("only",), side=32)
    table.write_text("model,CA\nonly,0.9\n")
    for arguments in ((path,), (path, "--method", "canary"), (path, "--method", "borda"), (table,)):
        code, out, err = run("rank", *arguments)
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert "to rank, got one" in err
        assert "only" in err
    for results, options in ((path, {}), (path, {"scoring": "canary"}), (davylamp.load(path), {}), (table, {})):
        with pytest.raises(DavylampError, match="to rank, got one"):
            rank(results, **options)


def test_canary_ranks_attacks_once_or_each_library(run, folder):
    code, out, _ = run("rank", folder, "--method", "canary", "--subjects", "attacks", "--json")
    assert code == 0
    names = {row["subject"] for row in json.loads(out)["rows"]}
    assert names == {"fgsm linf 4/255", "pgd linf 4/255", "cw l2, smallest change"}
    for options in (("--subjects", "implementations"), ("--subjects", "attacks", "--per", "implementation")):
        _, out, _ = run("rank", folder, "--method", "canary", *options, "--json")
        assert {row["subject"].partition(" ")[0] for row in json.loads(out)["rows"]} == set(ATTACKS)


def test_defences_by_both_methods(run, folder):
    for method in ("canary", "irt", "borda"):
        options = ("--subjects", "defences", "--original", "weak", "--method", method, "--norm", "linf", "--json")
        code, out, err = run("rank", folder, *options)
        assert code == 0, err
        subjects = [row["subject"] for row in json.loads(out)["rows"]]
        assert set(subjects) == {"middle", "strong"} if method == "canary" else subjects == ["strong", "middle", "none"]


def test_a_fit_that_failed_is_the_first_line(run, folder, monkeypatch):
    monkeypatch.setattr("davylamp.scoring.diagnostics.ESS", 1e9)
    code, out, _ = run("rank", folder, "--norm", "linf", "--fit", "fast")
    assert code == 0
    assert out.startswith("- the fit has not converged: ")


@pytest.fixture(scope="module")
def newcomers(tmp_path_factory):
    path = tmp_path_factory.mktemp("newcomers") / "results"
    write_results(path, attacks=("foolbox:pgd", "art:cw"), images=16, models=("middle", "newcomer"), side=32)
    return path


def test_newcomers_against_a_baseline(run, folder, newcomers):
    code, out, _ = run("rank", newcomers, "--against", folder)
    assert code == 0
    assert "a different model: middle" in out
    assert "32 of 72 items answered, 16 of 24 images" in out
    tables = [line for line in out.splitlines() if line.endswith("1pl, bernoulli responses, items anchored")]
    assert [line.partition(" of ")[0] for line in tables] == ["middle (new)", "newcomer"]
    code, out, err = run("rank", newcomers, "--against", folder, "--csv")
    assert out.splitlines()[0].startswith("newcomer,subject,score,low,high,rank,rank_low,rank_high")
    assert len(out.splitlines()) == 1 + 2 * 4
    assert "- 32 of 72 items answered, 16 of 24 images" in err
    code, out, _ = run("rank", newcomers, "--against", folder, "--json", "--norm", "linf")
    placed = json.loads(out)["placements"][1]["placed"]
    assert set(placed["beats"]) == {"weak", "middle", "strong"}
    assert placed["rank_low"] <= placed["rank"] <= placed["rank_high"]
    assert placed["responses"] == 16


def test_how_few_images_would_have_been_enough(run, folder, newcomers):
    code, out, _ = run("rank", newcomers, "--against", folder, "--adaptive", "--norm", "linf", "--batch-images", "2")
    assert code == 0
    assert out.count(", chosen batch by batch, give an interval of ") == 2
    code, out, _ = run("rank", newcomers, "--against", folder, "--adaptive", "--max-rank-width", "0", "--json")
    choice = json.loads(out)["placements"][1]["choice"]
    last = choice["steps"][-1]
    assert last["images"] == len(choice["images"]) <= 16
    assert choice["enough"] == (last["rank_low"] == last["rank_high"])
    assert choice["enough"] or len(choice["further"]) == 8  # of the eight that the baseline has besides


def test_a_row_against_the_published_tables(run, tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("model,CA,MR,XYZ\nmine,0.7,0.6,3\nVGG,0.7,0.9,1\n")
    code, out, _ = run("rank", path, "--against", "published:canary-table9")
    assert code == 0
    assert "2 of 15 metrics" in out
    assert "omitted: XYZ: not in the baseline" in out
    assert "omitted: VGG: already in the baseline" in out
    assert len([line for line in out.splitlines() if line.split()[0].isdigit() and " - " in line]) == 16
    attack = tmp_path / "attack.csv"
    attack.write_text("attack,MR,QN\nmine,0.7,150\n")
    for knowledge, count in (("white-box", 9), ("black-box", 7)):
        options = ("--subjects", "attacks", "--knowledge", knowledge, "--json")
        code, out, err = run("rank", attack, "--against", "published:canary-table4", *options)
        assert code == 0, err
        assert len(json.loads(out)["placements"][0]["subjects"]) == count
    for arguments, message in (
        (("published:canary-table4",), "expected --subjects attacks with published:canary-table4, got models"),
        (("published:canary-table99",), "unknown published baseline 'canary-table99'"),
        (("published:canary-table9", "--knowledge", "score"), "--knowledge to be white-box or black-box"),
        (
            ("published:canary-table9", "--adaptive"),
            "--adaptive needs --against, and cannot be used with tables of metrics",
        ),
        (("published:canary-table9", "--budget", "4/255"), "a table of metrics cannot be combined with --epsilon"),
        ((path,), f"{path} already has all models"),
    ):
        code, out, err = run("rank", path, "--against", *arguments)
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert message in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--max-rank-width", "1"), "--max-rank-width cannot be used without --adaptive"),
        (("--method", "borda"), "--against and --method borda cannot be combined"),
        (("--items", "2", "--sensitivity"), "--against cannot be combined with --items, --sensitivity"),
        (("--norm", "l1"), "expected results in norm l1"),
        (("--norm", "l7"), "unknown norm 'l7'"),
        (("--subjects", "attacks"), "no new attacks: the baseline already has cw l2, pgd linf 0.01569"),
    ],
)
def test_misuse_of_a_baseline_is_one_line(run, folder, newcomers, arguments, message):
    code, out, err = run("rank", newcomers, "--against", folder, *arguments)
    assert (code, out) == (1, "")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--json", "--csv"), "expected one format"),
        (("--library", "art"), "--library needs --subjects implementations"),
        (("--norm", "l7"), "unknown norm 'l7'"),
        (("--norm", "l1"), "expected results in norm l1, got l2, linf only"),
        (("--knowledge", "black-box"), "expected black-box attacks, got white-box only"),
        (("--knowledge", "score", "--method", "mean"), "expected score attacks, got white-box only"),
        (
            ("--unequal", "keep", "--method", "borda"),
            "--method borda cannot handle missing items; use --unequal common",
        ),
        (("--unequal", "keep", "--method", "canary"), "--method canary cannot be combined with --unequal"),
        (
            ("--per", "attack", "--subjects", "implementations"),
            "--per has no effect with --subjects implementations",
        ),
        (("--original", "weak"), "--original needs --subjects defences"),
        (("--method", "canary", "--norm", "l7"), "unknown norm 'l7'"),
        (("--method", "canary", "--norm", "l1"), "expected results in norm l1, got l2, linf"),
        (("--method", "canary", "--knowledge", "black-box"), "expected black-box attacks, got white-box ones only"),
        (("--method", "canary", "--budget", "4/255"), "--method canary cannot be combined with --epsilon"),
        (("--method", "canary", "--model", "2pl", "--fit", "nuts"), "cannot be combined with --item-model, --fit"),
        (("--subjects", "defences"), "there are no defended models NAME+DEFENCE"),
        (("--subjects", "defences", "--method", "canary"), "no defended models named"),
        (
            ("--subjects", "defences", "--method", "canary", "--per", "attack"),
            "--per has no effect with --method canary and --subjects defences",
        ),
        (("--budget", "4/255"), "a budget needs results in one norm, got l2, linf"),
        (("--norm", "l2", "--budget", "-1"), "expected a budget as a positive number, got -1.0"),
        (("--subjects", "implementations", "--library", "artt"), "unknown library 'artt'"),
        (
            ("--method", "mean", "--model", "3pl", "--fit", "nuts"),
            "--fit needs --method irt",
        ),
        (("--csv", "--sensitivity"), "--sensitivity cannot be combined with --csv"),
        (("--propagate",), "--propagate needs --method canary"),
        (("--curve", "paper"), "--curve needs --method canary"),
        (("--uncapped",), "--uncapped needs --method canary"),
        (("--adaptive",), "--adaptive needs --against, and cannot be used with tables of metrics"),
        (
            ("--model", "3pl", "--method", "irt", "--subjects", "attacks", "--norm", "l2"),
            "expected at least 2 attacks to rank, got one",
        ),
    ],
)
def test_misuse_is_one_line(run, folder, arguments, message):
    code, out, err = run("rank", folder, *arguments)
    assert (code, out) == (1, "")
    assert message in err
    assert err.count("\n") == 1


def test_no_folder_and_unknown_metric_are_one_line(run, tmp_path):
    code, _, err = run("rank", tmp_path / "none")
    assert (code, err.count("\n")) == (1, 1)
    code, _, err = run("rank", tmp_path / "none.csv", "--method", "canary")
    assert (code, err.count("\n")) == (1, 1)
    (tmp_path / "odd.csv").write_text("model,XYZ\na,1\nb,2\n")
    code, _, err = run("rank", tmp_path / "odd.csv", "--method", "canary")
    assert "got XYZ" in err


def test_a_budget_equal_to_the_radius_changes_nothing(run, tmp_path):
    """Examples are float32: they end a rounding beyond 4/255."""
    write_results(tmp_path / "results", attacks=("art:fgsm", "art:pgd"), images=24, side=32)
    rankings = []
    for options in ((), ("--budget", "4/255")):
        code, out, err = run("rank", tmp_path / "results", "--norm", "linf", *options, "--json")
        assert code == 0, err
        rankings.append(json.loads(out)["rows"])
    assert rankings[0] == rankings[1]


def test_sensitivity_where_a_subject_alone_answered_an_item(run, tmp_path):
    """Without the subject nobody has the item: it goes, and the others are ranked."""
    write_results(tmp_path / "results", attacks=("art:fgsm",), images=24, side=32)
    write_results(tmp_path / "results", attacks=("art:pgd",), images=24, models=("model-a",), side=32)
    code, out, err = run("rank", tmp_path / "results", "--unequal", "keep", "--sensitivity", "--json")
    assert code == 0, err
    records = json.loads(out)["sensitivity"]
    assert {record["name"] for record in records} == {"model-a", "model-b", "model-c"}
    assert all(record["tau"] is not None for record in records)


def test_notes_of_a_ranking_name_options_and_not_keywords():
    @dataclass(frozen=True)
    class Noted:
        notes: tuple[str, ...]

    words = ("left out: use `unequal`, or scoring='mean'",)
    options = ("left out: use --unequal, or --method mean",)
    with named_by_option({"unequal": "--unequal", "scoring": "--method"}):
        ranked = RankingOutput("models", Noted(words)).reworded(in_options)
        placed = PlacementOutput("models", (Noted(words),), words).reworded(in_options)
    assert ranked.lines == options
    assert (placed.placements[0].notes, placed.notes) == (options, options)
