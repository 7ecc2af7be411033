"""What is averaged for a ranking of metrics: the same attacks for every model, the same models for every attack."""

import math
from typing import Any

import pandas as pd
import pytest
import torch

from davylamp.engine.tables.metric_matrix import build_defence_matrix, build_layers, build_matrix, read_matrix
from davylamp.errors import InvalidInput, UnknownName, Unsupported

N = 20
LABELS = torch.zeros(N, dtype=torch.int64)
RIGHT = torch.tensor([[5.0, 0]]).repeat(N, 1)


def fool(count):
    return torch.where((torch.arange(N) < count)[:, None], RIGHT.flip(1), RIGHT)


@pytest.fixture
def fill(writer):
    """Writes cells: {attack: {model: images fooled}}; gives the folder."""
    subjects = {}

    def write(table, **options):
        for attack, models in table.items():
            for model, count in models.items():
                if model not in subjects:
                    subjects[model] = writer.clean(model, RIGHT, LABELS)
                writer.cell(subjects[model], attack, RIGHT, fool(count), LABELS, **options)
        return writer.store.folder

    return write


def test_a_mean_is_over_the_attacks_that_every_model_met(fill):
    folder = fill({"foolbox:pgd": {"a": 8, "b": 12}, "art:pgd": {"a": 20}, "foolbox:fgsm": {"a": 2, "b": 4}})
    frame, notes = build_matrix(folder, ["MR", "AIAC"])
    assert frame["MR"].to_dict() == pytest.approx({"a": 0.25, "b": 0.4})
    assert notes == ("omitted: art:pgd linf 0.1: no result on b",)


def test_attacks_are_compared_on_the_models_that_all_met_and_one_radius_is_one_attack(fill):
    folder = fill({"foolbox:pgd": {"a": 8, "b": 12}, "foolbox:fgsm": {"a": 2, "b": 4, "c": 20}})
    fill({"foolbox:fgsm": {"a": 6, "b": 8}}, epsilon=0.2)
    frame, notes = build_matrix(folder, ["MR", "QN"], rows="attacks", per="implementation")
    assert frame["MR"].to_dict() == pytest.approx(
        {"foolbox:fgsm linf 0.1": 0.15, "foolbox:fgsm linf 0.2": 0.35, "foolbox:pgd linf 0.1": 0.5}
    )
    assert notes == ("omitted: c: no result of foolbox:fgsm linf 0.2, foolbox:pgd linf 0.1",)


def test_both_layers_are_there_and_each_is_of_its_own_attacks(fill):
    folder = fill({"foolbox:pgd": {"a": 8, "b": 12}})
    assert list(build_layers(folder, "models", ["MR"])) == ["white-box"]
    fill({"foolbox:hopskipjump": {"a": 20, "b": 0}}, norm="l2", epsilon=None)
    layers = build_layers(folder, "models", ["MR"])
    expected: Any = {"white-box": {"a": 0.4, "b": 0.6}, "black-box": {"a": 1, "b": 0}}
    for layer, rates in expected.items():
        alone = build_matrix(folder, ["MR"], knowledge=layer)
        assert layers[layer].frame["MR"].to_dict() == alone.frame["MR"].to_dict() == pytest.approx(rates)
        assert layers[layer].notes == alone.notes
    frame, (note,) = build_matrix(folder, ["MR"])  # black boxes are ranked apart
    assert (frame["MR"].to_dict(), "foolbox:hopskipjump" in note) == (pytest.approx(expected["white-box"]), True)
    assert build_matrix(folder, ["MR"], norm="l2").frame["MR"].to_dict() == expected["black-box"]
    assert list(build_layers(folder, "models", ["MR"], norm="l2")) == ["black-box"]
    assert list(build_layers(folder, "models", ["MR"], knowledge="decision")) == ["decision"]


def test_a_layer_that_cannot_be_had_is_a_note_of_the_other(fill):
    folder = fill({"foolbox:pgd": {"a": 8, "b": 12}})
    fill({"foolbox:hopskipjump": {"a": 20}, "foolbox:boundary": {"b": 20}}, norm="l2", epsilon=None)
    layers = build_layers(folder, "models", ["MR"])
    assert list(layers) == ["white-box"]
    (note,) = layers["white-box"].notes
    assert note.startswith("no ranking by black-box attacks: expected an attack that was run on all 2 models, got none")
    with pytest.raises(Unsupported, match="expected an attack that was run on all"):
        build_layers(folder, "models", ["MR"], knowledge="black-box")


