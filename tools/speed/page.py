"""Runs every speed benchmark and writes one page: `tools/speed/RESULTS.md`.

Each script runs in a separate process and returns its figures. A script that fails is a line with the reason. Ratios to
other programs are medians over paired rounds of the same run. `make bench` installs those programs that are packages.
Programs that are not installed are listed as omitted. `--update` runs some scripts and replaces their sections. Each
section has the date and the state of davylamp.

Run: python -m davylamp.tools.speed.page [--quick] [--only scoring report] [--update report] [--out FILE]
"""

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

import torch

from davylamp import __version__
from davylamp.tools.speed.figures import SpeedFigure, read_figures

FOLDER = Path(__file__).parent
GPU_PAGE = FOLDER / "GPU.md"  # `gpu` writes it where there is one


class BenchmarkSection(NamedTuple):
    """A section of the page: title, script that measures it, its arguments, and why goals are missed if they are."""

    title: str
    script: str
    arguments: tuple[str, ...] = ()
    reason: str = ""

    @property
    def command(self) -> str:
        """The command that measures the section."""
        return " ".join(["python -m", f"{__package__}.{self.script}", *self.arguments])


SECTIONS = {
    "start": BenchmarkSection("Starting", "start"),
    "adapters": BenchmarkSection("What davylamp costs on top of a library", "adapters"),
    "published": BenchmarkSection("Attacks on models as they are published", "published"),
    "metrics": BenchmarkSection("The metrics", "metrics", ("--threads", "1", "--images", "16")),
    "models": BenchmarkSection("Models as they are loaded", "models"),
    "search": BenchmarkSection("Best effort", "search"),
    "minimum_norm": BenchmarkSection("Best effort at equal passes", "minimum_norm"),
    "worst_case": BenchmarkSection("Worst cases", "worst_case"),
    "scoring": BenchmarkSection("Rankings", "scoring"),
    "overhead": BenchmarkSection(
        "What an evaluation costs on top of its attacks",
        "overhead",
        reason="Reason: loading, planning and the probes cost the same for any number of images. Clean predictions, "
        "three forward passes to judge each example, and the metrics cost the same for any number of steps.",
    ),
    "engine": BenchmarkSection("Evaluations", "engine"),
    "report": BenchmarkSection("Reports", "report"),
    "robustbench": BenchmarkSection("A folder of RobustBench's size", "folders", ("--sizes", "robustbench")),
    "canary": BenchmarkSection(
        "A folder of CANARY's size",
        "folders",
        ("--sizes", "canary"),
        "Reason: the report's time has no large part. Processor time in a profile of 2026-11-28: curves over radii "
        "18 %, imports 13 %, tables 12 %, drawing charts 11 %, reading records 9 %, paired tests 7 %, HTML 6 %.",
    ),
}
SCALE = "scale"
PACKAGES = (
    *("torch", "torchvision", "numpy", "adversarial-robustness-toolbox", "foolbox", "torchattacks", "piq", "pyro-ppl"),
    *("canary-sefi", "py-irt"),
)
LAST_LINES = 3  # of what a script that failed printed


