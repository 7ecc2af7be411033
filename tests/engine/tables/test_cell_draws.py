"""What tables draw of a cell is the plain mean over the images of every replicate, whoever asks first."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from davylamp.engine.statistics.bootstrap import draw_half_distortion, resample
from davylamp.engine.store.results import read_outcomes
from davylamp.engine.tables.estimates import RunReplicates, values_of

IMAGES, REPLICATES, SEED = 40, 30, 4
SYMBOLS = ("MR", "RA", "CA", "CC", "AIAC", "seconds", "forwards", "l2")


@pytest.fixture
def outcomes(writer):
    generator = torch.Generator().manual_seed(3)
    labels = torch.randint(6, (IMAGES,), generator=generator)
    clean, adv = (3 * torch.randn(IMAGES, 6, generator=generator) for _ in range(2))
    clean[range(34), labels[:34]] += 9
    subject = writer.clean("a", clean, labels)
    writer.cell(subject, "foolbox:pgd", clean, adv, labels)
    writer.cell(subject, "foolbox:boundary", clean, adv, labels, norm="l2", epsilon=None)
    return read_outcomes(writer.store.folder)


def plain_means(values):
    """The mean over the defined values of each replicate's images, spelt out; row 0: of the images themselves."""
    drawn = [np.repeat(values, row) for row in resample(len(values), REPLICATES, SEED)]
    return [np.nanmean(each) if not np.isnan(each).all() else np.nan for each in drawn]


def draw_all(outcomes, symbols, draws=None):
    draws = RunReplicates(REPLICATES, SEED) if draws is None else draws
    draws.prepare(outcomes, symbols)
    return [draws.draw(outcome, outcomes, symbols) for outcome in outcomes.done]


def test_draws_are_the_plain_means_of_every_replicate(outcomes):
    for outcome, drawn in zip(outcomes.done, draw_all(outcomes, SYMBOLS), strict=True):
        assert set(drawn) == set(SYMBOLS)
        for symbol, draws in drawn.items():
            values = values_of(outcome, outcomes, symbol)
            truth = plain_means(values)
            assert draws.n == (~np.isnan(values)).sum()
            assert draws.ratio == pytest.approx(truth, nan_ok=True), symbol


def test_what_is_no_mean_is_drawn_by_its_own_rule(outcomes):
    for outcome, drawn in zip(outcomes.done, draw_all(outcomes, ["D_half", "CF"]), strict=True):
        half = draw_half_distortion(resample(IMAGES, REPLICATES, SEED), outcome.columns["distance"])
        expected = half if outcome.is_minimum else np.full(REPLICATES + 1, np.nan)
        assert drawn["D_half"].ratio == pytest.approx(expected, nan_ok=True)
        assert len(drawn["CF"].ratio) == REPLICATES + 1


def test_kept_draws_are_those_of_a_table_alone(outcomes):
    shared = RunReplicates(REPLICATES, SEED, kept={"MR", "AIAC", "seconds", "OPT"})
    for symbols in (("MR", "AIAC"), ("MR", "seconds", "OPT", "l2"), ("AIAC", "CC", "OPT")):
        for kept, alone in zip(draw_all(outcomes, symbols, shared), draw_all(outcomes, symbols), strict=True):
            for symbol in symbols:
                assert kept[symbol].n == alone[symbol].n
                assert kept[symbol].ratio.tolist() == pytest.approx(alone[symbol].ratio.tolist(), nan_ok=True)
    known = shared.draw(outcomes.done[0], outcomes, ["MR"])
    assert shared.draw(outcomes.done[0], outcomes, ["MR"])["MR"] is known["MR"]  # the second time nothing is drawn


def test_the_nearest_distances_are_those_of_the_table_that_asks(outcomes, writer):
    """OPT compares with the nearest of all attacks: one more or one less moves it, whatever was drawn before."""
    distances = {name: np.linspace(0.0, end, IMAGES) for name, end in (("far", 0.4), ("near", 0.3))}
    cell = outcomes.done[0]
    far, near = (replace(cell, columns={**cell.columns, "distance": each}) for each in distances.values())
    alone, both = (replace(outcomes, done=done) for done in ((far,), (far, near)))
    shared = RunReplicates(REPLICATES, SEED, kept={"OPT", "MR"})
    drawn = [draw_all(each, ["MR", "OPT"], shared)[0]["OPT"].ratio for each in (alone, both, alone)]
    for each, ratio in zip((alone, both, alone), drawn, strict=True):
        assert ratio.tolist() == draw_all(each, ["OPT"])[0]["OPT"].ratio.tolist()
    assert [ratio[0] for ratio in drawn] == pytest.approx([1, drawn[1][0], 1])
    assert drawn[1][0] < 0.9
