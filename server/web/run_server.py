"""Serves the web application with Uvicorn, and keeps worker processes running."""

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...adapters.http_limits import configure
from ...adapters.http_names import listen
from ..accounts.users import has_admin
from ..components.blobs import clean_uploads
from ..folder import ServerFolder
from ..tasks.seeds import seed_components, seed_task
from .application import make_application
from .rank_history import keep_noting

_AGAIN_SECONDS = 2.0


class WorkerProcesses:
    """Context manager that runs worker processes. A worker that dies is started again.

    The workers end when the block ends, or when this process dies.

    Args:
        command: command that starts one worker.
        count: number of workers.
        more: additional environment variables of the workers, such as a database address with a password.
    """

    def __init__(self, command: Sequence[str], count: int, more: Mapping[str, str] | None = None):
        self.command, self.count, self.environment = command, count, {**os.environ, **(more or {})}
        self._processes: list[subprocess.Popen[bytes]] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._look_after, daemon=True)

    def __enter__(self) -> "WorkerProcesses":
        self._processes = [self._start() for _ in range(self.count)]
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        for process in self._processes:
            if process.stdin is not None:
                process.stdin.close()  # signals the end
        for process in self._processes:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(self.command, stdin=subprocess.PIPE, env=self.environment, start_new_session=True)

    def _look_after(self) -> None:
        while not self._stopping.wait(_AGAIN_SECONDS):
            for place, process in enumerate(self._processes):
                if process.poll() is not None:
                    if process.stdin is not None:
                        process.stdin.close()
                    self._processes[place] = self._start()


def end_with_parent(stopped: threading.Event) -> None:
    """Start a thread that sets an event when the parent process dies or wants this process to stop.

    Both close the pipe at standard input.
    """

    def wait() -> None:
        while sys.stdin.buffer.read(1):
            pass
        stopped.set()

    threading.Thread(target=wait, daemon=True).start()


def serve_tasks(
    folder: ServerFolder,
    *,
    host: str,
    port: int,
    names: Sequence[str],
    workers: WorkerProcesses,
    started: Callable[[str, bool], object],
    proxy: bool = False,
) -> None:
    """Serve the web application until the process is interrupted.

    Args:
        folder: folder of the server. Missing initial components are added. If the server has no tasks yet, an example
            task is added.
        host: address at which the server listens.
        port: TCP port. 0 for any free port.
        names: additional host names that requests may use.
        workers: worker processes, which run as long as the server.
        started: function that is called as soon as the server listens, with the server's URL and whether the server has
            an admin.
        proxy: whether the server is behind a proxy (see `configure`).

    Raises:
        DavylampError: If the server cannot listen at the address, or if its folder is not safe.
    """
    import uvicorn

    folder.check_hidden()
    with folder.database.writing() as session:
        seed_components(session)
        seed_task(session, folder)
        admin = has_admin(session)
    clean_uploads(folder.uploads)
    tempfile.tempdir = str(folder.uploads)  # for uploaded forms, because /tmp may be small or in memory
    application: Any = make_application(folder, host=host, names=names)
    stopped = threading.Event()
    keep_noting(folder, application.application.state.boards, stopped)
    with listen(host, port) as listener:
        config = configure(application, proxy=proxy)
        with workers:
            shown = f"[{host}]" if ":" in host else host
            started(f"http://{shown}:{listener.getsockname()[1]}/", admin)
            try:
                uvicorn.Server(config).run(sockets=[listener])
            finally:
                stopped.set()
