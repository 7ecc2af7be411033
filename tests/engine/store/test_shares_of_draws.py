"""Rows of random models reach a ranking with the shares of their draws, and those of others without."""

from typing import Any

import numpy as np
import pytest
import torch

from davylamp import rank
from davylamp.engine import load
from davylamp.engine.store.data_frames import OUTCOMES, load_outcomes, results_on_original
from davylamp.engine.tables.table import build_table

IMAGES = 60


@pytest.fixture
def results(writer):
    """A plain model that withstands 4 in 5, and a random one that withstands nearly all by majority, 0.6 by draws."""
    labels = torch.arange(IMAGES) % 5
    logits = 5.0 * torch.nn.functional.one_hot(labels, 5)
    wrong = logits.roll(1, 1)
    falls = torch.arange(IMAGES) % 5 == 0
    plain, noisy = (writer.clean(name, logits, labels) for name in ("plain", "noisy"))
    made = writer.cell(plain, "foolbox:pgd", logits, torch.where(falls[:, None], wrong, logits), labels)
    shares = torch.linspace(0.3, 0.49, IMAGES, dtype=torch.double).where(~falls, 0.5)
    writer.cell(noisy, "foolbox:pgd", logits, logits, labels, draws_fooled=shares, success=shares >= 0.5)
    writer.transfer(made, noisy, torch.where(falls, (labels + 1) % 5, labels))
    return writer.store.folder


def test_rows_with_categories_have_the_shares_of_load(results):
    plain, compact = load(results, columns=OUTCOMES), load_outcomes(results)
    np.testing.assert_array_equal(plain["draws_fooled"], compact["draws_fooled"])
    assert plain.groupby("model")["draws_fooled"].count().to_dict() == {"noisy": IMAGES, "plain": 0}


def test_a_mean_is_the_robust_accuracy_of_a_table(results):
    ranking = rank(results, scoring="mean")
    rows = build_table(results, by="pairs", metrics=["RA"]).rows
    expected = {row.labels["model"]: row.metrics["RA"].value for row in rows}
    assert dict(zip(ranking.subjects, ranking.score, strict=True)) == pytest.approx(expected)
    assert expected["noisy"] < expected["plain"]
    assert any(note.startswith("random: noisy: evaluated on many samples") for note in ranking.notes)


def test_a_defence_that_was_shown_examples_gave_one_answer(results):
    rows: Any = results_on_original(results, load(results, columns=OUTCOMES), {"noisy": "plain"})
    noisy = rows[rows["model"] == "noisy"].sort_values("index")
    assert noisy["draws_fooled"].isna().all()
    assert noisy["success"].tolist() == (np.arange(IMAGES) % 5 == 0).tolist()
