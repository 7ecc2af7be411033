"""What a defence costs and keeps, against counts by hand: results that prove nothing are no proof of weakness."""

import pytest
import torch
from scipy.stats import binomtest

from davylamp.engine.store.results import read_outcomes
from davylamp.engine.tables.tradeoff import build_tradeoffs
from davylamp.report.sections.defences import write_defences

from ...page_blocks import flatten


def exact(low, high, n=20):
    """Share and interval from `low` images robust for certain to `high` that may be."""
    ends = [binomtest(count, n).proportion_ci(method="exact") for count in (low, high)]
    return pytest.approx((low / n, ends[0].low, ends[1].high, n), abs=1e-9)


def test_intervals_reach_to_what_results_that_prove_nothing_may_hide(writer):
    """20 images. The defence: one attack fools 1 and breaks a rule on 8, another fools 3 of these 8."""
    places, labels = torch.arange(20), torch.zeros(20, dtype=torch.long)
    right, wrong = torch.tensor([[4.0, 0.0]]).repeat(20, 1), torch.tensor([[0.0, 4.0]]).repeat(20, 1)
    plain, bits = (writer.clean(name, right, labels) for name in ("m", "m+bit-depth:bits=4"))
    never = torch.zeros(20, dtype=torch.bool)
    cells = {}
    for subject, attack, success, violated in (
        (plain, "foolbox:pgd", places < 12, places >= 18),
        (plain, "foolbox:fgsm", places < 10, never),
        (bits, "foolbox:pgd", places == 0, places >= 12),
        (bits, "foolbox:fgsm", places >= 17, never),
    ):
        spec = {"success": success, "violated": violated}
        cells[subject, attack] = writer.cell(subject, attack, right, wrong, labels, **spec)
    writer.transfer(cells[plain, "foolbox:pgd"], bits, (places < 4).double().where(places != 10, torch.nan))
    outcomes = read_outcomes(writer.store.folder, ["OTR"])
    attacked, shown = build_tradeoffs(outcomes)
    assert attacked.points[0].robust == exact(6, 8)
    assert attacked.points[1].robust == exact(11, 16)
    assert [point.undecided for point in attacked.points] == [2, 5]
    assert shown.attacks == ("foolbox:pgd",)
    # 4 answers are wrong, one has no finite logits, and the last 2 examples are invalid where they were made
    assert (shown.points[1].robust, shown.points[1].undecided) == (exact(13, 15), 2)
    assert all(point.clean == exact(20, 20) for point in attacked.points)
    section = write_defences(outcomes, bootstrap=0, seed=0)
    (note,) = (block.note for block in flatten(section.blocks) if getattr(block, "name", "") == "tradeoffs")
    assert "5 of 20 images of m+bit-depth:bits=4 (own)" in note
    assert "2 of 20 images of m+bit-depth:bits=4 (original)" in note


def test_without_such_results_intervals_are_plain_and_nothing_is_said(writer):
    places, labels = torch.arange(20), torch.zeros(20, dtype=torch.long)
    right, wrong = torch.tensor([[4.0, 0.0]]).repeat(20, 1), torch.tensor([[0.0, 4.0]]).repeat(20, 1)
    for name in ("m", "m+bit-depth:bits=4"):
        writer.cell(writer.clean(name, right, labels), "foolbox:pgd", right, wrong, labels, success=places < 7)
    outcomes = read_outcomes(writer.store.folder, ["OTR"])
    (attacked,) = build_tradeoffs(outcomes)
    assert all((point.robust, point.undecided) == (exact(13, 13), 0) for point in attacked.points)
    section = write_defences(outcomes, bootstrap=0, seed=0)
    (note,) = (block.note for block in flatten(section.blocks) if getattr(block, "name", "") == "tradeoffs")
    assert note == "Intervals by Clopper and Pearson."
