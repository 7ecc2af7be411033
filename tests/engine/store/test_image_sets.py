"""The same images in another order, or fewer of them, are no further evidence in anything that reads a folder."""

import pytest
import torch

from davylamp.adapters.data.datasets import Data
from davylamp.engine import AttackChoice, Config, ResultsStore, evaluate, make_plan
from davylamp.engine.checks.standings import rank_attacks
from davylamp.engine.store.data_frames import load_outcomes
from davylamp.engine.store.results import read_outcomes
from davylamp.engine.tables.table import build_table
from davylamp.report.parts.sentences import say_strongest_attacks
from davylamp.scoring.responses import build_responses

PGD, FGSM = (AttackChoice(name, "linf", epsilon=0.1) for name in ("foolbox:pgd", "foolbox:fgsm"))


@pytest.fixture
def run(digits, tmp_path):
    """Evaluates these images of the sixteen, in this order."""

    def on(rows, *attacks, names=None):
        rows = torch.tensor(rows)
        shown = [f"{int(row)}.png" for row in rows] if names is None else names
        data = Data(digits.inputs[rows], digits.labels[rows], shown)
        config = Config(attacks=attacks, data="digits", measures=("effect",))
        assert (
            evaluate(make_plan(config, models={"net": digits.classifier}, data=data), ResultsStore(tmp_path)).failed
            == {}
        )
        return tmp_path

    return on


def test_the_order_of_images_makes_no_evidence(run):
    torch.manual_seed(0)
    for _ in range(4):
        folder = run(torch.randperm(16).tolist(), PGD, FGSM)
    outcomes = read_outcomes(folder)
    assert len(outcomes.done) == 2
    assert len(outcomes.left_out) == 3
    (said,) = say_strongest_attacks(rank_attacks(outcomes))
    assert "of 16 attacked images" in said.text.replace("fools", "")
    assert len(build_table(folder, by="models").rows) == 1
    assert build_responses(load_outcomes(folder), "attacks").values.shape == (2, 16)


def test_fewer_of_the_same_images_are_left_out_for_attacks_that_ran_on_more(run):
    run(range(8), PGD, FGSM)
    folder = run(range(16), PGD)
    done = read_outcomes(folder).done
    assert sorted((each.cell.attack, each.cell.subject.images) for each in done) == [
        ("foolbox:fgsm", 8),
        ("foolbox:pgd", 16),
    ]
    run(range(16), FGSM)
    outcomes = read_outcomes(folder)
    assert [each.cell.subject.images for each in outcomes.done] == [16, 16]
    assert list(outcomes.left_out) == [
        "omitted: net on 8 images of digits: these are among its 16 images, which count once"
    ]


def test_other_images_of_the_same_names_are_others(run):
    names = [f"{place}" for place in range(8)]
    run(range(8), PGD, names=names)
    folder = run(range(8, 16), PGD, names=names)
    assert len(read_outcomes(folder).done) == 2
