"""Kept answers of several folders in one file: an answer that two give differently is nobody's, and asked again."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from ....errors import InvalidInput
from .kept_answers import FILE, KeptAnswers

__all__ = ["FILE", "merge_answers"]


def merge_answers(files: Sequence[Path], out: Path) -> list[str]:
    """Write what servers answered, as several files keep it, into a new one.

    Args:
        files: of kept answers; each is only read.
        out: the new file; one that is there is replaced.

    Returns:
        A line about each server that was paid, as the sums of the files, and about answers that differ.

    Raises:
        InvalidInput: if a file holds no answers.
        Unavailable: if the new one cannot be written.
    """
    for name in (out.name, f"{out.name}-wal", f"{out.name}-shm"):
        out.with_name(name).unlink(missing_ok=True)
    answers: dict[tuple[str, bytes], bytes] = {}
    differing: set[tuple[str, bytes]] = set()
    spent: dict[str, tuple[int, float]] = {}
    fingerprints: dict[tuple[str, str], tuple[bytes, int]] = {}
    for path in files:
        try:
            kept, known, paid = _read(path)
        except sqlite3.Error as error:
            raise InvalidInput(f"expected kept answers in {path}, got another file ({error})") from error
        differing |= {key for key, answer in kept.items() if answers.get(key, answer) != answer}
        answers |= kept
        fingerprints |= {key: value for key, value in known.items() if key not in fingerprints}
        for model, (count, cost) in paid.items():
            before = spent.get(model, (0, 0.0))
            spent[model] = before[0] + count, before[1] + cost
    _write(out, {key: answer for key, answer in answers.items() if key not in differing}, fingerprints, spent)
    lines = [f"{model}: {count} paid, the sum over {len(files)} folders" for model, (count, _) in sorted(spent.items())]
    if differing:
        lines.append(f"{len(differing)} kept answers differ between the folders and are left out: they are asked again")
    return lines if len(files) > 1 else []


def _read(path: Path) -> tuple[dict, dict, dict]:
    """Answers, fingerprints and payments of a file, opened read-only."""
    database = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    try:
        kept = {(model, image): answer for model, image, answer in database.execute("SELECT * FROM answers")}
        known = {(row[0], row[1]): (row[2], row[3]) for row in database.execute("SELECT * FROM fingerprints")}
        paid = {model: (count, cost) for model, count, cost in database.execute("SELECT * FROM spent")}
    finally:
        database.close()
    return kept, known, paid


def _write(out: Path, answers: dict, fingerprints: dict, spent: dict) -> None:
    KeptAnswers(out).close()  # makes the tables
    database = sqlite3.connect(out)
    try:
        with database:
            rows = [(*key, answer) for key, answer in answers.items()]
            database.executemany("INSERT INTO answers VALUES (?, ?, ?)", rows)
            rows = [(*key, *value) for key, value in fingerprints.items()]
            database.executemany("INSERT INTO fingerprints VALUES (?, ?, ?, ?)", rows)
            database.executemany("INSERT INTO spent VALUES (?, ?, ?)", [(m, *paid) for m, paid in spent.items()])
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        database.close()
