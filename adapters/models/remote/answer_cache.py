"""Cache of servers' outputs in a file, by model and image. Each image is billed once, even if the process is killed.

When several files are merged, outputs that differ between them are dropped and requested again.
"""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ....errors import InvalidInput, Unavailable

FILE = "answers.sqlite"
_BUSY_SECONDS = 60.0
_AT_ONCE = 500  # placeholders per statement
_TABLES = (
    "CREATE TABLE IF NOT EXISTS answers (model TEXT, image BLOB, answer BLOB,"
    " PRIMARY KEY (model, image)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS fingerprints (model TEXT, digest TEXT, answers BLOB, classes INTEGER,"
    " PRIMARY KEY (model, digest))",
    "CREATE TABLE IF NOT EXISTS spent (model TEXT PRIMARY KEY, paid INTEGER, cost REAL)",
)


class AnswerCache:
    """File of servers' outputs, which are written as they arrive, so that a killed process loses none.

    Several processes on one machine may share it. SQLite is not safe on a file system shared between machines.

    Args:
        path: created with its folder if missing. An entry needs 4 bytes per class and about 70 more.

    Raises:
        Unavailable: if it cannot be opened, or is not an answer cache.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._database: sqlite3.Connection | None = None
        with self._open():
            pass

    def look_up(self, model: str, images: Sequence[bytes]) -> dict[bytes, np.ndarray]:
        """Return the stored outputs for images (given by their hashes): float32 of shape (K,), or int64 of shape ()."""
        answers: dict[bytes, np.ndarray] = {}
        with self._open() as database:
            for start in range(0, len(images), _AT_ONCE):
                part = images[start : start + _AT_ONCE]
                places = ",".join("?" * len(part))
                query = f"SELECT image, answer FROM answers WHERE model = ? AND image IN ({places})"
                answers |= {image: _unpack(answer) for image, answer in database.execute(query, (model, *part))}
        return answers

    def store(self, model: str, answers: Mapping[bytes, np.ndarray]) -> None:
        """Store outputs by the hash of their image. The write has been passed to the disk when this returns."""
        rows = [(model, image, _pack(answer)) for image, answer in answers.items()]
        with self._open() as database, database:
            database.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?, ?)", rows)

    def fingerprints(self, model: str) -> dict[str, np.ndarray]:
        """Return a model's earlier fingerprints by digest: each its outputs for the P probe images, (P, K) float64."""
        with self._open() as database:
            rows = database.execute("SELECT digest, answers, classes FROM fingerprints WHERE model = ?", (model,))
            return {digest: np.frombuffer(blob, np.float64).reshape(-1, classes) for digest, blob, classes in rows}

    def keep_fingerprint(self, model: str, digest: str, answers: np.ndarray) -> None:
        """Store a fingerprint of a model."""
        row = (model, digest, answers.astype(np.float64).tobytes(), answers.shape[1])
        with self._open() as database, database:
            database.execute("INSERT OR REPLACE INTO fingerprints VALUES (?, ?, ?, ?)", row)

    def add_usage(self, model: str, paid: int, cost: float) -> None:
        """Add billed images and their price to a model's total. This does not depend on whether outputs are stored."""
        more = "UPDATE SET paid = paid + excluded.paid, cost = cost + excluded.cost"
        with self._open() as database, database:
            database.execute(f"INSERT INTO spent VALUES (?, ?, ?) ON CONFLICT (model) DO {more}", (model, paid, cost))

    def usage(self) -> dict[str, tuple[int, float]]:
        """Return images billed since the file was created, and their price, by model. Killed runs are included."""
        with self._open() as database:
            return {model: (paid, cost) for model, paid, cost in database.execute("SELECT * FROM spent ORDER BY model")}

    def close(self) -> None:
        """Close the file."""
        if self._database is not None:
            self._database.close()
            self._database = None

    def __del__(self) -> None:
        """Close the file, because Python 3.13 warns about a database left open."""
        try:  # __init__ may have failed, or the interpreter is ending and only built-in names are left
            self.close()
        except Exception:
            return

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            if self._database is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._database = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, check_same_thread=False)
                # A killed process loses nothing; a power failure may lose the last answers, which are then billed
                # again.
                for pragma in ("journal_mode=WAL", "synchronous=NORMAL"):
                    self._database.execute(f"PRAGMA {pragma}").fetchall()
                with self._database:
                    for table in _TABLES:
                        self._database.execute(table)
            yield self._database
        except (sqlite3.Error, OSError, ValueError) as error:
            raise Unavailable(
                f"cannot use the answer cache {self.path} ({error}). Move the file away (its answers will be requested "
                "and billed again), or add --no-cache."
            ) from error

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_database": None}


def _pack(answer: np.ndarray) -> bytes:
    kind = b"f" if answer.dtype == np.float32 else b"i"
    return kind + np.ascontiguousarray(answer, "<f4" if kind == b"f" else "<i8").tobytes()


def _unpack(content: bytes) -> np.ndarray:
    if content[:1] == b"f":
        return np.frombuffer(content[1:], "<f4").astype(np.float32)
    return np.frombuffer(content[1:], "<i8").astype(np.int64).reshape(())


def format_usage(folder: Path) -> list[str]:
    """Describe the total billed by each server for a results folder, including killed runs; [] without a cache."""
    path = folder / FILE
    if not path.is_file():
        return []
    answers = AnswerCache(path)
    lines = answers.usage().items()
    answers.close()
    return [
        f"{name}: {paid} images billed in total for {path}" + (f", price {cost:.6g}" if cost else "")
        for name, (paid, cost) in lines
    ]


def merge_answers(files: Sequence[Path], out: Path) -> list[str]:
    """Merge several answer caches into a new file.

    Args:
        files: answer caches, opened read-only.
        out: path of the new file. An existing file is replaced.

    Returns:
        For each server a sentence with the sum of billed images, and sentences on outputs that differ.

    Raises:
        InvalidInput: if a file is not an answer cache.
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
            raise InvalidInput(f"{path} is not an answer cache ({error})") from error
        differing |= {key for key, answer in kept.items() if answers.get(key, answer) != answer}
        answers |= kept
        fingerprints |= {key: value for key, value in known.items() if key not in fingerprints}
        for model, (count, cost) in paid.items():
            before = spent.get(model, (0, 0.0))
            spent[model] = before[0] + count, before[1] + cost
    _write(out, {key: answer for key, answer in answers.items() if key not in differing}, fingerprints, spent)
    lines = [f"{model}: {count} images billed in {len(files)} folders" for model, (count, _) in sorted(spent.items())]
    if differing:
        lines.append(f"cached answers that differ between the folders, to be requested again: {len(differing)}")
    return lines if len(files) > 1 else []


def _read(path: Path) -> tuple[dict, dict, dict]:
    database = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    try:
        kept = {(model, image): answer for model, image, answer in database.execute("SELECT * FROM answers")}
        known = {(row[0], row[1]): (row[2], row[3]) for row in database.execute("SELECT * FROM fingerprints")}
        paid = {model: (count, cost) for model, count, cost in database.execute("SELECT * FROM spent")}
    finally:
        database.close()
    return kept, known, paid


def _write(out: Path, answers: dict, fingerprints: dict, spent: dict) -> None:
    AnswerCache(out).close()  # creates the tables
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
