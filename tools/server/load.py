"""Measures page times under load: many browsers poll while tasks run. Reports p50 and p95 for each page.

`python -m davylamp.tools.server.load [--quick] [--database postgresql://...] [--write]`: 50 browsers, 5 tasks, one
minute. Each browser sends a request every two seconds, as a task page does: for the leaderboard, the tasks, a task and
its JSON in turn. The goal is a p95 of at most 300 ms for each page, and no error. `--write` stores the numbers in
`RESULTS.md`.
"""

import argparse
import itertools
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from urllib.request import urlopen

import numpy as np

from .results import database_name, write_part
from .started import started

GOAL = 300.0  # ms, p95 of each page
_PATHS = ("/api/v1/tasks/1", "/", "/api/v1/tasks/1", "/tasks", "/api/v1/tasks/1", "/tasks/1")


def measure(address: str, browsers: int, seconds: float, pause: float) -> tuple[dict[str, list[float]], list[str]]:
    """Measure the seconds of each response by path, and collect the errors.

    Args:
        address: address of the server.
        browsers: number of simultaneous browsers.
        seconds: duration of the test.
        pause: seconds between a response and the browser's next request.
    """
    times: dict[str, list[float]] = defaultdict(list)
    problems: list[str] = []
    stop = time.monotonic() + seconds

    def browse(place: int) -> None:
        time.sleep(pause * place / browsers)
        for path in itertools.islice(itertools.cycle(_PATHS), place % len(_PATHS), None):
            if time.monotonic() > stop:
                return
            start = time.perf_counter()
            try:
                with urlopen(address + path, timeout=30) as answer:
                    answer.read()
                times[path].append(time.perf_counter() - start)
            except OSError as error:
                problems.append(f"{path}: {error}")
            time.sleep(pause)

    threads = [threading.Thread(target=browse, args=(place,)) for place in range(browsers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return times, problems


def lines_of(times: dict[str, list[float]]) -> tuple[list[str], float]:
    """Return a table row for each path, and the largest p95 of any path in ms."""
    everything = [second for each in times.values() for second in each]
    lines = ["| page | n | p50 | p95 | most (ms) |", "| --- | --- | --- | --- | --- |"]
    worst = 0.0
    for path, each in [*sorted(times.items()), ("all", everything)]:
        p50, p95, most = np.percentile(each, [50, 95, 100]) * 1000
        worst = max(worst, p95)
        lines.append(f"| {path} | {len(each)} | {p50:.0f} | {p95:.0f} | {most:.0f} |")
    return lines, worst


def main() -> None:
    """Run the test, print the numbers, and write them if requested."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="run 5 browsers and one task for 5 seconds")
    parser.add_argument("--database", default="", help="postgresql://... (default: SQLite)")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="write the results into RESULTS.md")
    options = parser.parse_args()
    browsers, tasks, seconds = (5, 1, 5.0) if options.quick else (50, 5, 60.0)
    with (
        tempfile.TemporaryDirectory() as folder,
        started(Path(folder) / "server", options.workers, options.database) as server,
    ):
        server.fill(tasks, 4 if options.quick else 20)
        server.start()
        times, problems = measure(server.address, browsers, seconds, 2.0)
        states = [task.state for task in server.states().values()]
    if not times:
        raise SystemExit(f"no response at all: {problems[:3]}")
    lines, worst = lines_of(times)
    about = f"{browsers} browsers, {tasks} tasks, {options.workers} workers, {seconds:.0f} s: {len(problems)} errors; "
    lines = [f"{about}tasks then: {', '.join(states)}", "", *lines, *(f"- {problem}" for problem in problems[:5])]
    is_met = worst <= GOAL and not problems
    print("\n".join(lines))
    print(f"goal {'met' if is_met else 'missed'}: p95 at most {GOAL:.0f} ms, got {worst:.0f} ms")
    if options.write:
        command = "python -m davylamp.tools.server.load --write" + (" --quick" if options.quick else "")
        command += " --database postgresql://..." if options.database else ""
        write_part(f"Load, {database_name(options.database)}", command, lines, is_met=is_met)


if __name__ == "__main__":
    main()