def test_targeted_attacks_among_others_are_named(fill):
    folder = fill({"foolbox:pgd": {"a": 8, "b": 12}})
    assert build_matrix(folder, ["MR"]).notes == ()
    fill({"foolbox:pgd": {"a": 1, "b": 1}}, target="1")
    (note,) = build_matrix(folder, ["MR"]).notes
    assert note.startswith("targeted and untargeted")
    assert note.endswith("foolbox:pgd linf 0.1, targeted")


def test_violations_are_missing_and_not_robust(fill):
    folder = fill({"foolbox:pgd": {"b": 10}})
    fill({"foolbox:pgd": {"a": 10}}, violated=torch.arange(N) >= 15)
    frame, notes = build_matrix(folder, ["MR"])
    assert frame["MR"].to_dict() == pytest.approx({"a": 10 / 15, "b": 0.5})
    assert notes == ("5 invalid results are missing: they count neither as fooled nor as robust",)


def test_a_metric_is_over_the_attacks_that_define_it_for_every_model(fill):
    sizes = torch.linspace(0.1, 1, N)
    folder = fill({"foolbox:pgd": {"a": 8, "b": 12}}, AED=sizes)
    fill({"foolbox:fgsm": {"a": 2}}, AED=3 * sizes)
    fill({"foolbox:fgsm": {"b": 2}}, AED=torch.full((N,), torch.nan))
    frame, notes = build_matrix(folder, ["MR", "AED"])
    assert frame["AED"].to_dict() == pytest.approx({name: float(sizes.mean()) for name in "ab"})
    assert notes == ("AED: averaged over 1 of 2 attacks, because the others lack a value for at least one model",)


def test_an_attack_counts_once_by_its_strongest_library(fill):
    """On each image the example that fooled by the smallest distance, whichever library made it."""
    sizes = torch.linspace(0.1, 1, N).double()
    folder = fill({"foolbox:pgd": {"a": 8, "b": 12}}, AED=sizes, sizes=sizes)
    fill({"art:pgd": {"a": 4, "b": 16}}, AED=sizes / 2, sizes=sizes / 2)
    fill({"foolbox:fgsm": {"a": 0, "b": 4}}, AED=sizes, sizes=sizes)
    frame, notes = build_matrix(folder, ["MR"])
    assert frame["MR"].to_dict() == pytest.approx({"a": (8 + 0) / 2 / N, "b": (16 + 4) / 2 / N})
    assert notes == ("an attack counts once, the strongest of its libraries on each image: pgd (art, foolbox)",)
    frame, _ = build_matrix(folder, ["MR", "AED"], rows="attacks")
    assert frame["MR"].to_dict() == pytest.approx({"fgsm linf 0.1": 0.1, "pgd linf 0.1": 0.6})
    nearest = torch.where(torch.arange(N) < 4, sizes / 2, sizes)  # on a: art's where it fooled
    assert frame["AED"]["pgd linf 0.1"] == pytest.approx(float((nearest.mean() + (sizes / 2).mean()) / 2), abs=0.12)
    frame, notes = build_matrix(folder, ["MR"], per="implementation")
    assert frame["MR"].to_dict() == pytest.approx({"a": (8 + 4 + 0) / 3 / N, "b": (12 + 16 + 4) / 3 / N})
    assert notes == ()


def test_a_violation_of_one_library_leaves_the_image_to_the_others(fill):
    folder = fill({"foolbox:pgd": {"a": 4, "b": 4}})
    fill({"art:pgd": {"a": 0, "b": 0}}, violated=torch.ones(N, dtype=torch.bool))
    frame, notes = build_matrix(folder, ["MR"])
    assert frame["MR"].to_dict() == pytest.approx({"a": 0.2, "b": 0.2})
    assert not [note for note in notes if "violations" in note]


def test_queries_of_a_black_box_are_its_forward_passes(fill):
    ones = torch.ones(N, dtype=torch.double)
    folder = fill({"foolbox:pgd": {"a": 8, "b": 8}}, measures=("effect", "cost"), QNC_F=10 * ones, QNC_B=6 * ones)
    fill({"foolbox:fgsm": {"a": 8, "b": 8}}, measures=("effect", "cost"), QNC_F=10 * ones, QNC_B=0 * ones)
    frame, _ = build_matrix(folder, ["QN"], rows="attacks")
    assert frame["QN"].to_dict() == {"fgsm linf 0.1": 10, "pgd linf 0.1": 8}


