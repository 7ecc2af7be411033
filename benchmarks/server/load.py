"""Pages under load: many browsers that poll while tasks run; the times of a page, p50 and p95.

`python -m davylamp.benchmarks.server.load [--quick]`: 50 browsers, 5 tasks, a minute; each asks every two seconds, as
the page of a task does, for the leaderboard, the tasks, a task and its JSON in turn.
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

from .started import started

_PATHS = ("/api/v1/tasks/1", "/", "/api/v1/tasks/1", "/tasks", "/api/v1/tasks/1", "/tasks/1")


def measure(address: str, browsers: int, seconds: float, pause: float) -> tuple[dict[str, list[float]], list[str]]:
    """Seconds of each answer by path, and what went wrong.

    Args:
        address: of the server.
        browsers: at once.
        seconds: that they go on.
        pause: of each between an answer and its next question.
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


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="5 browsers, one task, 5 seconds")
    parser.add_argument("--database", default="", help="postgresql://...; without it SQLite")
    parser.add_argument("--workers", type=int, default=1)
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
    everything = np.concatenate([np.array(each) for each in times.values()])
    print(f"{browsers} browsers, {tasks} tasks, {seconds:.0f} s: {len(everything)} answers, {len(problems)} errors")
    for path, each in [*times.items(), ("all", everything)]:
        p50, p95, most = np.percentile(each, [50, 95, 100]) * 1000
        print(f"{path:18} n {len(each):5}  p50 {p50:5.0f} ms  p95 {p95:5.0f} ms  most {most:5.0f} ms")
    print(f"tasks then: {', '.join(states)}")
    for problem in problems[:5]:
        print(problem)


if __name__ == "__main__":
    main()
