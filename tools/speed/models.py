"""Measures the speed of a model that `load_model` has prepared for a CPU, with and without each of three steps.

The steps are: channels last instead of first; batch normalisation folded into the convolutions, both with channels
last; and, with both, keeping freed memory instead of returning it to the system. Passes of 64 images are also compared
with one pass of many images. Forward passes, and forward with backward passes to the image, are timed for the embedded
models and for torchvision's models with random weights. The ways alternate. Those of memory run in separate processes.

Run: python -m davylamp.tools.speed.models [--quick] [--threads 2] [--batch 8] [--large-batch 32] [--json FILE]
"""

import copy
import json
import os
import statistics
import subprocess
import sys
import time

import torch

from davylamp.adapters import Classifier
from davylamp.adapters.models.classifier import PASS_SIZE
from davylamp.adapters.models.fold_batch_norm import fold_batch_norms
from davylamp.adapters.models.zoo.load import load_model
from davylamp.tools.speed.figures import SpeedFigure, benchmark_parser, finish, ratio_of
from davylamp.tools.speed.passes import build

SIDE = 224
TORCHVISION = ("resnet50", "vgg16", "mobilenet_v3_large", "densenet121", "vit_b_16")


def main(arguments: list[str] | None = None) -> None:
    """Print two lines per model."""
    parser = benchmark_parser("Speed of models with their channels last.")
    parser.add_argument("--threads", type=int, help="threads of torch; default: torch's own choice")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--large-batch", type=int, default=32, help="batch size of the memory comparison")
    parser.add_argument("--times", metavar="MODEL", help="only print the seconds of one model, with --large-batch")
    options = parser.parse_args(arguments)
    if options.threads:
        torch.set_num_threads(options.threads)
    if options.times:
        print(json.dumps(time_both(options.times, options.large_batch, 1 if options.quick else 5)))
        return
    batch, rounds, names = (2, 1, ()) if options.quick else (options.batch, 5, TORCHVISION)
    models = {f"efficientnet-lite{n}": load_model(f"demo:efficientnet-lite{n}", fold=False) for n in (0, 2)}
    models |= {name: Classifier(build(name, "cpu")) for name in names}
    figures = []
    for name, model in models.items():
        figures += compare_ways(name, model, batch, rounds)
    passed = ["--threads", str(torch.get_num_threads())] + (["--quick"] if options.quick else [])
    for number in (0,) if options.quick else (0, 2):
        large = 2 if options.quick else options.large_batch
        figures += compare_memory(f"efficientnet-lite{number}", large, 1 if options.quick else 2, passed)
    many, rounds = (PASS_SIZE + 1, 1) if options.quick else (8 * PASS_SIZE, 3)
    figures.append(compare_passes("efficientnet-lite0", many, rounds))
    finish(figures, options.json)


def compare_ways(name: str, model: Classifier, batch: int, rounds: int) -> list[SpeedFigure]:
    """Return the speed-up of a model by each step, for forward passes and with the gradient of the images."""
    ways = {"plain": copy.deepcopy(model).to(memory_format=torch.contiguous_format)}
    ways["last"] = copy.deepcopy(model).to(memory_format=torch.channels_last)
    ways["folded"] = copy.deepcopy(ways["last"])
    folded = fold_batch_norms(ways["folded"], SIDE)
    inputs = torch.rand(batch, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    note = f"batch of {batch}, {torch.get_num_threads()} threads"
    figures = []
    for kind, once in (("forward", _forward), ("forward and backward", _both)):
        times: dict[str, list[float]] = {way: [] for way in ways}
        for turn in range(rounds + 1):
            for way in ways if turn % 2 else reversed(ways):
                start = time.perf_counter()
                once(ways[way], inputs)
                if turn:  # the first round warms up
                    times[way].append(time.perf_counter() - start)
        title = f"{name}, {kind}"
        figures.append(ratio_of(title, times["plain"], times["last"], peer="channels first", note=note))
        if folded:
            remark = f"{folded} norms folded, {note}"
            figures.append(ratio_of(title, times["last"], times["folded"], peer="norms not folded", note=remark))
    return figures


def compare_memory(name: str, batch: int, rounds: int, options: list[str]) -> list[SpeedFigure]:
    """Return the speed-up of an embedded model if its process keeps the memory that tensors free."""
    command = [sys.executable, __file__, "--times", f"demo:{name}", "--large-batch", str(batch), *options]
    # A setting of malloc in the environment, here its default, is one that davylamp leaves alone.
    ways = {"freed": os.environ | {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=7"}, "kept": dict(os.environ)}
    times: dict[str, list[list[float]]] = {way: [] for way in ways}
    for turn in range(rounds):
        for way in ways if turn % 2 else reversed(ways):
            done = subprocess.run(command, env=ways[way], capture_output=True, text=True, check=True)
            times[way].append(json.loads(done.stdout.splitlines()[-1]))
    note = f"batch of {batch}, {torch.get_num_threads()} threads"
    figures = []
    for place, kind in enumerate(("forward", "forward and backward")):
        freed, kept = ([once[place] for once in times[way]] for way in ("freed", "kept"))
        figures.append(ratio_of(f"{name}, {kind}", freed, kept, peer="freed memory given back", note=note))
    return figures


@torch.no_grad()
def compare_passes(name: str, count: int, rounds: int) -> SpeedFigure:
    """Return the speed-up if many images are processed in passes of `PASS_SIZE`."""
    model = load_model(f"demo:{name}")
    inputs = torch.rand(count, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    ways = {"whole": model, "parts": model.predict_logits}
    times: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(rounds + 1):
        for way in ways if turn % 2 else reversed(ways):
            start = time.perf_counter()
            ways[way](inputs)
            if turn:
                times[way].append(time.perf_counter() - start)
    note = f"passes of {PASS_SIZE}, {torch.get_num_threads()} threads"
    return ratio_of(f"{name}, forward", times["whole"], times["parts"], peer=f"{count} images in one pass", note=note)


def time_both(name: str, batch: int, rounds: int) -> tuple[float, float]:
    """Return the median seconds of a forward pass, and of a forward and backward pass, in this process."""
    model = load_model(name)
    inputs = torch.rand(batch, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    medians = []
    for once in (_forward, _both):
        seconds = []
        for turn in range(rounds + 1):
            start = time.perf_counter()
            once(model, inputs)
            if turn:
                seconds.append(time.perf_counter() - start)
        medians.append(statistics.median(seconds))
    return medians[0], medians[1]


@torch.no_grad()
def _forward(model: Classifier, inputs: torch.Tensor) -> None:
    model(inputs)


def _both(model: Classifier, inputs: torch.Tensor) -> None:
    inputs = inputs.clone().requires_grad_()
    torch.autograd.grad(model(inputs).logsumexp(1).sum(), inputs)


if __name__ == "__main__":
    main()
