"""Runs the sweep over every implementation and every shared attack, and prints each fault with its case.

If it prints nothing, it found no fault. Brendel and Bethge's attack is compiled for each norm first, which takes a
minute each.

    python -m davylamp.tools.sweep.every_row [--quick] [--only foolbox:pgd]
"""

import argparse
import sys
from collections.abc import Iterator

import torch

from davylamp.adapters import IMPLEMENTATIONS
from davylamp.tools.sweep.cases import FORMS, SweepCase, cases_of, shared_attacks
from davylamp.tools.sweep.running import faults_of


def every_case(only: list[str]) -> Iterator[SweepCase]:
    """Yield the cases of the shared attacks in all forms, and of every implementation. `only` restricts the names."""
    names = [*shared_attacks(), *(row.name for row in IMPLEMENTATIONS.values() if not row.broken)]
    for name in only or names:
        yield from cases_of(name, (*FORMS, "saturation"))


def main() -> None:
    """Run the cases. Exit with code 1 if a fault was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two rows")
    parser.add_argument("--only", action="append", default=[], help="an attack or a row (repeatable)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    cases = faulty = 0
    for case in every_case(options.only or ["foolbox:pgd", "torchattacks:jsma"] * options.quick):
        cases, faults = cases + 1, faults_of(case)
        faulty += bool(faults)
        for fault in faults:
            print(f"{case}\n    {fault}", flush=True)
    print(f"{cases} cases, {faulty} with faults")
    sys.exit(faulty > 0)


if __name__ == "__main__":
    main()
