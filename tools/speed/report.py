"""Measures the size of a report and the time to build it, for 3 models x 12 attacks x 1000 images.

The records are synthetic, with 1000 classes. Goals: at most 5 MB, built in at most 20 s. The records are written first
(not timed) and read like any folder. They contain logits, activation maps and pictures of the usual size. The time is
wall time of `build_report` in this process, together with its processor time. On a busy machine only the latter is
meaningful.

    python -m davylamp.tools.speed.report [--quick] [--images 1000] [--rounds 3]
"""

import statistics
import tempfile
import time
from pathlib import Path

from davylamp.report.page.build import build_report
from davylamp.tools.speed.figures import SpeedFigure, benchmark_parser, finish
from davylamp.tools.speed.synthetic_results import write_results


def measure(images: int, rounds: int) -> dict[str, float]:
    """Return the size in MB, median wall and processor seconds, and the size of the results folder in MB."""
    walls, busy, text = [], [], ""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "results"
        write_results(path, images=images)
        weight = sum(file.stat().st_size for file in path.rglob("*.parquet")) / 1e6
        for _ in range(rounds):
            wall, processor = time.perf_counter(), time.process_time()
            text = build_report(path)
            walls.append(time.perf_counter() - wall)
            busy.append(time.process_time() - processor)
    return {
        "megabytes": len(text.encode()) / 1e6,
        "seconds": statistics.median(walls),
        "processor_seconds": statistics.median(busy),
        "folder_megabytes": weight,
    }


def main() -> None:
    """Measure and print."""
    parser = benchmark_parser((__doc__ or "").partition("\n")[0])
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    images, rounds = (50, 1) if options.quick else (options.images, options.rounds)
    costs = measure(images, rounds)
    print(f"3 models x 12 attacks x {images} images: {costs['folder_megabytes']:.0f} MB of records")
    busy = f"{costs['processor_seconds']:.1f} s of processor"
    setting = f"3 models x 12 attacks x {images} images"
    finish(
        [
            SpeedFigure("size of a report", costs["megabytes"], "MB", at_most=5, note=setting),
            SpeedFigure("time to build it", costs["seconds"], "s", at_most=20, note=busy),
        ],
        options.json,
    )


if __name__ == "__main__":
    main()
