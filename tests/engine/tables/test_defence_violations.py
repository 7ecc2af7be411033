"""MRV where results prove nothing: its interval holds what the difference is if all of them are fooled, or none."""

import pyarrow as pa
import pytest
import torch

from davylamp.engine.tables.defence_table import build_defence
from davylamp.intervals import proportion_interval

PLACES, LABELS = torch.arange(40), torch.zeros(40, dtype=torch.long)
RIGHT, WRONG = torch.tensor([[4.0, 0.0]]).repeat(40, 1), torch.tensor([[0.0, 4.0]]).repeat(40, 1)


def fold(writer, fooled, violated):
    """The table of two models of which so many images are fooled from the first, or violated from the last."""
    subjects = [writer.clean(name, RIGHT, LABELS) for name in ("m", "m+x")]
    for subject, of, lost in zip(subjects, fooled, violated, strict=True):
        fooled_here = PLACES.lt(of)
        spec = {"violated": PLACES.ge(40 - lost), "success": fooled_here}
        writer.cell(subject, "foolbox:pgd", RIGHT, torch.where(fooled_here[:, None], WRONG, RIGHT), LABELS, **spec)
    table = build_defence(writer.store.folder, "m", "m+x", metrics=["MRV"], bootstrap=20)
    return table.rows[1].metrics["MRV"], table.notes


@pytest.mark.parametrize(("fooled", "violated"), [((20, 0), (0, 39)), ((0, 20), (15, 0)), ((10, 6), (8, 20))])
def test_the_interval_reaches_to_what_violations_may_hide(writer, fooled, violated):
    estimate, notes = fold(writer, fooled, violated)
    rates = [count / 40 for count in fooled]
    assert estimate.value == pytest.approx(rates[1] - rates[0])
    assert estimate.low < rates[1] - (rates[0] + violated[0] / 40)
    assert estimate.high > rates[1] + violated[1] / 40 - rates[0]
    # Newcombe's (1998) ends of a difference from those of its shares
    before, after = (
        (proportion_interval(of, 40)[0], proportion_interval(of + lost, 40)[1])
        for of, lost in zip(fooled, violated, strict=True)
    )
    low = (rates[1] - after[0]) ** 2 + (before[1] - rates[0]) ** 2
    high = (after[1] - rates[1]) ** 2 + (rates[0] - before[0]) ** 2
    expected = (estimate.value - low**0.5, estimate.value + high**0.5)
    assert (estimate.low, estimate.high) == pytest.approx(expected, abs=1e-6)
    assert notes[-1].startswith("invalid results count as 0")


def test_examples_that_prove_nothing_of_the_model_they_were_shown_widen_it_too(writer):
    """Of 40 images the original breaks a rule on 6, the other one gives no finite logits on 4 and is fooled by 5."""
    plain, other = (writer.clean(name, RIGHT, LABELS) for name in ("m", "m+x"))
    spec = {"violated": PLACES >= 34, "success": PLACES < 30}
    cell = writer.cell(plain, "foolbox:pgd", RIGHT, torch.where((PLACES < 30)[:, None], WRONG, RIGHT), LABELS, **spec)
    logits = torch.where((PLACES < 5)[:, None], WRONG, RIGHT)
    logits[10:14] = torch.nan
    writer.transfer(cell, other, logits.argmax(1).double().where(logits.isfinite().all(1), torch.nan), logits)
    table = build_defence(writer.store.folder, "m", "m+x", metrics=["MRV", "CAV", "COS"], bootstrap=20)
    estimate, labels = table.rows[1].metrics["MRV"], table.rows[1].labels
    assert (labels["images"], labels["violations"], table.rows[1].metrics["CAV"].n) == (30, 10, 30)
    assert table.rows[1].metrics["CAV"].value == pytest.approx(21 / 30)  # 26 of 30 fooled on m, 5 of them on the other
    ends = ((30, 36), (5, 15))
    before, after = ((proportion_interval(least, 40)[0], proportion_interval(most, 40)[1]) for least, most in ends)
    low, high = (0.125 - after[0]) ** 2 + (before[1] - 0.75) ** 2, (after[1] - 0.125) ** 2 + (0.75 - before[0]) ** 2
    assert estimate[:3] == pytest.approx((-0.625, -0.625 - low**0.5, -0.625 + high**0.5), abs=1e-6)


def test_a_model_without_finite_logits_on_some_of_its_own_examples_has_a_table(writer):
    """10 of 40 answers are NaN, which are violations: the others count."""
    silent, store = PLACES >= 30, writer.store
    for name, fooled in (("m", 20), ("m+x", 10)):
        subject, logits = writer.clean(name, RIGHT, LABELS), torch.where(PLACES.lt(fooled)[:, None], WRONG, RIGHT)
        cell = writer.cell(subject, "foolbox:pgd", RIGHT, logits, LABELS, violated=silent)
        record, flat = store.read("cells", cell.key), logits.masked_fill(silent[:, None], torch.nan).numpy().reshape(-1)
        table = record.table.drop_columns(["adv_logits"])
        table = table.append_column("adv_logits", pa.FixedSizeListArray.from_arrays(pa.array(flat), 2))
        store.remove("cells", cell.key)
        store.write("cells", cell.key, table, record.meta)
    row = build_defence(store.folder, "m", "m+x", metrics=["MRV", "CAV"], bootstrap=20).rows[1]
    assert (row.metrics["CAV"].value, row.metrics["CAV"].n) == (pytest.approx(10 / 30), 30)
    assert row.metrics["MRV"].value == pytest.approx(-10 / 40)
