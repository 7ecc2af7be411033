"""Records with results of other programs and of leaderboards. davylamp did not judge these results.

A `Reference` has the results of an attack that a different program ran on the images of the folder. A `PublishedRow`
has the numbers of a model on a leaderboard, measured on the leaderboard's test set.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa

from ..attack_run import ModelOnData, json_digest
from ..finding import Finding, note
from .checksummed import Record
from .record_validation import read_records
from .store import ResultsStore

UNJUDGED = "not judged by davylamp"
BESIDE = "`davylamp table FOLDER --with-imported` shows them"


@dataclass(frozen=True, eq=False)
class Reference:
    """Results of one attack that a different program ran on a model and its images.

    Args:
        subject: the model and its images in the folder.
        columns: arrays by name, in the order of the images, shape (n,) each. `covered`: the program has a result.
            `attacked`: the program has a result, and the clean image is classified correctly. `distance` in the norm: 0
            if the clean image is misclassified, inf if the attack does not fool the image, NaN if the program has no
            result. `crashed`: the attack raised an error, or never queried the model, so the result is unknown.
            `forwards`, `backwards`: numbers of passes. `box_failure`: the example has pixels outside [0, 1].
        about: metadata. `source` ("AttackBench"), `attack` ("foolbox:fmn"), `norm`, `file`, `seconds` in total,
            `query_budget`, `model` and `dataset` as the program names them, and `images`, the number in the program's
            file.
    """

    subject: ModelOnData
    columns: Mapping[str, np.ndarray]
    about: Mapping[str, Any]

    @property
    def norm(self) -> str:
        """Norm of the distances."""
        return str(self.about["norm"])

    @property
    def title(self) -> str:
        """Name in tables: "AttackBench foolbox:fmn"."""
        return f"{self.about['source']} {self.about['attack']}"

    @property
    def known(self) -> np.ndarray:
        """Whether the distance of each image is known, or the image is known as not fooled, (n,) bool."""
        return self.columns["covered"] & ~self.columns["crashed"]

    @property
    def success(self) -> np.ndarray:
        """Whether the program reports each image as fooled, (n,) bool."""
        return self.columns["attacked"] & np.isfinite(self.columns["distance"])

    @property
    def passes(self) -> np.ndarray:
        """Forward plus backward passes that the program reports, (n,).

        NaN if the image was not attacked, or if the program did not count passes.
        """
        spent = self.columns["forwards"] + self.columns["backwards"]
        return np.where(self.columns["attacked"] & self.known, spent, np.nan)


def references_of(records: Iterable[tuple[str, Record]]) -> tuple[Reference, ...]:
    """Convert records of the kind "references" to `Reference` objects, ordered by model, norm and attack."""
    references = [
        Reference(
            ModelOnData(**record.meta["subject"]),
            {name: record.table[name].to_numpy() for name in record.table.column_names},
            record.meta["reference"],
        )
        for _, record in records
    ]
    return tuple(sorted(references, key=lambda each: (each.subject.model, each.norm, each.title, each.about["file"])))


def envelopes_of(references: Sequence[Reference]) -> dict[tuple[str, str], np.ndarray]:
    """Return the smallest distance of each image over all references.

    Returns:
        The distances by key of the subject and norm, shape (n,). inf if no reference fooled the image, NaN if no
        reference has a result for the image.
    """
    envelopes: dict[tuple[str, str], np.ndarray] = {}
    for each in references:
        key = each.subject.key, each.norm
        distances = np.where(each.known, each.columns["distance"], np.nan)
        envelopes[key] = np.fmin(envelopes[key], distances) if key in envelopes else distances
    return envelopes


def setting_of_reference(reference: Reference, references: Sequence[Reference]) -> str:
    """Return the file name of a reference if several references have the same title. Otherwise return ""."""
    alike = [
        each
        for each in references
        if (each.subject.key, each.norm, each.title) == (reference.subject.key, reference.norm, reference.title)
    ]
    return str(reference.about["file"]) if len(alike) > 1 else ""


def notes_of(references: Sequence[Reference]) -> Iterator[Finding]:
    """Yield notes on imported references."""
    if references:
        sources = ", ".join(sorted({str(each.about["source"]) for each in references}))
        sentence = f"{{count}} rows of {{sources}}, {UNJUDGED}: {BESIDE}"
        yield note("imported", sentence, count=len(references), sources=sources)
    for each in references:
        crashed, attacked = int(each.columns["crashed"].sum()), int(each.columns["attacked"].sum())
        if crashed:
            subject = f"{each.title} on {each.subject.name}"
            sentence = (
                "{subject}, {crashed} of {attacked} images: the attack crashed or never queried the model; this is a "
                "missing result, not a success rate of 0"
            )
            yield note("imported-crash", sentence, subject=subject, crashed=crashed, attacked=attacked)


@dataclass(frozen=True)
class PublishedRow:
    """A model on a leaderboard. davylamp did not judge the model, and has no results for single images."""

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
        """Source of the numbers, for the column "judge" of tables."""
        return f"{self.source}, not davylamp"


def write_published(store: ResultsStore, rows: Sequence[PublishedRow], about: dict[str, Any]) -> list[str]:
    """Store leaderboards in a results folder, with one record for each.

    Earlier records of the same leaderboard are replaced.

    Args:
        store: the folder.
        rows: rows of any number of leaderboards.
        about: further metadata for all leaderboards, as JSON types.

    Returns:
        The keys of the records.
    """
    keys = []
    for board in dict.fromkeys((row.source, row.data, row.norm) for row in rows):
        chosen = sorted(
            (row for row in rows if (row.source, row.data, row.norm) == board), key=lambda row: (row.model, row.epsilon)
        )
        key = json_digest({"published": list(board)})
        meta = {"key": key, "kind": "published", "status": "done", "reason": "", "board": list(board), **about}
        store.write("published", key, pa.Table.from_pylist([asdict(row) for row in chosen]), meta)
        keys.append(key)
    return keys


def read_published(store: ResultsStore) -> tuple[list[PublishedRow], list[str]]:
    """Read the rows of all leaderboards in a folder.

    Returns:
        The rows, most robust first, and a message for each damaged record.
    """
    rows: list[PublishedRow] = []
    damaged: list[str] = []
    for key, record in read_records(store, "published", damaged=damaged):
        try:
            rows += [_row_of(line) for line in record.table.to_pylist()]
        except (KeyError, TypeError, ValueError) as error:
            path = store.path("published", key)
            damaged.append(f"{path} is damaged (it contains no published rows: {type(error).__name__})")
    rows.sort(key=lambda row: (row.data, row.norm, -row.robust if not math.isnan(row.robust) else math.inf, row.model))
    return rows, damaged


def published_note(store: ResultsStore) -> list[str]:
    """Return a note on the published rows in a folder. Empty if the folder has none."""
    rows, _ = read_published(store)
    if not rows:
        return []
    sources = ", ".join(sorted({row.source for row in rows}))
    return [
        f"{len(rows)} rows published by {sources} are not included, because they have no results for single images and "
        "davylamp did not judge them; `davylamp table FOLDER --with-leaderboard` shows them"
    ]


def _row_of(line: dict[str, Any]) -> PublishedRow:
    wrong = [each.name for each in fields(PublishedRow) if type(line[each.name]) is not each.type]
    if wrong:
        raise TypeError(wrong[0])
    return PublishedRow(**{each.name: line[each.name] for each in fields(PublishedRow)})
