"""What transferred examples do to the confidence of the models that they are tested on: CANARY's AIAC and ARTC."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..statistics.bootstrap import Estimate, draw_means, interval, resample
from ..store.contents import read_records
from ..store.image_results import DETECTED
from ..store.outcomes import Clean, Outcome, Outcomes, outcomes_of
from ..store.sealed import Record
from .groups import group_cells

Changes = Mapping[str, np.ndarray]  # by symbol: of each image, (n,), NaN where it does not count


class TransferredConfidence(NamedTuple):
    """One attack: its labels, as `TransferTable.attacks` has them, and the mean of each symbol over pairs of models."""

    labels: dict[str, Any]
    means: dict[str, Estimate]
    pairs: int


def build_transfer_confidence(
    folder: str | Path | Outcomes, *, bootstrap: int = 1000, seed: int = 0
) -> list[TransferredConfidence]:
    """AIAC and ARTC of each attack on the models that its examples were not made on, mean over the pairs of models.

    As on the model itself: AIAC is how much more likely the class becomes that is predicted after the attack, ARTC how
    much less likely the true class. Over the images that the tested model gets right when clean, and that were attacked
    by the rules; whether they fool the model they were made on is not asked.

    Args:
        folder: a results folder, evaluated with `--transfer simple` or `full`, or what was read of it.
        bootstrap: replicates over the images, for the intervals.
        seed: of these.

    Raises:
        Unavailable: if there is no such folder, or no cell in it.
    """
    outcomes = outcomes_of(folder)
    tested: dict[str, dict[str, Record]] = {}
    for key, record in read_records(outcomes.store, "transfer"):
        if not record.failed:
            cell, _, subject = key.partition("-")
            tested.setdefault(cell, {})[subject] = record
    rows = []
    for group in group_cells(outcomes, "attacks"):
        changes = [
            change_of(outcome, outcomes.clean[subject], record)
            for part in group.parts
            for outcome in part
            for subject, record in tested.get(outcome.cell.key, {}).items()
            if subject in outcomes.clean
        ]
        if changes:
            means = {symbol: _mean([each[symbol] for each in changes], bootstrap, seed) for symbol in changes[0]}
            rows.append(TransferredConfidence(group.labels, means, len(changes)))
    return rows


def change_of(outcome: Outcome, clean: Clean, record: Record) -> Changes:
    """AIAC and ARTC of each example of a cell on another model.

    Args:
        outcome: the cell that made them.
        clean: the tested model on the clean images.
        record: what it says of the examples.
    """
    if "adv_probability" not in record.table.column_names or not clean.has_confidences:
        nothing = np.full(len(clean.columns["label"]), np.nan)  # it gives labels only
        return {"AIAC": nothing, "ARTC": nothing}
    before = clean.logits.double().softmax(1).numpy()
    labels, images = clean.columns["label"], np.arange(len(before))
    predicted = record.table["adv_predicted"].to_numpy().astype(float)
    silent = np.isnan(predicted)
    adversarial = np.where(silent, 0, predicted).astype(int)
    after, left = (record.table[name].to_numpy() for name in ("adv_probability", "label_probability"))
    counts = outcome.usable & (clean.columns["predicted"] == labels) & ~silent
    if DETECTED in record.table.column_names:  # no class of the data
        counts = counts & ~record.table[DETECTED].to_numpy()
    return {
        "AIAC": np.where(counts, after - before[images, adversarial], np.nan),
        "ARTC": np.where(counts, before[images, labels] - left, np.nan),
    }


def _mean(columns: list[np.ndarray], bootstrap: int, seed: int) -> Estimate:
    """The mean over pairs of models of the means over images; images are drawn for all pairs together."""
    known = [column for column in columns if not np.isnan(column).all()]
    if not known:
        return Estimate(np.nan, np.nan, np.nan, 0)
    drawn = draw_means(resample(len(known[0]), bootstrap, seed), np.stack(known, 1))
    different = int((~np.isnan(np.stack(known))).any(0).sum())
    total = sum(each.n for each in drawn)
    return interval(np.mean([each.ratio for each in drawn], 0), total, different)
