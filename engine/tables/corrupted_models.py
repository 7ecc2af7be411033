"""What the models of a folder predicted on corrupted images, by corruption and severity."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch

from ...adapters.data.corruptions.published import CORRUPTIONS
from ...adapters.data.corruptions.sequences import SEQUENCES
from ...errors import Unavailable
from ...metrics import flip_probability
from ..store.other_records import CorruptionRecord, read_corruptions

Value = TypeVar("Value")
_NO_ANSWER = 2**31 - 1  # as a class: the metric takes classes >= 0


@dataclass
class CorruptedModel:
    """Everything of one model on one data set.

    Args:
        model: its name.
        data: name of the images.
        clean: predictions without corruption, if they are there.
        errors: by corruption and severity.
        sequences: by name.
    """

    model: str
    data: str
    clean: CorruptionRecord | None = None
    errors: dict[str, dict[int, CorruptionRecord]] = field(default_factory=dict)
    sequences: dict[str, CorruptionRecord] = field(default_factory=dict)

    @property
    def records(self) -> list[CorruptionRecord]:
        """All of them."""
        corrupted = [record for by_severity in self.errors.values() for record in by_severity.values()]
        return [*([self.clean] if self.clean else []), *corrupted, *self.sequences.values()]

    @property
    def images(self) -> int:
        """How many, in the smallest record."""
        return min(len(record.labels) for record in self.records)

    @property
    def severities(self) -> tuple[int, ...]:
        """Those that every corruption has."""
        common = [set(by_severity) for by_severity in self.errors.values()]
        return tuple(sorted(set.intersection(*common))) if common else ()

    @property
    def paired(self) -> bool:
        """Whether every record is of the same images, in the same order."""
        return len({record.names for record in self.records}) == 1

    def wrong(self, corruptions: Sequence[str]) -> np.ndarray:
        """1 for each error, (corruptions, severities, n)."""
        return np.array([[self.errors[name][level].wrong for level in self.severities] for name in corruptions])


def read_corrupted_models(folder: str | Path) -> tuple[list[CorruptedModel], dict[str, str]]:
    """The models of a folder with what they predicted on corrupted images; what cannot be used, with why.

    Raises:
        Unavailable: if there is no such folder, or nothing of the kind in it.
    """
    records, failed = read_corruptions(folder)
    models: dict[tuple[object, ...], CorruptedModel] = {}
    for record in records:
        cell = record.cell
        key = (cell.model, cell.model_digest, *cell.setting)
        mine = models.setdefault(key, CorruptedModel(cell.model, cell.data))
        if cell.sequence:
            mine.sequences[cell.corruption] = record
        elif cell.corruption:
            mine.errors.setdefault(cell.corruption, {})[cell.severity] = record
        else:
            mine.clean = record
    for mine in models.values():
        mine.errors = _in_order(mine.errors, list(CORRUPTIONS))
        mine.sequences = _in_order(mine.sequences, list(SEQUENCES))
    if not models:
        why = f" ({'; '.join(failed.values())})" if failed else ""
        raise Unavailable(
            f"expected predictions on corrupted images in {folder}, found none{why}: davylamp corrupt-table"
        )
    return list(models.values()), failed


def _in_order(values: dict[str, Value], order: list[str]) -> dict[str, Value]:
    """The entries in the authors' order, others after them."""
    return dict(sorted(values.items(), key=lambda item: order.index(item[0]) if item[0] in order else len(order)))


def flips_of(record: CorruptionRecord) -> np.ndarray:
    """Share of the frames of each image that are predicted otherwise than the frame they are compared with, (n,)."""
    frames = record.predicted
    reference = frames[:, :1] if _is_noise(record) else frames[:, :-1]
    return (frames[:, 1:] != reference).mean(1)


def flip_probability_of(record: CorruptionRecord) -> float:
    """`metrics.flip_probability` of a sequence: of noises against the first frame, the clean image, as published."""
    frames = torch.tensor(np.where(record.predicted < 0, _NO_ANSWER, record.predicted)).long()
    return float(flip_probability(frames, against="first" if _is_noise(record) else "previous"))


def _is_noise(record: CorruptionRecord) -> bool:
    """Whether its frames are compared with the first one, the clean image."""
    row = SEQUENCES.get(record.cell.corruption)
    return row is not None and row.noise
