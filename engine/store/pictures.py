"""The first images of a record as pictures, with their activation maps: what a page shows of it."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from torch import Tensor

from .columns import logits_of
from .sealed import Record


@dataclass(frozen=True)
class Example:
    """One of the first images, under attack or clean: PNG bytes, activation map (h, w), confidence in `predicted`."""

    place: int
    image: str
    label: int
    predicted: int
    picture: bytes | None
    cam: np.ndarray | None
    confidence: float


def pictures_of(record: Record, prefix: Literal["", "adv_"], *, confidences: bool = True) -> tuple[Example, ...]:
    """The images of a record that have a picture; none in records of davylamp 0.1.0.

    Args:
        record: of which the pictures and maps were read.
        prefix: of the columns: "adv_" of a cell, "" of clean predictions.
        confidences: whether the model says how sure it is; else the confidence is NaN.
    """
    table = record.table
    if not {f"{prefix}picture", f"{prefix}cam"} <= set(table.column_names):
        return ()
    shown = table[f"{prefix}picture"].is_valid().to_numpy()
    if not shown.any():
        return ()
    part = table.filter(shown)
    probabilities = _logits(record, f"{prefix}logits", np.flatnonzero(shown)).softmax(1)
    columns = {name: part[name].to_pylist() for name in ("index", "image", "label")}
    columns |= {name: part[prefix + name].to_pylist() for name in ("predicted", "picture", "cam")}
    return tuple(
        Example(
            place=columns["index"][row],
            image=columns["image"][row],
            label=columns["label"][row],
            predicted=columns["predicted"][row],
            picture=columns["picture"][row],
            cam=None if columns["cam"][row] is None else np.asarray(columns["cam"][row], np.float32),
            confidence=float(probabilities[row, columns["predicted"][row]]) if confidences else math.nan,
        )
        for row in range(len(part))
    )


def _logits(record: Record, name: str, places: np.ndarray) -> Tensor:
    """Logits of some rows, (n, K); where they were not read with the record only the first rows of them are."""
    if name in record.table.column_names:
        return logits_of(record.table.take(places), name)
    assert record.more is not None
    return logits_of(record.more([name], int(places[-1]) + 1).take(places), name)