def test_score_and_decision_are_kinds_of_black_box(fill):
    folder = fill({"foolbox:hopskipjump": {"a": 20, "b": 0}, "art:square": {"a": 0, "b": 10}}, norm="l2")
    kinds: Any = (
        ("score", {"a": 0, "b": 0.5}),
        ("decision", {"a": 1, "b": 0}),
        ("black-box", {"a": 0.5, "b": 0.25}),
    )
    for kind, expected in kinds:
        assert build_matrix(folder, ["MR"], knowledge=kind).frame["MR"].to_dict() == expected
    with pytest.raises(Unsupported, match="expected white-box attacks, got decision-based, score-based ones only"):
        build_matrix(folder, ["MR"], knowledge="white-box")


def test_defences_against_their_originals(fill):
    """Clean images say what a defence costs, attacks what it gains; only what all defences met."""
    names = {"net": 12, "net+d.py:blur": 6, "net+d.py:jpeg": 9}
    folder = fill({"foolbox:pgd": names, "art:pgd": names, "foolbox:fgsm": {"net": 4, "net+d.py:blur": 4}})
    frame, notes = build_defence_matrix(folder, ["CRR", "MRV", "AITC"])
    assert frame["MRV"].to_dict() == pytest.approx({"d.py:blur": -6 / N, "d.py:jpeg": -3 / N})
    assert frame["CRR"].to_dict() == {"d.py:blur": 0, "d.py:jpeg": 0}
    assert (
        "MRV, AITC: averaged over 2 of 3 pairs of model and attack, namely those with a value for all defences" in notes
    )
    with pytest.raises(UnknownName, match="lone"):
        build_defence_matrix(folder, ["MRV"], original="lone")


def test_a_folder_without_defences_says_how_to_name_them(fill):
    folder = fill({"foolbox:pgd": {"a": 8, "b": 12, "c": 4}})
    with pytest.raises(InvalidInput, match=r"NAME\+DEFENCE.*original=NAME"):
        build_defence_matrix(folder, ["MRV"])
    frame, _ = build_defence_matrix(folder, ["MRV"], original="a")
    assert frame["MRV"].to_dict() == pytest.approx({"b": 4 / N, "c": -4 / N})


def test_what_cannot_be_compared_is_refused(fill):
    folder = fill({"foolbox:pgd": {"a": 8}, "foolbox:fgsm": {"b": 12}})
    for given, named in (
        ({}, "all 2 models, got none"), ({"rows": "attacks"}, "common to all attacks"), ({"norm": "l1"}, "l1, got linf")
    ):  # fmt: skip
        with pytest.raises(Unsupported, match=named):
            build_matrix(folder, ["MR"], **given)
    with pytest.raises(UnknownName, match="l3"):
        build_matrix(folder, ["MR"], norm="l3")


def test_a_table_as_a_file(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("model,MR,CA\nx, 0.5,1\n'y',,0.25\n")
    frame, _ = read_matrix(path)
    assert frame.index.tolist() == ["x", "'y'"]
    assert frame["CA"].tolist() == [1, 0.25]
    assert math.isnan(frame["MR"].iloc[1])
    assert isinstance(frame, pd.DataFrame)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty file"),
        ("\n\n", "empty file"),
        ("model;MR\na;1\nb;2\n", "semicolons"),
        ("model\tMR\na\t1\n", "tabs"),
        ("model,MR\na,1\nb,2\na,3\n", "'a' twice"),
        ("model,MR,MR\na,1,2\nb,2,2\n", "'MR' twice"),
        ("model,MR\na,1\nb,two\n", "MR of b.*'two'"),
        ("model,MR\na,1\nb,inf\n", "MR of b.*'inf'"),
        ("model,MR\na,1\nb,1,2,3\n", "2 fields"),
        ("model,MR\na,1\n", "at least 2 rows in .*: a"),
        ("model,MR\n", "only headings"),
        ("MR,CA\n0.5,1\n0.2,1\n", "first column.*MR"),
        ("model,MR\na,1\n,0.5\n", "row 3"),
        ("model,MR,CA\na,,1\nb,,1\n", "value of MR.*got none"),
        (b"\xff\xfe\x00\x01", "a CSV table"),
    ],
)
def test_a_bad_file_is_one_line(tmp_path, text, words):
    path = tmp_path / "x.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InvalidInput, match=words) as caught:
        read_matrix(path)
    assert "\n" not in str(caught.value)
