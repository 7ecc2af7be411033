"""Rows of a leaderboard as its makers publish them: numbers over their test set, no answer to any image."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import pyarrow as pa

from ..cell import digest_of
from .contents import read_records
from .sealed import Damaged
from .store import ResultsStore

KIND = "published"


@dataclass(frozen=True)
class PublishedRow:
    """A model on a leaderboard; nothing here judged it, and its images are not known one by one.

    Args:
        source: whose leaderboard: "RobustBench".
        model: its identifier there.
        title: of the paper.
        data: the data set as they call it.
        norm: "linf", "l2"; "corruptions".
        epsilon: radius; NaN: none.
        images: of their test set; 0: not known.
        clean: accuracy on clean images, 0 to 1; NaN: not stated.
        robust: the least accuracy under attack that they know of, 0 to 1; under corruptions the mean over them.
        autoattack: accuracy under AutoAttack, 0 to 1; NaN: not stated.
        unreliable: whether they flag AutoAttack as possibly too weak for it.
        additional_data: whether it was trained with more data than the data set's.
        architecture: as they call it.
        venue: where the paper is.
        authors: of the paper.
        link: to the paper.
        note: their footnote.
    """

    source: str
    model: str
    title: str
    data: str
    norm: str
    epsilon: float
    images: int
    clean: float
    robust: float
    autoattack: float
    unreliable: bool
    additional_data: bool
    architecture: str
    venue: str
    authors: str
    link: str
    note: str

    @property
    def judge(self) -> str:
        """Who says so."""
        return f"{self.source}, not davylamp"


def write_published(store: ResultsStore, rows: Sequence[PublishedRow], about: dict[str, Any]) -> list[str]:
    """Keep rows in a results folder, a record for each leaderboard; one that is there is replaced. Returns the keys.

    Args:
        store: of the folder.
        rows: of any number of leaderboards.
        about: what else is known of all of them, as JSON types.
    """
    keys = []
    for board in dict.fromkeys((row.source, row.data, row.norm) for row in rows):
        chosen = sorted(
            (row for row in rows if (row.source, row.data, row.norm) == board), key=lambda row: (row.model, row.epsilon)
        )
        key = digest_of({"published": list(board)})
        meta = {"key": key, "kind": KIND, "status": "done", "reason": "", "board": list(board), **about}
        store.write(KIND, key, pa.Table.from_pylist([asdict(row) for row in chosen]), meta)
        keys.append(key)
    return keys


def read_published(store: ResultsStore) -> tuple[list[PublishedRow], list[str]]:
    """The rows of every leaderboard in a folder, the most robust first; and a line for each record that is damaged."""
    rows: list[PublishedRow] = []
    damaged: list[str] = []
    for key, record in read_records(store, KIND):
        if isinstance(record, Damaged):
            damaged.append(str(record))
            continue
        try:
            rows += [_row_of(line) for line in record.table.to_pylist()]
        except (KeyError, TypeError, ValueError) as error:
            damaged.append(f"{store.path(KIND, key)} is damaged (it holds no published rows: {type(error).__name__})")
    rows.sort(key=lambda row: (row.data, row.norm, -row.robust if not math.isnan(row.robust) else math.inf, row.model))
    return rows, damaged


def published_note(store: ResultsStore) -> list[str]:
    """A line about the published rows of a folder; [] where there are none."""
    rows, _ = read_published(store)
    if not rows:
        return []
    sources = ", ".join(sorted({row.source for row in rows}))
    return [
        f"{len(rows)} rows published by {sources} are not in here: they have no answers to single images, and davylamp "
        "did not judge them; `davylamp table FOLDER --published` sets them beside ours"
    ]


def _row_of(line: dict[str, Any]) -> PublishedRow:
    values = {}
    for each in fields(PublishedRow):
        value = line[each.name]
        if type(value) is not each.type:
            raise TypeError(each.name)
        values[each.name] = value
    return PublishedRow(**values)
