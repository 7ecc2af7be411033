"""Examples of a cell on other models: what those predict, and which examples fool them."""

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
Predictions = Mapping[str, np.ndarray]  # of each tested model, by key of its subject: (n,) float, NaN without an answer
Transfers = Mapping[str, Predictions]  # by key of the cell


class Transferred(NamedTuple):
    """Predictions of another model on the examples of a cell.

    Args:
        predicted: its class, (n,) float; the label where it detects the example, which counts as not fooled; NaN
            without finite logits.
        share: of a random model the share of its draws that are wrong, (n,); None: it is none, or that was not kept.
        detected: what a model with a detector detects, (n,) bool; None: it has none.
        logits: shape (n, K), of a random model those of the median draw; empty where they were not asked for.
    """

    predicted: np.ndarray
    share: np.ndarray | None = None
    detected: np.ndarray | None = None
    logits: Tensor = torch.empty(0)


def transferred_of(record: Record, *, logits: bool = False) -> Transferred:
    """Read a finished transfer record, with its logits if they are asked for."""
    table, names = record.table, set(record.table.column_names)
    share, detected = (table[name].to_numpy() if name in names else None for name in (SHARES, DETECTED))
    predicted = table["adv_predicted"].to_numpy().astype(float)
    if "adv_probability" in names:  # records of 0.1.0 hold a class there, of NaN
        predicted[np.isnan(table["adv_probability"].to_numpy())] = np.nan
    if detected is not None:
        predicted = np.where(detected, table["label"].to_numpy(), predicted)
    return Transferred(predicted, share, detected, logits_of(table, "adv_logits") if logits else torch.empty(0))


def lacks_logits(record: Record) -> bool:
    """Whether a transfer record holds predictions only."""
    return "adv_logits" not in record.table.column_names


def read_shown(store: ResultsStore, cell: str, tested: str) -> Transferred | None:
    """Read the predictions of another model on the examples of a cell; None if its logits were not kept.

    Args:
        store: the folder.
        cell: key of the cell that made the examples.
        tested: key of the subject that saw them.
    """
    record = usable_record(store, "transfer", f"{cell}-{tested}")
    return None if record is None or record.failed or lacks_logits(record) else transferred_of(record, logits=True)


def read_transfers(records: Iterable[tuple[str, Record]]) -> tuple[Transfers, Transfers]:
    """Predictions of other models on the examples of each cell, and for random ones the share of wrong draws.

    A failed record says nothing, and one of an earlier version has no share.
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
    """`observable_transfer_rate` of each image on each tested model, (n,); NaN where it did not answer.

    Invalid and detected examples count as not fooled.

    Args:
        columns: of the cell that made the examples.
        usable: its images that prove something, (n,) bool.
        tested: what other models predict on them.
        over: see `observable_transfer_rate`.
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
    """Mean of each image over the tested models that answered, (n,); NaN where none did."""
    stacked = np.stack(rates)
    known = ~np.isnan(stacked)
    return np.where(known.any(0), np.nansum(stacked, 0) / np.maximum(known.sum(0), 1), np.nan)
