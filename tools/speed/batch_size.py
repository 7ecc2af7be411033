"""Finds the best batch size of a model on a device: passes per second for growing batches.

A forward and a backward pass to the image, as in gradient attacks, is timed for batches of 1, 2, 4 and so on. The
search ends if two doublings in a row gain less than 5 %, or if memory is exhausted. The recommended size is the
smallest within 5 % of the fastest: `davylamp evaluate --batch-size N` (default 32). `evaluate` does not choose it
automatically. The size is part of a run's identity, because layers round differently in other batches. A resumed run or
another machine of a job array must have the same size.

    python -m davylamp.tools.speed.batch_size [--quick] [--model demo:efficientnet-lite0] [--device cpu]
        [--largest 128] [--json FILE]
"""

from collections.abc import Iterator

import torch

from davylamp.adapters import Classifier
from davylamp.adapters.models.layout import seconds_of_batch
from davylamp.adapters.models.zoo.load import load_model
from davylamp.memory import keep_freed_memory
from davylamp.tools.speed.figures import SpeedFigure, benchmark_parser, finish

GAIN = 1.05  # what a larger batch has to be faster by
PATIENCE = 2  # sizes in a row that are not
SIDE = 224  # pixels of a model that does not say how large its images are


def measure_batches(classifier: Classifier, side: int, largest: int) -> Iterator[tuple[int, float]]:
    """Yield increasing batch sizes with their passes per second, until the speed stops growing or memory is full."""
    size, fastest, slower = 1, 0.0, 0
    while size <= largest and slower < PATIENCE:
        inputs = torch.rand(size, 3, side, side, generator=torch.Generator().manual_seed(0)).to(classifier.device)
        try:
            speed = size / seconds_of_batch(classifier, inputs)
        except (torch.cuda.OutOfMemoryError, MemoryError):
            return
        except RuntimeError as error:
            if "memory" not in str(error).lower():  # torch's allocator on a CPU raises no class of its own
                raise
            return
        yield size, speed
        slower = slower + 1 if speed < GAIN * fastest else 0
        size, fastest = 2 * size, max(fastest, speed)


def choose_size(speeds: dict[int, float]) -> int:
    """Return the smallest size that is nearly as fast as the fastest.

    Args:
        speeds: passes per second, by batch size.
    """
    return min(size for size, speed in speeds.items() if speed * GAIN >= max(speeds.values()))


def main() -> None:
    """Print the speed of each size, and the recommended size."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--model", default="demo:efficientnet-lite0")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--largest", type=int, default=128)
    options = parser.parse_args()
    keep_freed_memory()
    classifier = load_model(options.model, device=options.device)
    speeds = {}
    for size, speed in measure_batches(classifier, classifier.crop or SIDE, 2 if options.quick else options.largest):
        print(f"{size:>6} images: {speed:.1f} passes/s", flush=True)
        speeds[size] = speed
    chosen = choose_size(speeds)
    shown = ", ".join(f"{size}: {speed:.1f}" for size, speed in speeds.items())
    note = f"passes a second by size: {shown}; {options.device}, {torch.get_num_threads()} threads"
    finish([SpeedFigure(f"batch of {options.model}", chosen, "images", note=note)], options.json)


if __name__ == "__main__":
    main()
