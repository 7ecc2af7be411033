"""A result among RobustBench's published ones: refused unless of the same protocol, and ranked with an interval."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import fisher_exact

import davylamp
from davylamp.adapters.result import UNSTEADY
from davylamp.engine.checks.standings import RobustnessEstimate
from davylamp.engine.exchange.published_boards import (
    STANDARD,
    PublishedBoard,
    place_estimate,
    read_boards,
    read_snapshot,
)
from davylamp.errors import UnknownName, Unsupported
from davylamp.intervals import proportion_interval

EIGHT = 8 / 255
CIFAR = "torchvision:cifar10"


def fill(
    writer, robust, count, *, data=CIFAR, epsilon=EIGHT, norm="linf", steps=STANDARD, model="mine", target="", **limits
):
    """A model that stays right on `robust` of `count` images, under the attacks of AutoAttack."""
    labels, logits = torch.zeros(count, dtype=torch.long), torch.tensor([[2.0, 0.0]]).repeat(count, 1)
    adv = logits.clone()
    adv[robust:] = torch.tensor([0.0, 2.0])
    subject = writer.clean(model, logits, labels, data=data)
    for attack, number in steps.items():
        name = attack if ":" in attack else f"pyautoattack:{attack}"
        spec = {"parameters": {"steps": number, **limits}, "epsilon": epsilon, "norm": norm}
        spec |= {"target": target} if target else {}
        writer.cell(subject, name, logits, adv, labels, **spec)
    return writer.store.folder


def board_of(title):
    (board,) = [each for each in read_boards() if each.title == title]
    return board


def test_the_snapshot_says_where_it_is_from_and_under_which_licence():
    about = read_snapshot()
    assert "Permission is hereby granted" in about["licence"]
    assert "Croce" in about["copyright"]
    assert about["date"] == "2025-03-31"
    counts = {board.title: len(board.entries) for board in read_boards()}
    assert counts == {
        "cifar10 l2 0.5": 21,
        "cifar10 linf 8/255": 99,
        "cifar100 linf 8/255": 38,
        "imagenet linf 4/255": 30,
    }
    first = board_of("cifar10 linf 8/255").entries[0]
    values = [entry.autoattack for board in read_boards() for entry in board.entries]
    assert first.autoattack == max(each.autoattack for each in board_of("cifar10 linf 8/255").entries)
    assert all(0 <= value <= 1 for value in values)
    # README of RobustBench 1.1.1, table of the l2 board
    wang = next(each for each in board_of("cifar10 l2 0.5").entries if each.model == "Wang2023Better_WRN-70-16")
    assert (wang.clean, wang.autoattack, wang.images) == (0.9554, 0.8497, 10_000)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"data": "demo:digits"}, "its images are demo:digits"),
        ({"data": "torchvision:mnist"}, "its images are torchvision:mnist"),
        ({"epsilon": 0.1}, "there is no leaderboard for cifar10 linf 0.1"),
        (
            {"norm": "l2", "epsilon": 1.0},
            "there is no leaderboard for cifar10 l2 1; the leaderboards are cifar10 l2 0.5",
        ),
        ({"steps": {"apgd-ce": 100, "apgd-t": 100, "square": 5000}}, "fab-t missing or shorter"),
        ({"steps": {**STANDARD, "square": 1000}}, "square missing or shorter"),
        ({"target": "random"}, "targeted"),
        ({"steps": {"torchattacks:autoattack": 100}}, "apgd-ce, apgd-t, fab-t, square missing"),
        ({"steps": {"art:autoattack": 100}}, "missing or shorter"),
        ({"steps": {"torchattacks:autoattack@fixed": 10}}, "missing or shorter"),
        ({"max_queries": 6}, "missing or shorter"),
    ],
)
def test_another_protocol_is_refused(writer, given, words):
    folder = fill(writer, 50, 80, **given)
    with pytest.raises(Unsupported, match=words):
        davylamp.standing(folder)


def test_the_rank_is_a_count_and_the_neighbours_are_separated_as_by_an_exact_test(writer):
    folder = fill(writer, 120, 200)
    result = davylamp.standing(folder)
    (placed,) = result.made
    published = [each.autoattack for each in board_of("cifar10 linf 8/255").entries]
    assert placed.rank == 1 + sum(value > 0.6 for value in published)
    assert placed.rank_low <= placed.rank <= placed.rank_high
    assert placed.inseparable == placed.rank_high - placed.rank_low
    for each in placed.neighbours:
        hits = round(each.entry.autoattack * 10_000)
        p = fisher_exact([[120, 80], [hits, 10_000 - hits]])[1]
        assert each.is_separated or p > 0.05 / len(published) / 10
        assert not each.is_separated or p < 0.05 / len(published) * 3
    names = [row["model"] for row in result.rows]
    assert names.index("mine") == 4
    assert len(names) == 9
    assert "MIT" in result.notes[-1]
    assert "2025-03-31" in result.notes[-1]


def test_a_random_model_that_is_not_declared_is_not_placed(writer):
    folder = fill(writer, 120, 200)
    labels, logits = torch.zeros(200, dtype=torch.long), torch.tensor([[2.0, 0.0]]).repeat(200, 1)
    subject = writer.clean("random", logits, labels, data=CIFAR)
    bad = torch.arange(200) < 3
    for attack, number in STANDARD.items():
        words = {"violated": bad, "violations": np.where(bad.numpy(), "unstable", "")}
        spec = {"parameters": {"steps": number}, "epsilon": EIGHT}
        writer.cell(subject, f"pyautoattack:{attack}", logits, logits, labels, **words, **spec)
    result = davylamp.standing(folder)
    assert [each.model for each in result.made] == ["mine"]
    assert any("random" in note and UNSTEADY in note for note in result.notes)


def test_the_four_may_be_one_attack_of_a_library(writer):
    folder = fill(writer, 120, 200, steps={"torchattacks:autoattack@fixed": 100})
    assert davylamp.standing(folder).made[0].estimate.least == 0.6


def test_more_images_separate_from_more_entries(writer):
    wide = davylamp.standing(fill(writer, 60, 100)).made[0]
    other = type(writer)(writer.store.folder.parent / "more")
    narrow = davylamp.standing(fill(other, 2400, 4000)).made[0]
    assert narrow.rank == wide.rank
    assert narrow.inseparable < wide.inseparable / 2


def test_the_interval_of_the_rank_covers_the_true_rank():
    """Of a model and 40 published ones with known accuracies, whose numbers are drawn."""
    random = np.random.default_rng(0)
    truth = np.sort(random.uniform(0.3, 0.7, 40))[::-1]
    board = board_of("cifar100 linf 8/255")
    level, covered = 1 - 0.05 / 40, 0
    for _ in range(150):
        entries = [replace(board.entries[0], autoattack=random.binomial(10_000, p) / 10_000) for p in truth]
        drawn = PublishedBoard("cifar100", "linf", EIGHT, tuple(sorted(entries, key=lambda each: -each.autoattack)))
        mine = random.uniform(0.3, 0.7)
        hits = random.binomial(300, mine)
        low, high = proportion_interval(hits, 300, level)
        rate = hits / 300
        estimate = RobustnessEstimate(rate, low, high, rate, rate, 300, 0, hits)
        placed = place_estimate(estimate, (rate, low), (rate, high), drawn, "mine")
        covered += placed.rank_low <= 1 + int((truth > mine).sum()) <= placed.rank_high
    assert covered >= 0.95 * 150


def test_the_test_set_can_be_named_and_others_are_mentioned(writer, run):
    fill(writer, 50, 80, data="npz:images.npz")
    folder = fill(writer, 10, 80, data=CIFAR, epsilon=0.1, model="small")
    with pytest.raises(Unsupported):
        davylamp.standing(folder)
    with pytest.raises(UnknownName):
        davylamp.standing(folder, test_set="cifar11")
    result = davylamp.standing(folder, test_set="cifar10")
    assert [each.model for each in result.made] == ["mine"]
    assert any(note.startswith("not placed: small: there is no leaderboard") for note in result.notes)
    code, out, _ = run("standing", folder, "--test-set", "cifar10", "--json")
    assert code == 0
    assert json.loads(out)["placements"][0]["rank"] == result.made[0].rank
    code, out, _ = run("standing", folder, "--test-set", "cifar10", "--neighbours", "2")
    assert out.startswith("mine: rank ")
    assert (
        len([line for line in out.splitlines() if line.split()[0] in {"mine"} or "yes" in line or " no " in line]) >= 4
    )
    assert run("standing", folder)[0] == 1
