"""Results of other programs and leaderboards, as records: davylamp did not judge them.

`Reference`: an attack that another program ran on the images of the folder. `PublishedRow`: a model on a leaderboard,
by numbers over its makers' test set.
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
BESIDE = "`davylamp table FOLDER --references` sets them beside ours"


@dataclass(frozen=True, eq=False)
class Reference:
    """One attack that another program ran on a model and its images.

    Args:
        subject: the model and its images, as the folder knows them.
        columns: shape (n,) each, by name, in the order of the subject's images: `covered` (the program had the image),
            `attacked` (covered, and right when clean), `distance` in the norm (0: wrong when clean, inf: not fooled,
            NaN: not covered), `crashed` (the attack raised, or never asked the model, and nothing is known),
            `forwards`, `backwards`, `box_failure`.
        about: `source` ("AttackBench"), `attack` ("foolbox:fmn"), `norm`, `file`, `seconds` in all, `query_budget`,
            `model` and `dataset` as the program calls them, `images` of its file.
    """

    subject: ModelOnData
    columns: Mapping[str, np.ndarray]
    about: Mapping[str, Any]

    @property
    def norm(self) -> str:
        """Norm of its distances."""
        return str(self.about["norm"])

    @property
    def title(self) -> str:
        """Its name in tables: "AttackBench foolbox:fmn"."""
        return f"{self.about['source']} {self.about['attack']}"

    @property
    def known(self) -> np.ndarray:
        """Images of which it says how near it came, or that it did not fool them, (n,) bool."""
        return self.columns["covered"] & ~self.columns["crashed"]

    @property
    def success(self) -> np.ndarray:
        """Images that it fooled by its account, (n,) bool."""
        return self.columns["attacked"] & np.isfinite(self.columns["distance"])

    @property
    def passes(self) -> np.ndarray:
        """Forward plus backward passes by its account, (n,); NaN where it attacked nothing or did not count."""
        spent = self.columns["forwards"] + self.columns["backwards"]
        return np.where(self.columns["attacked"] & self.known, spent, np.nan)


def references_of(records: Iterable[tuple[str, Record]]) -> tuple[Reference, ...]:
    """Read records of the kind "references", ordered by model, norm and attack."""
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
    """The least distance of each image over all references, by key of the subject and norm.

    Shape (n,): inf where none fooled it, NaN where none knows anything of it.
    """
    envelopes: dict[tuple[str, str], np.ndarray] = {}
    for each in references:
        key = each.subject.key, each.norm
        distances = np.where(each.known, each.columns["distance"], np.nan)
        envelopes[key] = np.fmin(envelopes[key], distances) if key in envelopes else distances
    return envelopes


def setting_of_reference(reference: Reference, references: Sequence[Reference]) -> str:
    """The file of a row, where several are called alike; "" where not."""
    alike = [
        each
        for each in references
        if (each.subject.key, each.norm, each.title) == (reference.subject.key, reference.norm, reference.title)
    ]
    return str(reference.about["file"]) if len(alike) > 1 else ""


def notes_of(references: Sequence[Reference]) -> Iterator[Finding]:
    """What is to be said about imported rows."""
    if references:
        sources = ", ".join(sorted({str(each.about["source"]) for each in references}))
        sentence = f"{{count}} rows of {{sources}}, {UNJUDGED}: {BESIDE}"
        yield note("imported", sentence, count=len(references), sources=sources)
    for each in references:
        crashed, attacked = int(each.columns["crashed"].sum()), int(each.columns["attacked"].sum())
        if crashed:
            subject = f"{each.title} on {each.subject.name}"
            sentence = (
                "{subject}, {crashed} of {attacked} images: it crashed or never asked the model: nothing is known of "
                "them, it is no success of 0"
            )
            yield note("imported-crash", sentence, subject=subject, crashed=crashed, attacked=attacked)


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
        """The source of the numbers, for a column of tables."""
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
        key = json_digest({"published": list(board)})
        meta = {"key": key, "kind": "published", "status": "done", "reason": "", "board": list(board), **about}
        store.write("published", key, pa.Table.from_pylist([asdict(row) for row in chosen]), meta)
        keys.append(key)
    return keys


def read_published(store: ResultsStore) -> tuple[list[PublishedRow], list[str]]:
    """The rows of every leaderboard in a folder, the most robust first; and a line for each record that is damaged."""
    rows: list[PublishedRow] = []
    damaged: list[str] = []
    for key, record in read_records(store, "published", damaged=damaged):
        try:
            rows += [_row_of(line) for line in record.table.to_pylist()]
        except (KeyError, TypeError, ValueError) as error:
            path = store.path("published", key)
            damaged.append(f"{path} is damaged (it holds no published rows: {type(error).__name__})")
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
    wrong = [each.name for each in fields(PublishedRow) if type(line[each.name]) is not each.type]
    if wrong:
        raise TypeError(wrong[0])
    return PublishedRow(**{each.name: line[each.name] for each in fields(PublishedRow)})
