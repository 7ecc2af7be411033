"""Kills a server, its workers or its database connections at random. No task may be lost, and no run repeated.

`python -m davylamp.tools.server.kill_tests [--quick] [--database postgresql://...] [--write]`: 20 kills while five
tasks run. A killed server is restarted, as a service manager does. A killed worker is restarted by its server. A
repeated run would write its record again, which the file's time would show. `--write` stores the numbers in
`RESULTS.md`.
"""

import argparse
import random
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import func, select, text

from davylamp.server.database.records import CellRow

from .results import database_name, write_part
from .started import Started, children, end, started

_LONGEST_WAIT = 20.0
_TARGETS = ("server", "worker", "connection")


def kill(server: Started, target: str) -> tuple[str, int]:
    """Kill a target. Return what it was, and the number of processes or connections."""
    assert server.process is not None
    if target == "connection" and server.database:
        with server.folder.database.writing() as session:
            asked = text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            return "connections", len(session.execute(asked).all())
    workers = children(server.process.pid)
    if target == "worker" and workers:
        end(random.choice(workers))
        return "worker", 1
    end(server.process.pid)
    server.process.wait()
    server.start()
    return "server", 1


def _records(server: Started) -> list[Path]:
    """Return the complete records of runs, without drafts that a kill has left."""
    paths = (server.folder.path / "tasks").glob("*/results/cells/*.parquet")
    return [path for path in paths if not path.name.startswith(".")]


def watch(server: Started, seen: dict[str, int]) -> list[str]:
    """Return the records that were written again since they were first seen."""
    again = []
    for path in _records(server):
        name = f"{path.parts[-4]}/{path.name.partition('.')[0]}"
        written = path.stat().st_mtime_ns
        if seen.setdefault(name, written) != written:
            again.append(name)
            seen[name] = written
    return again


class Course(NamedTuple):
    """Log of a test, in lines, and the faults that were found."""

    lines: list[str]
    wrong: list[str]


def run(server: Started, kills: int, pause: float, tasks: int, images: int) -> Course:
    """Kill targets at random, wait for the tasks, and count the faults.

    Args:
        server: server that is not started yet.
        kills: number of kills.
        pause: mean seconds between two kills.
        tasks: number of tasks, with six runs each.
        images: number of images in each run.
    """
    server.fill(tasks, images)
    server.start()
    seen: dict[str, int] = {}
    again: list[str] = []
    killed: Counter[str] = Counter()
    working = amid = 0
    for place in range(kills):
        start, wanted = time.monotonic(), len(seen) + random.choice((0, 0, 1, 2))
        until = start + random.uniform(0.25, 2 * pause)
        # On a slow machine no task would get anywhere, and nothing could be run twice: some kills wait for records.
        while time.monotonic() < until or (len(seen) < wanted and time.monotonic() < start + _LONGEST_WAIT):
            again += watch(server, seen)
            time.sleep(0.2)
        states = [task.state for task in server.states().values()]
        working, amid = working + ("running" in states), amid + (0 < len(seen) < 6 * tasks)
        what, count = kill(server, random.choice(_TARGETS))
        killed[what] += 1
        print(f"{place + 1:2}: killed {what} ({count}); {len(seen)} records; {', '.join(states)}", flush=True)
    until = time.monotonic() + 600
    while time.monotonic() < until and any(task.state in ("waiting", "running") for task in server.states().values()):
        again += watch(server, seen)
        time.sleep(0.5)
    line = f"{kills} kills ({_said(killed)}), {working} while a task ran, {amid} with some of the records written"
    return _count(server, again, [line])


def _count(server: Started, again: list[str], lines: list[str]) -> Course:
    last = server.states()
    with server.folder.database.reading() as session:
        counted = session.scalar(select(func.count(CellRow.id))) or 0
    wanted = 6 * len(last)
    wrong = [f"task {number} is {task.state}: {task.message}" for number, task in last.items() if task.state != "done"]
    wrong += [f"task {number} is not signed" for number, task in last.items() if not task.signature]
    wrong += [f"{name} was written twice" for name in again]
    records = len(_records(server))
    if (counted, records) != (wanted, wanted):
        wrong.append(f"{counted} cells in the database, {records} records, wanted {wanted} of each")
    attempts = sum(task.attempts for task in last.values())
    done = sum(task.state == "done" for task in last.values())
    lines += [f"{len(last)} tasks, {done} done after {attempts} leases; {counted} cells, {len(again)} written twice"]
    return Course(lines, wrong)


def _said(killed: "Counter[str]") -> str:
    return ", ".join(f"{what} {count}" for what, count in sorted(killed.items()))


def main() -> None:
    """Run the test, print the numbers, and write them if requested."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="run one task with 2 kills")
    parser.add_argument(
        "--database", default="", help="postgresql://... (default: SQLite, whose connections are not killed)"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="write the results into RESULTS.md")
    options = parser.parse_args()
    random.seed(options.seed)
    kills, tasks, images = (2, 1, 4) if options.quick else (20, 5, 6)
    with tempfile.TemporaryDirectory() as folder, started(Path(folder) / "server", 2, options.database) as server:
        course = run(server, kills, 4.0, tasks, images)
    for line in [*course.lines, *course.wrong, f"{len(course.wrong)} things wrong"]:
        print(line)
    if options.write:
        lines = [f"- {line}" for line in [*course.lines, *course.wrong]]
        command = "python -m davylamp.tools.server.kill_tests --write" + (" --quick" if options.quick else "")
        command += " --database postgresql://..." if options.database else ""
        write_part(f"Kills, {database_name(options.database)}", command, lines, is_met=not course.wrong)
    raise SystemExit(1 if course.wrong else 0)


if __name__ == "__main__":
    main()
