"""Cache of servers' outputs in a file, by model and image. Each image is billed only once."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
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
_ADD = " ON CONFLICT (model) DO UPDATE SET paid = paid + excluded.paid, cost = cost + excluded.cost"
_MERGE = f"""
BEGIN;
INSERT OR IGNORE INTO differing SELECT model, image FROM more.answers AS new JOIN main.answers AS old
USING (model, image) WHERE new.answer != old.answer;
INSERT OR IGNORE INTO main.answers SELECT * FROM more.answers;
INSERT OR IGNORE INTO main.fingerprints SELECT * FROM more.fingerprints;
INSERT INTO main.spent SELECT * FROM more.spent WHERE true{_ADD};
COMMIT;
"""


class AnswerCache:
    """File with servers' outputs. Each output is stored as soon as it arrives, so a killed process loses none.

    Several processes on one machine may share the file. Several machines must not, because SQLite is not safe on a
    shared file system.

    Args:
        path: path of the file. If the file or its folder is missing, it is created. Each stored output needs 4 bytes
            per class and about 70 more.

    Raises:
        Unavailable: if the file cannot be opened, or is not an answer cache.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._database: sqlite3.Connection | None = None
        with self._open():
            pass

    def look_up(self, model: str, images: Sequence[bytes]) -> dict[bytes, np.ndarray]:
        """Return the stored outputs for some images.

        Args:
            model: key of the model.
            images: hashes of the images.

        Returns:
            The outputs by hash, without images that are not stored. An output is float32 of shape (K,) for scores, or
            int64 of shape () for a label.
        """
        answers: dict[bytes, np.ndarray] = {}
        with self._open() as database:
            for start in range(0, len(images), _AT_ONCE):
                part = images[start : start + _AT_ONCE]
                places = ",".join("?" * len(part))
                query = f"SELECT image, answer FROM answers WHERE model = ? AND image IN ({places})"
                answers |= {image: _unpack(answer) for image, answer in database.execute(query, (model, *part))}
        return answers

    def store(self, model: str, answers: Mapping[bytes, np.ndarray]) -> None:
        """Store outputs by the hash of their image. When the method returns, the file contains the outputs."""
        rows = [(model, image, _pack(answer)) for image, answer in answers.items()]
        with self._open() as database, database:
            database.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?, ?)", rows)

    def fingerprints(self, model: str) -> dict[str, np.ndarray]:
        """Return the stored fingerprints of a model, by the digest of each.

        A fingerprint is the model's outputs for the P probe images, float64, shape (P, K).
        """
        with self._open() as database:
            rows = database.execute("SELECT digest, answers, classes FROM fingerprints WHERE model = ?", (model,))
            return {digest: np.frombuffer(blob, np.float64).reshape(-1, classes) for digest, blob, classes in rows}

    def keep_fingerprint(self, model: str, digest: str, answers: np.ndarray) -> None:
        """Store a fingerprint of a model."""
        row = (model, digest, answers.astype(np.float64).tobytes(), answers.shape[1])
        with self._open() as database, database:
            database.execute("INSERT OR REPLACE INTO fingerprints VALUES (?, ?, ?, ?)", row)

    def add_usage(self, model: str, paid: int, cost: float) -> None:
        """Add billed images and their price to the totals of a model.

        Images whose outputs are not stored count, too.
        """
        with self._open() as database, database:
            database.execute(f"INSERT INTO spent VALUES (?, ?, ?){_ADD}", (model, paid, cost))

    def usage(self) -> dict[str, tuple[int, float]]:
        """Return the number of billed images and their price since the file was created, by model.

        Killed runs are included.
        """
        with self._open() as database:
            return {model: (paid, cost) for model, paid, cost in database.execute("SELECT * FROM spent ORDER BY model")}

    def close(self) -> None:
        """Close the file."""
        if self._database is not None:
            self._database.close()
            self._database = None

    def __del__(self) -> None:
        """Close the file, because Python 3.13 warns about a database that stays open."""
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
                "and billed again), or add `no_cache`."
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
    """Describe the numbers of images that each server has billed for a results folder.

    Returns:
        One sentence for each server. The numbers include runs that were killed. Empty without an answer cache.
    """
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
    """Merge several answer caches into a new file. Outputs that differ between the files are omitted.

    Args:
        files: answer caches, which are opened read-only.
        out: path of the new file. An existing file is replaced.

    Returns:
        For each server, a sentence with the number of billed images. If outputs differ, also a sentence with their
        number.

    Raises:
        InvalidInput: if a file is not an answer cache.
        Unavailable: if the new file cannot be written.
    """
    for name in (out.name, f"{out.name}-wal", f"{out.name}-shm"):
        out.with_name(name).unlink(missing_ok=True)
    AnswerCache(out).close()  # creates the tables
    with closing(sqlite3.connect(out.absolute().as_uri(), uri=True, isolation_level=None)) as database:
        database.execute("CREATE TEMP TABLE differing (model TEXT, image BLOB, PRIMARY KEY (model, image))")
        for path in files:
            try:
                database.execute("ATTACH ? AS more", (f"{path.absolute().as_uri()}?mode=ro",))
                database.executescript(_MERGE)
                database.execute("DETACH more")
            except sqlite3.Error as error:
                raise InvalidInput(f"{path} is not an answer cache ({error})") from error
        dropped = "DELETE FROM answers WHERE (model, image) IN (SELECT model, image FROM differing)"
        differing = database.execute(dropped).rowcount
        spent = database.execute("SELECT model, paid FROM spent ORDER BY model").fetchall()
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    lines = [f"{model}: {count} images billed in {len(files)} folders" for model, count in spent]
    if differing:
        lines.append(f"cached answers that differ between the folders, to be requested again: {differing}")
    return lines if len(files) > 1 else []
