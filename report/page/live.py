"""The report of a folder while an evaluation fills it: read-only, over HTTP, by Waitress."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...adapters.words import threat_text
from ...engine.cell import Cell
from ...engine.store.plans import find_missing
from ...engine.store.store import Damaged, ResultsStore, expand_path
from ...errors import Unavailable
from ..parts.blocks import RunBar, Section, Text, badge, make_table
from .build import list_sections, render, render_blocks
from .pace import Spent, estimate_left, judge_pulse, read_spent, say_left
from .serving import Names, listen, require_server, run_server

_SHARE = 5  # a page is made again at most every so many times what making it took
_HEADERS = (
    ("Content-Type", "text/html; charset=utf-8"),
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    (
        "Content-Security-Policy",
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
)
Start = Callable[[str, list[tuple[str, str]]], Any]


class LiveReport:
    """A WSGI application: `/` is the report with the progress above it, `/progress` that progress alone.

    Args:
        folder: a results folder; it is only read.
        host: the address that it is served at.
        names: further names under which a request may ask for it.

    Raises:
        Unavailable: if there is no such folder.
    """

    def __init__(self, folder: str | Path, *, host: str = "127.0.0.1", names: Iterable[str] = ()):
        self.folder, self._names = expand_path(folder), Names(host, names)
        self._store = ResultsStore(folder, create=False)
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, int], _State] = {}
        self._made: tuple[str, list[Section]] = ("", [])
        self._spent, self._when = 0.0, -1e9

    def __call__(self, environ: Mapping[str, Any], start_response: Start) -> list[bytes]:
        """Answer a request."""
        status, body = self._answer(environ)
        start_response(status, [*_HEADERS, ("Content-Length", str(len(body)))])
        return [b"" if environ["REQUEST_METHOD"] == "HEAD" else body]

    def _answer(self, environ: Mapping[str, Any]) -> tuple[str, bytes]:
        if refused := self._names.status(environ.get("HTTP_HOST")):
            return refused, b"expected a request to this machine by its own name; others: serve --allow-host NAME"
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return "405 Method Not Allowed", b"this page is read-only"
        with self._lock:
            if environ["PATH_INFO"] == "/":
                return "200 OK", self._page().encode()
            if environ["PATH_INFO"] == "/progress":
                version, blocks = self._progress()
                version = version if self._may_make() else self._made[0]  # news only when they can be had
                return "200 OK", f"<!--{version}-->{render_blocks(blocks)}".encode()
        return "404 Not Found", b"expected / or /progress"

    def _page(self) -> str:
        version, blocks = self._progress()
        if version != self._made[0] and self._may_make():
            start = time.monotonic()
            self._made = (version, self._sections())
            self._when, self._spent = time.monotonic(), time.monotonic() - start
        progress = Section("progress", "Progress", "This page follows the run; it changes nothing.", tuple(blocks))
        live = {"path": "progress", "version": self._made[0]}
        return render("Robustness report", [progress, *self._made[1]], source=str(self.folder), live=live)

    def _may_make(self) -> bool:
        return time.monotonic() - self._when > _SHARE * self._spent

    def _sections(self) -> list[Section]:
        try:
            return list_sections(self.folder)
        except Unavailable as error:
            return [Section("verdict", "Verdict", "", (Text(f"Nothing to show yet: {error}.", "note"),))]

    def _progress(self) -> tuple[str, list[Any]]:
        """Which cells are finished, as a text that changes with them; and what to show of all cells."""
        states = [self._state("cells", key) for key in self._store.keys("cells")]
        keys = self._store.keys("parts")
        parts = Counter(key.rpartition("-")[0] for key in keys)
        pieces = [self._state("parts", key) for key in keys]
        running = {state.cell.key: state for state in pieces if state.cell is not None}
        counts = Counter(state.status for state in states)
        missing = find_missing(self._store)
        shown = counts + Counter(waiting=len(set(missing) - set(parts)))
        summary = ", ".join(f"{shown[name]} {name}" for name in ("done", "failed", "damaged", "waiting") if shown[name])
        claimed = self._store.claimed()
        started = {state.cell.key: state.cell for state in running.values() if state.cell is not None}
        blocks: list[Any] = [self._pulse([*states, *pieces], missing | started, claimed)]
        blocks.append(Text(f"{summary or 'No cell is finished'}.", "lead"))
        held = {name.rpartition("-")[0] for name in claimed}
        rows = [
            (
                badge("unknown", "running") if key in held else badge("warn", "interrupted"),
                *_name(state.cell),
                f"{parts[key]} of {state.cell.shards}",
                "",
            )
            for key, state in running.items()
            if state.cell is not None
        ]
        rows += [
            (badge("fail", state.status), *_name(state.cell), "", state.reason)
            for state in states
            if state.status == "failed" and state.cell is not None
        ]
        if rows:
            columns = ("state", "model", "implementation", "threat model", "pieces", "reason")
            blocks.append(make_table("progress-cells", "Under way and failed", columns, rows))
        transfers = len(self._store.keys("transfer"))
        return f"{len(states)} {transfers} {sorted(counts.items())}", blocks

    def _pulse(self, states: Sequence["_State"], missing: Mapping[str, Cell], claimed: Collection[str]) -> RunBar:
        """Alive or not, the share that is done, the time that is left."""
        known = [(state.cell, state.spent) for state in states if state.cell is not None and state.spent.images]
        done: Counter[str] = Counter()
        for cell, spent in known:
            done[cell.key] += spent.images
        unfinished = [(cell, max(0, cell.subject.images - done[key])) for key, cell in missing.items()]
        left = estimate_left(known, unfinished, len(claimed))
        newest = max((state.written for state in states if state.written), default=None)
        said = judge_pulse(len(claimed), len(missing), newest)
        images, rest = sum(done.values()), sum(images for _, images in unfinished)
        share = images / (images + rest) if images + rest else 0.0
        if not missing:
            return RunBar(1.0 if states else 0.0, said, "" if not states else "All images have a result")
        text = f"{share:.0%} of the images of all cells have a result"
        return RunBar(share, said, f"{text}. {say_left(left)}" if claimed or said.state != "fail" else text)

    def _state(self, kind: Any, key: str) -> "_State":
        """State, cell and costs of a file, which is read once as long as it stays the same."""
        path = self._store.path(kind, key)
        try:
            written = path.stat().st_mtime_ns
            stamp = (str(path), written)
            if stamp not in self._seen:
                record = self._store.read(kind, key)
                cell, spent = Cell.from_record(record.meta), read_spent(record)
                self._seen[stamp] = _State(
                    str(record.meta["status"]), cell, str(record.meta["reason"]), spent, written / 1e9
                )
            return self._seen[stamp]
        except Damaged as damage:
            return _State("damaged", None, str(damage))
        except FileNotFoundError:  # the run has just put the parts together
            return _State("gone", None)


class _State(NamedTuple):
    """A file of a cell or of a part of one: its status, what it is about, what it cost and when it was written."""

    status: str
    cell: Cell | None
    reason: str = ""
    spent: Spent = Spent()
    written: float = 0.0


def _name(cell: Cell) -> tuple[str, str, str]:
    return cell.subject.name, cell.title, threat_text(cell.threat_model)


def serve(
    folder: str | Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    names: Iterable[str] = (),
    started: Callable[[str], object],
) -> None:
    """Serve the report of a folder until it is interrupted.

    Args:
        folder: a results folder.
        host: address to listen at; "0.0.0.0" is every address of this machine.
        port: 0: any that is free.
        names: further names under which it may be asked for.
        started: called with the address once it answers.

    Raises:
        MissingLibrary: without Waitress.
        InvalidInput: if the address is empty.
        Unavailable: if there is no such folder, or the port is taken.
    """
    require_server()
    host = host.strip().removeprefix("[").removesuffix("]")
    application = LiveReport(folder, host=host, names=names)
    with listen(host, port) as listener:
        run_server(application, listener, host, started)