def run_script(name: str, arguments: Sequence[str], *, quick: bool) -> tuple[list[SpeedFigure], str, float]:
    """Run one script. Return its figures, its error ("" if none), and the seconds that it took."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "figures.json")
        command = [sys.executable, "-m", f"{__package__}.{name}", "--json", str(path), *arguments]
        done = subprocess.run([*command, *["--quick"] * quick], check=False, capture_output=True, text=True)
        print(done.stdout, flush=True)
        if done.returncode:
            return [], " / ".join(done.stderr.strip().splitlines()[-LAST_LINES:]), time.perf_counter() - start
        figures = read_figures(json.loads(path.read_text(encoding="utf-8")))
    return figures, "", time.perf_counter() - start


def scale_page(*, quick: bool) -> str:
    """Return the output of `scale`, or the reason why there is none."""
    command = [sys.executable, "-m", f"{__package__}.{SCALE}", "--markdown", *["--quick"] * quick]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        return "did not run: " + " / ".join(done.stderr.strip().splitlines()[-LAST_LINES:])
    return done.stdout.strip()


def machine() -> str:
    """Describe this machine: processor, cores, memory, GPU, system."""
    names = []
    if sys.platform == "linux":
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30 if hasattr(os, "sysconf") else math.nan
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    processor = names[0] if names else platform.processor()
    system = f"{platform.system()}, Python {platform.python_version()}"
    return f"{processor}, {os.cpu_count()} cores, {memory:.0f} GB, {gpu}; {system}"


def versions() -> str:
    """Return the versions of davylamp's and the other programs' packages."""
    lines = [f"davylamp {__version__}"]
    for package in PACKAGES:
        try:
            lines.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            lines.append(f"{package} not installed")
    return ", ".join(lines)


def figure_table(figures: Iterable[SpeedFigure]) -> list[str]:
    """Return the lines of a Markdown table. It has a column for the other program only if there is one."""
    figures = list(figures)
    peers = any(figure.peer for figure in figures)
    head = ["figure", *["against"] * peers, "reached", "middle half", "goal", "", "note"]
    rows = [
        [
            figure.name,
            *[figure.peer] * peers,
            "not measured" if math.isnan(figure.value) else f"{figure.value:.4g} {figure.unit}".strip(),
            "" if math.isnan(figure.low) else f"{figure.low:.4g} - {figure.high:.4g}",
            figure.goal,
            figure.verdict,
            figure.note,
        ]
        for figure in figures
    ]
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]


def state() -> str:
    """Return today's date, and davylamp's version with the commit."""
    date = datetime.now(timezone.utc).date().isoformat()
    command = ["git", "-C", str(FOLDER), "describe", "--always", "--dirty", "--exclude", "*"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return f"{date}, davylamp {__version__}{f' at {done.stdout.strip()}' if done.returncode == 0 else ''}"


def write_section(
    section: BenchmarkSection, figures: Sequence[SpeedFigure], error: str, seconds: float, of: str
) -> str:
    """Return a section of the page. `of` is the `state` that was measured."""
    found = [f"**did not run: {error}**"] if error else figure_table(figures)
    found += ["", section.reason] if section.reason and any(each.verdict == "missed" for each in figures) else []
    about = f"`{section.command}`, {seconds:.0f} s; {of}"
    return "\n".join([f"## {section.title}", "", about, "", *found])


def write_page(sections: Iterable[str], seconds: float, of: str, *, quick: bool) -> str:
    """Return the page.

    Args:
        sections: the sections as texts.
        seconds: time that they took.
        of: the `state` that was measured.
        quick: whether they were run with `--quick`.
    """
    lines = [
        "# Measured",
        "",
        "Written by `make bench`; do not edit. Every ratio against a peer is the median over paired rounds of one run,",
        "the two sides in turns, with the range of its middle half. A goal is what the project set itself, met or not.",
        "Sections that were measured again later have a later date.",
        *(["", "**Quick: this shows that everything runs, not how fast.**"] if quick else []),
        "",
        f"- {of}; {seconds / 60:.0f} minutes",
        f"- {machine()}",
        f"- {versions()}",
        *(["- on a GPU: [GPU.md](GPU.md), one point, and what it predicts"] if GPU_PAGE.is_file() else []),
    ]
    return "\n\n".join(["\n".join(lines), *sections]) + "\n"


def update_page(page: str, sections: Iterable[str]) -> str:
    """Return a page in which sections are replaced by those with the same titles.

    Raises:
        ValueError: if the page has no section with a title.
    """
    there = page.rstrip("\n").split("\n\n## ")
    titles = [each.partition("\n")[0] for each in there]
    for section in sections:
        there[titles.index(section.partition("\n")[0].removeprefix("## "))] = section.removeprefix("## ")
    return "\n\n## ".join(there) + "\n"


def main() -> None:
    """Run the benchmarks and write the page. A quick run is only printed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="run minimal versions, and only print the page")
    parser.add_argument(
        "--only", nargs="+", choices=(*SECTIONS, SCALE), help="run only these benchmarks, and print their results"
    )
    parser.add_argument(
        "--update",
        nargs="+",
        choices=(*SECTIONS, SCALE),
        help="run only these benchmarks, and replace their sections of the page",
    )
    parser.add_argument("--out", type=Path, default=FOLDER / "RESULTS.md")
    options = parser.parse_args()
    chosen = options.only or options.update or (*SECTIONS, SCALE)
    sections, failed, start, of = [], False, time.perf_counter(), state()
    for name, section in SECTIONS.items():
        if name in chosen:
            print(f"== {name}", flush=True)
            figures, error, seconds = run_script(section.script, section.arguments, quick=options.quick)
            sections.append(write_section(section, figures, error, seconds, of))
            failed = failed or bool(error)
    if SCALE in chosen:
        about = f"`python -m {__package__}.{SCALE}`; {of}"
        sections.append("\n\n".join(["## Scale, predicted", about, scale_page(quick=options.quick)]))
    if options.update and not options.quick:
        page = update_page(options.out.read_text(encoding="utf-8"), sections)
    else:
        page = write_page(sections, time.perf_counter() - start, of, quick=options.quick)
    print(page)
    if not (options.quick or options.only):
        options.out.write_text(page, encoding="utf-8")
    if failed:
        sys.exit("a benchmark did not run: see above")


if __name__ == "__main__":
    main()
