"""Results of another program on the images of a folder, as that program reports them: nothing here judged them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ..cell import ModelOnData
from .sealed import Record

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
        """That its distances are measured in."""
        return str(self.about["norm"])

    @property
    def title(self) -> str:
        """What tables call it: "AttackBench foolbox:fmn"."""
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
    """What the records of the kind "references" say, ordered by model, norm and attack."""
    references = [
        Reference(ModelOnData(**record.meta["subject"]), _columns(record.table), record.meta["reference"])
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


def notes_of(references: Sequence[Reference]) -> list[str]:
    """What a reader of imported rows has to know, a line each."""
    if not references:
        return []
    sources = ", ".join(sorted({str(each.about["source"]) for each in references}))
    lines = [f"{len(references)} rows of {sources}, {UNJUDGED}: {BESIDE}"]
    for each in references:
        crashed, attacked = each.columns["crashed"], int(each.columns["attacked"].sum())
        if crashed.any():
            what = "it crashed or never asked the model: nothing is known of them, it is no success of 0"
            lines.append(f"{each.title} on {each.subject.name}, {int(crashed.sum())} of {attacked} images: {what}")
    return lines


def _columns(table: pa.Table) -> dict[str, np.ndarray]:
    return {name: table[name].to_numpy() for name in table.column_names}
