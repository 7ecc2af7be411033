"""Serves the report of a results folder over HTTP, read-only. A reload shows newer results."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ...adapters.display_text import format_threat_model
from ...adapters.http_server import HttpAnswer, HttpServer
from ...engine.store.notes import repair_hint
from ...engine.store.plan_records import FolderStatus, survey_folder
from ...engine.store.store import ResultsStore, expand_path
from ...errors import Unavailable
from ..parts.blocks import Section, Text, badge, make_table
from .build import list_sections, render

_SHARE = 5  # minimum time between rebuilds, as a multiple of the build time
_KINDS = {"running": "unknown", "failed": "fail", "waiting": "warn"}  # styles of unfinished runs
HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}


class ServedReport:
    """Answers HTTP requests for the report of a results folder. The report is at `/`, with unfinished runs at the top.

    Args:
        folder: results folder, which is opened read-only.

    Raises:
        Unavailable: If there is no such folder.
    """

    def __init__(self, folder: str | Path):
        self.folder = expand_path(folder)
        ResultsStore(folder, create=False)
        self._lock = threading.Lock()
        self._made: tuple[object, list[Section]] = (None, [])
        self._next = 0.0

    def answer(self, method: str, path: str, *_: object) -> HttpAnswer:
        """Return the response to an HTTP request with a method and path."""
        if method not in ("GET", "HEAD"):
            return HttpAnswer(405, HEADERS, b"this page is read-only")
        if path != "/":
            return HttpAnswer(404, HEADERS, b"expected /")
        with self._lock:
            sections = [write_progress(survey_folder(self.folder)), *self._sections()]
            return HttpAnswer(200, HEADERS, render("Robustness report", sections, source=str(self.folder)).encode())

    def _sections(self) -> list[Section]:
        """Return the sections of the report, which are rebuilt if the folder has changed.

        If a large folder is reloaded often, the sections are not rebuilt every time and may be slightly out of date.
        """
        version = _version(self.folder)
        if version != self._made[0] and time.monotonic() >= self._next:
            start = time.monotonic()
            try:
                sections = list_sections(self.folder)
            except Unavailable as error:
                sections = [Section("verdict", "Verdict", "", (Text(f"Nothing to show yet: {error}.", "note"),))]
            self._made = (version, sections)
            self._next = time.monotonic() + _SHARE * (time.monotonic() - start)
        return self._made[1]


def write_progress(survey: FolderStatus) -> Section:
    """Build the section on progress: number of runs in each state, unfinished runs, and damaged files."""
    states = survey.states
    counts = Counter(state.status for state in states)
    summary = ", ".join(f"{counts[name]} {name}" for name in ("done", "failed", "running", "waiting") if counts[name])
    blocks: list[Any] = [Text(f"{summary or 'No run is finished'}.", "lead")]
    if counts["waiting"] and not counts["running"]:
        blocks.append(
            Text(
                "No process on this machine is working on it. Run the same `davylamp evaluate` again to resume.", "note"
            )
        )
    rows = [
        (
            badge(_KINDS[state.status], state.status),
            state.cell.subject.name,
            state.cell.title,
            format_threat_model(state.cell.threat_model),
            state.reason,
        )
        for status in _KINDS
        for state in states
        if state.status == status
    ]
    if rows:
        columns = ("state", "model", "implementation", "threat model", "reason")
        blocks.append(make_table("progress-cells", "Not finished", columns, rows))
    blocks += [Text(f"{line}{repair_hint(line)}", "note") for line in survey.damaged]
    return Section("progress", "Progress", "Reload this page for newer results.", tuple(blocks))


def _version(folder: Path) -> object:
    """Return a value that changes whenever a file of the folder changes."""
    return sorted((str(path), path.stat().st_mtime_ns) for path in folder.glob("*/*.parquet") if path.exists())


def serve(
    folder: str | Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    names: Iterable[str] = (),
    started: Callable[[str], object],
) -> None:
    """Serve the report of a results folder until the process is interrupted.

    Args:
        folder: results folder.
        host: address on which the server listens. "0.0.0.0" means all interfaces.
        port: TCP port. 0 selects any free port.
        names: further host names that requests may use.
        started: function that is called with the URL when the server is ready.

    Raises:
        InvalidInput: If the address is empty.
        Unavailable: If there is no such folder, or the port is in use.
    """
    server = HttpServer(host, port, ServedReport(folder).answer, names=names)
    started(f"{server.url}/")
    server.run()
