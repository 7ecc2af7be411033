"""Runs every command with hostile inputs for a given time: options, TOML, arrays, lists of images, results folders.

The test suite tries a few dozen fixed cases of each. This tool tries new ones, and prints each kind of fault once, with
the command that shows it. If it prints nothing, it found no fault.

    python -m davylamp.tools.fuzz.explore [--seconds 60] [--seed N] [--only options|configs|arrays|lists|folders]
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

from davylamp.tools.fuzz.fixture import build_world, call, copy_of, faults
from davylamp.tools.fuzz.folders import folders
from davylamp.tools.fuzz.inputs import Case, arrays, configs, lists, options

STRATEGIES = {"options": options, "configs": configs, "arrays": arrays, "lists": lists, "folders": folders}
ROUND = 40  # tries of one strategy before the next has its turn


def attempt(world: Path, case: Case) -> list[str]:
    """Run a case in a copy of the test folder, and return the faults in its output."""
    with copy_of(world) as copy:
        case.prepare(copy)
        return faults(case.arguments, call(case.arguments))


def explore(world: Path, name: str, number: int, end: float, report: Callable[[Case, list[str]], None]) -> int:
    """Run one round of a strategy from a seed, and return the number of tries."""
    tries = 0

    @seed(number)
    @settings(
        max_examples=ROUND,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(STRATEGIES[name]())
    def run(case: Case) -> None:
        nonlocal tries
        if time.monotonic() < end:
            tries += 1
            report(case, attempt(world, case))

    run()
    return tries


def main() -> None:
    """Run all strategies until the time is over. Exit with code 1 if a fault was found."""
    parser = argparse.ArgumentParser(description="Hostile inputs to every command.")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9))
    parser.add_argument("--only", choices=sorted(STRATEGIES))
    parser.add_argument("--keep", type=Path, help="copy the folder of each fault here")
    given_ = parser.parse_args()
    print(f"seed {given_.seed}", flush=True)
    seen: dict[str, int] = {}
    tries, number, end = dict.fromkeys(STRATEGIES, 0), given_.seed, time.monotonic() + given_.seconds

    def report(case: Case, wrong: list[str]) -> None:
        for line in wrong:
            seen[line] = seen.get(line, 0) + 1
            if seen[line] == 1:
                print(f"- {line}\n    davylamp {' '.join(map(repr, case.arguments))}", flush=True)
                if given_.keep is not None:
                    place = given_.keep / str(len(seen))
                    shutil.copytree(world, place, dirs_exist_ok=True)
                    case.prepare(place)

    with tempfile.TemporaryDirectory() as folder:
        world = build_world(Path(folder, "world"))
        while time.monotonic() < end:
            for name in [given_.only] if given_.only else STRATEGIES:
                tries[name] += explore(world, name, number, end, report)
            number += 1
    print(f"{sum(tries.values())} tries ({tries}), {len(seen)} kinds of fault")
    sys.exit(bool(seen))


if __name__ == "__main__":
    main()
