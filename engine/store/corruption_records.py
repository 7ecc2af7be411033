"""What a model predicts on corrupted images, as records: one for each model, corruption and severity, or sequence."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ...adapters.data.corruptions.corrupted_sets import ON_DISK
from ..cell import digest_of
from .sealed import Damaged, Record
from .store import ResultsStore

KIND = "corruptions"


@dataclass(frozen=True)
class CorruptionCell:
    """A model on images with one corruption at one severity, or on the frames of a sequence.

    Args:
        model: its name.
        model_digest: of all that can change what it answers.
        data: name of the clean images, or of the set on disk.
        data_digest: of the clean pixels and labels; of a set on disk, of the names and sizes of its files.
        images: how many.
        corruption: its name; "" for the clean images.
        severity: 1 to 5; 0 for clean images and sequences.
        sequence: whether `corruption` names a sequence of frames.
        seed: of everything random.
        source: what made the images: the library with its version; "" for images that are read or clean.
        torch: its version, "2.5".
        device: "cpu", "cuda".
    """

    model: str
    model_digest: str
    data: str
    data_digest: str
    images: int
    corruption: str = ""
    severity: int = 0
    sequence: bool = False
    seed: int = 0
    source: str = ""
    torch: str = ""
    device: str = ""

    @property
    def spec(self) -> dict[str, Any]:
        """What `key` hashes, as JSON types."""
        return asdict(self)

    @cached_property
    def key(self) -> str:
        """Name of the record: 20 hexadecimal digits of a hash over the spec."""
        return digest_of({"corruption": self.spec})

    @property
    def setting(self) -> tuple[Any, ...]:
        """What two cells share whose numbers may stand side by side: images, seed and what made them."""
        read = self.data.partition(":")[0] in ON_DISK  # each corruption has files there, and so a digest, for itself
        return self.data, "" if read else self.data_digest, self.images, self.seed, self.device

    @property
    def title(self) -> str:
        """What progress and messages call it: "fog:3 on NAME"."""
        what = f"sequence {self.corruption}" if self.sequence else f"{self.corruption}:{self.severity}"
        return f"{what if self.corruption else 'clean'} on {self.model}"


@dataclass(frozen=True)
class CorruptionRecord:
    """A cell with what was found.

    Args:
        cell: what it is about.
        names: of the images.
        labels: (n,).
        predicted: (n,), or (n, frames) of a sequence; -1 where the model gave no finite answer.
        picture: the first image as PNG, with its corruption; None: not kept.
    """

    cell: CorruptionCell
    names: tuple[str, ...]
    labels: np.ndarray
    predicted: np.ndarray
    picture: bytes | None = None

    @property
    def wrong(self) -> np.ndarray:
        """1 for each image whose prediction is not its label, (n,)."""
        return (self.predicted != self.labels).astype(float)


def corruption_table_of(names: list[str], labels: np.ndarray, predicted: np.ndarray, picture: bytes | None) -> pa.Table:
    """A record's table: `index`, `image`, `label`, `predicted` (or `frames`, a list), `picture` of the first image."""
    columns: dict[str, Any] = {"index": pa.array(range(len(labels))), "image": pa.array(names), "label": labels}
    if predicted.ndim == 2:
        flat = pa.array(predicted.astype(np.int32).reshape(-1))
        columns["frames"] = pa.FixedSizeListArray.from_arrays(flat, predicted.shape[1])
    else:
        columns["predicted"] = predicted.astype(np.int64)
    pictures = [picture if place == 0 else None for place in range(len(labels))]
    return pa.table({**columns, "picture": pa.array(pictures, pa.binary())})


def read_corruption(store: ResultsStore, cell: CorruptionCell) -> CorruptionRecord | None:
    """The record of a cell; None if there is none that is whole and did not fail."""
    try:
        record = store.read(KIND, cell.key)
        return None if record.failed else _open(cell.key, record)
    except (FileNotFoundError, Damaged):
        return None


def read_corruptions(folder: str | Path) -> tuple[list[CorruptionRecord], dict[str, str]]:
    """Every record of a folder, clean ones first, and by title why the others cannot be used.

    Raises:
        Unavailable: if there is no such folder.
        StoreMismatch: if it was written in another format.
    """
    store = ResultsStore(folder, create=False)
    records, failed = [], {}
    for key, record in store.read_all(KIND):
        if isinstance(record, Damaged):
            failed[key] = str(record)
        elif record.failed:
            failed[_title_of(record.meta, key)] = record.meta["reason"]
        else:
            try:
                records.append(_open(key, record))
            except Damaged as damage:
                failed[key] = str(damage)
    ordered = sorted(
        records, key=lambda each: (each.cell.data, each.cell.model, each.cell.corruption, each.cell.severity)
    )
    return ordered, failed


def _open(key: str, record: Record) -> CorruptionRecord:
    """What a record holds.

    Raises:
        Damaged: if that is something else.
    """
    try:
        cell = CorruptionCell(**record.meta["spec"])
        table = record.table
        names = tuple(map(str, table["image"].to_pylist()))
        labels = table["label"].to_numpy()
        column = table["frames" if cell.sequence else "predicted"].combine_chunks()
        flat = column.flatten() if cell.sequence else column
        predicted = flat.to_numpy(zero_copy_only=False)
        predicted = predicted.reshape(len(labels), -1) if cell.sequence else predicted
        picture = table["picture"].to_pylist()[0] if len(table) else None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Damaged(f"{KIND}/{key} does not hold what it should ({type(error).__name__})") from error
    if cell.key != key or len(labels) != cell.images or predicted.dtype.kind != "i" or labels.dtype.kind != "i":
        raise Damaged(f"{KIND}/{key} is about something else than its name says")
    return CorruptionRecord(cell, names, labels, predicted, picture)


def _title_of(meta: Mapping[str, Any], key: str) -> str:
    try:
        return CorruptionCell(**meta["spec"]).title
    except (KeyError, TypeError):
        return key
