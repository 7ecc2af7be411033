"""The worst case of a random model is the least of several shares of draws, and is said to be."""

from typing import NamedTuple

import numpy as np
import pytest
import torch
from scipy.stats import binom

from davylamp.commands.evaluation_summary import result_lines
from davylamp.engine.store.results import read_outcomes
from davylamp.engine.tables.groups import group_cells, worst_case_bias_note
from davylamp.engine.tables.table import build_table
from davylamp.report.parts.report_data import read_folder
from davylamp.report.sections.defences import write_defences
from davylamp.report.sections.verdict import write_verdict

IMAGES, DRAWS, SHARE = 800, 20, 0.3
ATTACKS = ("foolbox:pgd", "foolbox:fgsm", "art:pgd")
WHAT = (
    "m+noise:sigma=0.1: for a random model the worst case takes the lowest of several estimated rates per image, which "
    "is biased low; more --judge-samples reduce the bias"
)


class Ended(NamedTuple):
    """What `result_lines` looks at of a plan."""

    cells: list


def write_both(writer, attacks, seeds=(0,), epsilon=0.1):
    """A plain model and a random one, of which each result leaves every image with the same true share."""
    generator = np.random.default_rng(2)
    labels, right = torch.zeros(IMAGES, dtype=torch.long), torch.tensor([[4.0, 0.0]]).repeat(IMAGES, 1)
    cells = []
    for name in ("m", "m+noise:sigma=0.1"):
        subject = writer.clean(name, right, labels)
        for attack in attacks:
            for seed in seeds:
                share = torch.tensor(generator.binomial(DRAWS, SHARE, IMAGES) / DRAWS)
                spec = {"success": share >= 0.5} | ({"draws_fooled": share} if "noise" in name else {})
                spec |= {"seed": seed, "epsilon": epsilon}
                cells.append(writer.cell(subject, attack, right, right, labels, **spec))
    return cells


def notes_of(writer, cells):
    """What a table, the end of an evaluation and the two places of the page say, text by text."""
    folder = writer.store.folder
    table = build_table(folder, by="models", metrics=["CA", "RA"], bootstrap=0)
    verdict = write_verdict(read_folder(folder), table, [], [])
    (under,) = (block.note for block in verdict.blocks if getattr(block, "name", "") == "verdict-table")
    section = write_defences(read_outcomes(folder, ["OTR"]), bootstrap=0, seed=0)
    beside = " ".join(str(getattr(block, "text", "")) for block in section.blocks)
    return " ".join(table.notes), " ".join(result_lines(Ended(cells), writer.store)), under, beside


@pytest.mark.parametrize(("attacks", "seeds"), [(ATTACKS, (0,)), (ATTACKS[:1], (0, 1))])
def test_what_is_over_several_results_says_that_it_is_the_least_of_several_shares(writer, attacks, seeds):
    cells = write_both(writer, attacks, seeds)
    for text in notes_of(writer, cells):
        assert text.count(WHAT) == 1
    by_attack = build_table(writer.store.folder, by="models", metrics=["CA", "RA_mean", "MR"], bootstrap=0)
    assert not any("random" in note for note in by_attack.notes)  # means are not biased


def test_one_result_is_no_least(writer):
    for text in notes_of(writer, write_both(writer, ATTACKS[:1])):
        assert "random" not in text


def test_what_has_no_radius_has_no_worst_case_on_the_page(writer):
    write_both(writer, ("foolbox:ddn", "foolbox:fmn"), epsilon=None)
    groups = group_cells(read_outcomes(writer.store.folder), "models")
    assert list(map(str, worst_case_bias_note(groups))) == [WHAT]  # the table has an RA of them
    for text in notes_of(writer, [])[2:]:
        assert "random" not in text


def test_the_least_of_independent_shares_lies_as_far_below_the_true_one_as_it_is_said_to(writer):
    """The expected greatest of three binomial numbers, from their distribution."""
    write_both(writer, ATTACKS)
    rows = build_table(writer.store.folder, by="models", metrics=["RA_mean", "RA"], bootstrap=0).rows
    (random,) = (row.metrics for row in rows if "noise" in row.labels["model"])
    at_most = binom.cdf(np.arange(DRAWS + 1), DRAWS, SHARE) ** len(ATTACKS)
    expected = 1 - float(np.arange(DRAWS + 1) @ np.diff(at_most, prepend=0.0)) / DRAWS
    assert random["RA_mean"].value == pytest.approx(1 - SHARE, abs=0.01)
    assert random["RA"].value == pytest.approx(expected, abs=0.01)
    assert expected < 1 - SHARE - 0.05
