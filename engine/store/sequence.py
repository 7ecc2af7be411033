"""The record of an evaluation on images in random order that stops when a question is decided."""

import json
from dataclasses import asdict, dataclass

from ...errors import Unavailable
from .atomic_files import read_regular_file, replace_file
from .store import ResultsStore

FILE = "sequence.json"
_LARGEST = 1 << 20  # bytes


@dataclass(frozen=True)
class SequenceRecord:
    """State of an evaluation on images in random order.

    Args:
        until: the question. The evaluation ends when the question is decided.
        population: number of all images.
        seed: seed of the random order of the images.
        images: number of images so far, including the current block.
        before: number of images before the current block. 0 for the first block.
        answers: answers from the images so far. Empty before the end of the first block.
        is_decided: whether the question is decided.
    """

    until: str
    population: int
    seed: int
    images: int
    before: int = 0
    answers: tuple[str, ...] = ()
    is_decided: bool = False

    @property
    def progress(self) -> str:
        """The answers so far, in a short sentence."""
        return f"after {self.before or self.images} of {self.population} images: {'; '.join(self.answers)}"

    @property
    def sentence(self) -> str:
        """Description of the question, the number of images, the answers so far, and the validity of the intervals."""
        answers = f" ({'; '.join(self.answers)})" if self.answers else ""
        state = "decided" if self.is_decided else "not decided"
        return (
            f"until {self.until!r}: {state} after {self.before or self.images} of {self.population} images in random "
            f"order{answers}; these intervals stay valid if you look at them after any number of images and then stop"
        )


def read_sequence(store: ResultsStore) -> SequenceRecord | None:
    """Return the record of a folder. None if the folder has no record, or if the record cannot be read."""
    try:
        stated = json.loads(read_regular_file(store.folder / FILE, _LARGEST))
        record = SequenceRecord(**{**stated, "answers": tuple(map(str, stated["answers"]))})
        numbers = record.population, record.seed, record.images, record.before
        is_sane = all(type(each) is int for each in numbers) and 0 <= record.before < record.images <= record.population
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return record if is_sane and isinstance(record.until, str) and isinstance(record.is_decided, bool) else None


def write_sequence(store: ResultsStore, record: SequenceRecord) -> None:
    """Store the record of a folder atomically.

    Raises:
        Unavailable: if it cannot be written.
    """
    path = store.folder / FILE
    try:
        store.prepare()
        replace_file(
            path, lambda draft: draft.write_text(json.dumps(asdict(record), indent=1) + "\n", encoding="utf-8")
        )
    except OSError as error:
        raise Unavailable(
            f"could not write {path} ({error}); free disk space or change the permissions, and run the command "
            "again to resume"
        ) from error
