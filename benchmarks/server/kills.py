"""Kills at random: the server, a worker, or its connections to the database; no task may be lost, no cell run twice.

`python -m davylamp.benchmarks.server.kills [--quick] [--database postgresql://...]`: 20 kills while five tasks run. A
killed server is started again, as a service manager does; a killed worker by its server. A cell that is run twice would
write its record again: the time of a record's file would change.
"""

import argparse
import random
import tempfile
import time
from pathlib import Path

from sqlalchemy import func, select, text

from davylamp.server.database.records import CellRow

from .started import Started, children, end, started

_TARGETS = ("server", "worker", "connection")


def kill(server: Started, target: str) -> str:
    """Kill one thing; what it was."""
    assert server.process is not None
    if target == "connection" and server.database:
        with server.folder.database.writing() as session:
            asked = text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            return f"{len(session.execute(asked).all())} connections"
    workers = children(server.process.pid)
    if target == "worker" and workers:
        end(random.choice(workers))
        return "worker"
    end(server.process.pid)
    server.process.wait()
    server.start()
    return "server"


def watch(server: Started, seen: dict[str, int]) -> list[str]:
    """Records that were written again since they were seen first."""
    again = []
    for path in (server.folder.path / "tasks").glob("*/results/cells/*.parquet"):
        name = f"{path.parts[-4]}/{path.name.partition('.')[0]}"
        written = path.stat().st_mtime_ns
        if seen.setdefault(name, written) != written:
            again.append(name)
            seen[name] = written
    return again


def run(server: Started, kills: int, pause: float, tasks: int, images: int) -> int:
    """Kill, wait for the tasks, and count what is wrong."""
    server.fill(tasks, images)
    server.start()
    seen: dict[str, int] = {}
    again: list[str] = []
    for place in range(kills):
        until = time.monotonic() + random.uniform(0.5, 2 * pause)
        while time.monotonic() < until:
            again += watch(server, seen)
            time.sleep(0.2)
        states = [task.state for task in server.states().values()]
        what = kill(server, random.choice(_TARGETS))
        print(f"{place + 1:2}: killed {what}; {len(seen)} records; {', '.join(states)}", flush=True)
    until = time.monotonic() + 1200
    while time.monotonic() < until and any(task.state in ("waiting", "running") for task in server.states().values()):
        again += watch(server, seen)
        time.sleep(0.5)
    last = server.states()
    with server.folder.database.reading() as session:
        counted = session.scalar(select(func.count(CellRow.id))) or 0
    wanted = 6 * tasks
    wrong = [f"task {number} is {task.state}: {task.message}" for number, task in last.items() if task.state != "done"]
    wrong += [f"{name} was written twice" for name in again]
    wrong += [f"{counted} cells in the database, {len(seen)} records, wanted {wanted}"] if counted != wanted else []
    for line in wrong:
        print(line)
    attempts = sum(task.attempts for task in last.values())
    print(f"{kills} kills, {tasks} tasks, {counted} cells, {attempts} leases: {len(wrong)} things wrong")
    return len(wrong)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="2 kills, one task")
    parser.add_argument(
        "--database", default="", help="postgresql://...; without it SQLite, and no connection is killed"
    )
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    random.seed(options.seed)
    kills, tasks, images = (2, 1, 4) if options.quick else (20, 5, 20)
    with tempfile.TemporaryDirectory() as folder, started(Path(folder) / "server", 2, options.database) as server:
        raise SystemExit(1 if run(server, kills, 8.0, tasks, images) else 0)


if __name__ == "__main__":
    main()
