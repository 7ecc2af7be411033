"""Examples of a cell on other models: what those predict, and which examples fool them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...metrics import observable_transfer_rate
from .columns import logits_of
from .contents import find_fault
from .detected import DETECTED
from .sealed import Damaged, Record
from .store import ResultsStore

Over = Literal["fooled", "valid"]
Predictions = Mapping[str, np.ndarray]  # of each tested model, by key of its subject: (n,) float, NaN without an answer
Transfers = Mapping[str, Predictions]  # by key of the cell
_SHARE = "draws_fooled"  # of a random model without a detector: share of its draws that are wrong, (n,)


class Transferred(NamedTuple):
    """What another model makes of the examples of a cell.

    Args:
        logits: shape (n, K), of a random model those of the median draw.
        share: of a random model the share of its draws that are wrong, (n,); None: it is none, or that was not kept.
        detected: what a model with a detector detects, (n,) bool; None: it has none.
    """

    logits: Tensor
    share: np.ndarray | None = None
    detected: np.ndarray | None = None


def read_transfers(records: Iterable[tuple[str, Record]]) -> tuple[Transfers, Transfers]:
    """What other models predict on the examples of each cell, and of random ones the share of draws that are wrong.

    Of an example that a model with a detector detects the prediction is the label: it fools nobody. A failed record
    says nothing, and one of an earlier version has no share.
    """
    transfers: dict[str, dict[str, np.ndarray]] = {}
    shares: dict[str, dict[str, np.ndarray]] = {}
    for key, record in records:
        if not record.failed:
            cell, _, tested = key.partition("-")
            transfers.setdefault(cell, {})[tested] = _predicted(record)
            share = _column(record, _SHARE)
            shares.setdefault(cell, {}).update({} if share is None else {tested: share})
    return transfers, shares


def lacks_logits(record: Record) -> bool:
    """Whether a transfer record holds predictions only."""
    return "adv_logits" not in record.table.column_names


def read_shown(store: ResultsStore, cell: str, tested: str) -> Transferred | None:
    """What another model makes of the examples of a cell; None where its logits were not kept.

    Args:
        store: the folder.
        cell: key of the cell that made the examples.
        tested: key of the subject that saw them.
    """
    key = f"{cell}-{tested}"
    try:
        record = store.read("transfer", key)
    except (FileNotFoundError, Damaged):
        return None
    if record.failed or lacks_logits(record) or find_fault("transfer", key, record):
        return None
    return Transferred(logits_of(record.table, "adv_logits"), _column(record, _SHARE), _column(record, DETECTED))


def read_defended_logits(store: ResultsStore, cell: str, tested: str) -> Tensor | None:
    """The logits of `read_shown`."""
    shown = read_shown(store, cell, tested)
    return None if shown is None else shown.logits


def _column(record: Record, name: str) -> np.ndarray | None:
    return record.table[name].to_numpy() if name in record.table.column_names else None


def _predicted(record: Record) -> np.ndarray:
    predicted = record.table["adv_predicted"].to_numpy().astype(float)
    if "adv_probability" in record.table.column_names:  # records of 0.1.0 hold a class there, of NaN
        predicted[np.isnan(record.table["adv_probability"].to_numpy())] = np.nan
    if DETECTED in record.table.column_names:  # what is detected fools nobody
        predicted = np.where(record.table[DETECTED].to_numpy(), record.table["label"].to_numpy(), predicted)
    return predicted


def transfer_rates(
    columns: Mapping[str, np.ndarray], usable: np.ndarray, tested: Predictions, over: Over = "fooled"
) -> dict[str, np.ndarray]:
    """`observable_transfer_rate` of each image on each tested model, (n,); NaN where it did not answer.

    A violation fools nobody, nor does what is detected.

    Args:
        columns: of the cell that made the examples.
        usable: its images that prove something, (n,) bool.
        tested: what other models predict on them.
        over: see `observable_transfer_rate`.
    """
    labels = torch.tensor(columns["label"])
    usable = usable & ~columns[DETECTED] if DETECTED in columns else usable
    source = torch.tensor(np.where(usable, columns["adv_predicted"], columns["label"]))
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
