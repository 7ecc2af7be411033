"""Runs every implementation on a device and on the CPU, and reports where only one works and how much results differ.

Images, model and seed are the same. Results may differ if an attack draws random numbers on the device or sums in a
different order.

    python -m davylamp.tools.sweep.devices [--device cuda] [--only foolbox:pgd] [--jobs 8]
"""

import argparse
import copy
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import NamedTuple

import torch

import davylamp
from davylamp.adapters import IMPLEMENTATIONS, ThreatModel
from davylamp.errors import DavylampError
from davylamp.tools.sweep.cases import RADII, SweepCase
from davylamp.tools.sweep.running import make_images, make_model

IMAGES, CLASSES, CHANNELS = 8, 10, 3


class Ran(NamedTuple):
    """Result of a run on one device. `error` is the reason if it did not run."""

    error: str = ""
    fooled: tuple[bool, ...] = ()
    distances: tuple[float, ...] = ()
    queries: tuple[int, ...] = ()


def run_on(device: str, name: str, norm: str) -> Ran:
    """Run one implementation in one norm, with few steps."""
    case = SweepCase(name, norm, "plain", "python", 10, "small", CLASSES, CHANNELS, IMAGES, "")
    inputs, labels = make_images(CLASSES, CHANNELS, IMAGES)
    model = copy.deepcopy(make_model(CLASSES, CHANNELS)).to(device)
    threat_model = ThreatModel(norm, RADII[norm][0] * 8 if norm in RADII else None)
    try:
        result = davylamp.run_attack(
            name, model, inputs.to(device), labels.to(device), threat_model, seed=0, **case.parameters
        )
    except DavylampError as error:
        return Ran(f"{type(error).__name__}: {error}")
    except Exception as error:
        return Ran(f"CRASH {type(error).__name__}: {error}")
    if result.errors:
        return Ran(f"invalid: {result.errors[0]}")
    distance = getattr(result.distances, norm if norm in RADII else "linf")
    return Ran(
        "",
        tuple(result.success.tolist()),
        tuple(round(each, 4) for each in distance.tolist()),
        tuple((result.forwards + result.backwards).tolist()),
    )


def compare_on(task: tuple[str, str, str]) -> tuple[str, Ran, Ran]:
    """Run one implementation on the CPU and on the device."""
    device, name, norm = task
    torch.set_num_threads(1)
    return f"{name} {norm}", run_on("cpu", name, norm), run_on(device, name, norm)


def main() -> None:
    """Run every implementation. Exit with code 1 if one runs on the CPU only."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", action="append", default=[], help="an implementation (repeatable)")
    parser.add_argument("--jobs", type=int, default=8)
    options = parser.parse_args()
    rows = [row for row in IMPLEMENTATIONS.values() if not row.broken and row.name in (options.only or IMPLEMENTATIONS)]
    rows = [row for row in rows if row.attack != "brendel-bethge"]  # compiled for a minute first
    tasks = [(options.device, row.name, norm) for row in rows for norm in row.classes]
    same = differing = faulty = neither = 0
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        for name, cpu, device in pool.map(compare_on, tasks):
            if cpu.error and device.error:
                neither += 1
                if "CRASH" in cpu.error + device.error:
                    print(f"{name}: neither runs: {device.error[:160]}", flush=True)
            elif cpu.error or device.error:
                faulty += 1
                print(f"{name}: CPU {cpu.error[:160] or 'runs'}; device {device.error[:160] or 'runs'}", flush=True)
            elif cpu == device:
                same += 1
            else:
                differing += 1
                queries = (
                    "" if cpu.queries == device.queries else f", queries {sum(cpu.queries)}, {sum(device.queries)}"
                )
                print(f"{name}: fooled {sum(cpu.fooled)} on the CPU, {sum(device.fooled)}{queries}", flush=True)
    print(f"{len(tasks)} runs: {same} the same, {differing} differ, {faulty} run on one alone, {neither} on neither")
    sys.exit(faulty > 0)


if __name__ == "__main__":
    main()
