"""Predictions of other models on the examples of a run, and transfer rates."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...metrics import observable_transfer_rate
from .checksummed import Record
from .columns import logits_of
from .image_results import DETECTED, SHARES, results_of
from .record_validation import usable_record
from .store import ResultsStore

Over = Literal["fooled", "valid"]
Predictions = Mapping[str, np.ndarray]  # by key of the tested model on data: (n,) float, NaN for non-finite logits
Transfers = Mapping[str, Predictions]  # by key of the run


class Transferred(NamedTuple):
    """Predictions of a model on the examples of a run on another model.

    Args:
        predicted: predicted class, (n,) float. NaN for non-finite logits. If the model's detector reports the example,
            this is the label, because the example counts as not fooled.
        share: rate of wrong samples of a random model, (n,). None for a deterministic model, or if it was not stored.
        detected: whether the model's detector reports each example, (n,) bool. None without a detector.
        logits: shape (n, K). For a random model, those of the median sample. Empty if not requested.
    """

    predicted: np.ndarray
    share: np.ndarray | None = None
    detected: np.ndarray | None = None
    logits: Tensor = torch.empty(0)


def transferred_of(record: Record, *, logits: bool = False) -> Transferred:
    """Convert a finished transfer record to a `Transferred` result.

    Args:
        record: the record.
        logits: whether to include the logits of the record.
    """
    table, names = record.table, set(record.table.column_names)
    share, detected = (table[name].to_numpy() if name in names else None for name in (SHARES, DETECTED))
    predicted = table["adv_predicted"].to_numpy().astype(float)
    if "adv_probability" in names:  # records of 0.1.0 have a class for NaN
        predicted[np.isnan(table["adv_probability"].to_numpy())] = np.nan
    if detected is not None:
        predicted = np.where(detected, table["label"].to_numpy(), predicted)
    return Transferred(predicted, share, detected, logits_of(table, "adv_logits") if logits else torch.empty(0))


def lacks_logits(record: Record) -> bool:
    """Whether a transfer record has predictions, but no logits."""
    return "adv_logits" not in record.table.column_names


def read_shown(store: ResultsStore, cell: str, tested: str) -> Transferred | None:
    """Read the predictions of a model on the examples of a run on another model.

    Args:
        store: the folder.
        cell: key of the run that made the examples.
        tested: key of the tested model and its data.

    Returns:
        The predictions. None if their logits were not stored.
    """
    record = usable_record(store, "transfer", f"{cell}-{tested}")
    return None if record is None or record.failed or lacks_logits(record) else transferred_of(record, logits=True)


def read_transfers(records: Iterable[tuple[str, Record]]) -> tuple[Transfers, Transfers]:
    """Read the predictions of other models on the examples of each run.

    Args:
        records: transfer records with their keys. Failed records are omitted.

    Returns:
        The predicted classes, and for random models the rate of wrong samples. Both are by key of the run, then by key
        of the tested model. Records of an earlier version have no rate.
    """
    transfers: dict[str, dict[str, np.ndarray]] = {}
    shares: dict[str, dict[str, np.ndarray]] = {}
    for key, record in records:
        if not record.failed:
            (cell, _, tested), shown = key.partition("-"), transferred_of(record)
            transfers.setdefault(cell, {})[tested] = shown.predicted
            shares.setdefault(cell, {}).update({} if shown.share is None else {tested: shown.share})
    return transfers, shares


def transfer_rates(
    columns: Mapping[str, np.ndarray], usable: np.ndarray, tested: Predictions, over: Over = "fooled"
) -> dict[str, np.ndarray]:
    """Compute `observable_transfer_rate` of each image on each tested model.

    Invalid and detected examples count as not fooled.

    Args:
        columns: columns of the run that made the examples.
        usable: whether each image of that run is usable, (n,) bool.
        tested: predictions of other models on the examples.
        over: see `observable_transfer_rate`.

    Returns:
        The rates by key of the tested model, (n,). NaN for non-finite logits.
    """
    labels = torch.tensor(columns["label"])
    source = torch.tensor(np.where(usable & ~results_of(columns).detected, columns["adv_predicted"], columns["label"]))
    clean = torch.tensor(columns["predicted"]).expand(2, -1)
    rates = {}
    for key, predicted in tested.items():
        silent = np.isnan(predicted)
        both = torch.stack([source, torch.tensor(np.where(silent, 0, predicted)).long()])
        rate = observable_transfer_rate(clean, both, labels, 0, over=over, reduction="none").double().numpy()
        rates[key] = np.where(silent, np.nan, rate)
    return rates


def mean_rate(rates: Sequence[np.ndarray]) -> np.ndarray:
    """Return the mean rate of each image over the tested models, (n,).

    Models with non-finite logits for the image are omitted. NaN if no model remains.
    """
    stacked = np.stack(rates)
    known = ~np.isnan(stacked)
    return np.where(known.any(0), np.nansum(stacked, 0) / np.maximum(known.sum(0), 1), np.nan)
