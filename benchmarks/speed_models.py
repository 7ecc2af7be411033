"""Speed of a model as `load_model` prepares it for a CPU, over the same model without each of the three steps.

Freed memory kept against given back to the system, for a model that is otherwise as torch makes it; then, with memory
kept, channels last against first; then batch normalisation folded into the convolutions against not. Forward passes,
and forward with backward passes to the image, of the embedded models and of torchvision's with random weights; the ways
take turns.

Run: python benchmarks/speed_models.py [--quick] [--threads 2] [--batch 8] [--json FILE]
"""

import copy
import ctypes
import time

import torch

from davylamp.adapters import Classifier
from davylamp.adapters.folding import fold_batch_norms
from davylamp.adapters.memory import keep_freed_memory
from davylamp.adapters.zoo import load_model
from davylamp.benchmarks.figures import Figure, benchmark_parser, finish, ratio_of
from davylamp.benchmarks.passes import build

SIDE = 224
# Where glibc's malloc arrives by itself once tensors of 32 MB were freed (its dynamic thresholds' upper end).
_MMAP_THRESHOLD, _TRIM_THRESHOLD = (-3, 1 << 25), (-1, 1 << 26)
TORCHVISION = ("resnet50", "vgg16", "mobilenet_v3_large", "densenet121", "vit_b_16")


def main(arguments: list[str] | None = None) -> None:
    """Print two lines per model."""
    parser = benchmark_parser("Speed of models with their channels last.")
    parser.add_argument("--threads", type=int, help="threads of torch; default: torch's own choice")
    parser.add_argument("--batch", type=int, default=8)
    options = parser.parse_args(arguments)
    if options.threads:
        torch.set_num_threads(options.threads)
    batch, rounds, names = (2, 1, ()) if options.quick else (options.batch, 5, TORCHVISION)
    models = {f"efficientnet-lite{n}": load_model(f"demo:efficientnet-lite{n}", fold=False) for n in (0, 2)}
    models |= {name: Classifier(build(name, "cpu")) for name in names}
    figures = []
    for name, model in models.items():
        figures += compare_ways(name, model, batch, rounds)
    finish(figures, options.json)


def compare_ways(name: str, model: Classifier, batch: int, rounds: int) -> list[Figure]:
    """How many times as fast one model is with each step: forward, and with the gradient of the images."""
    plain = copy.deepcopy(model).to(memory_format=torch.contiguous_format)
    last = copy.deepcopy(model).to(memory_format=torch.channels_last)
    folded = copy.deepcopy(last)
    count = fold_batch_norms(folded, SIDE)
    ways = {"freed": (plain, give_memory_back)}
    ways |= {way: (net, keep_memory) for way, net in {"plain": plain, "last": last, "folded": folded}.items()}
    steps = [("freed", "plain", "freed memory given back", ""), ("plain", "last", "channels first", "")]
    if count:
        steps.append(("last", "folded", "norms not folded", f"{count} norms folded, "))
    inputs = torch.rand(batch, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    note = f"batch of {batch}, {torch.get_num_threads()} threads"
    figures = []
    for kind, once in (("forward", _forward), ("forward and backward", _both)):
        times: dict[str, list[float]] = {way: [] for way in ways}
        for turn in range(rounds + 1):
            for way in ways if turn % 2 else reversed(ways):
                net, prepare = ways[way]
                prepare()
                once(net, inputs)  # memory is as this way leaves it
                start = time.perf_counter()
                once(net, inputs)
                if turn:  # the first round warms up
                    times[way].append(time.perf_counter() - start)
        for before, after, peer, own in steps:
            title = f"{name}, {kind}"
            figures.append(ratio_of(title, times[before], times[after], peer=peer, note=own + note))
    return figures


def keep_memory() -> None:
    """What `adapters.memory.keep_freed_memory` does, again and again."""
    keep_freed_memory.cache_clear()
    keep_freed_memory()


def give_memory_back() -> None:
    """The opposite, on glibc; elsewhere nothing, and the ratio is 1."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", lambda *_: 0)
    for setting in (_MMAP_THRESHOLD, _TRIM_THRESHOLD):
        mallopt(*setting)


@torch.no_grad()
def _forward(model: Classifier, inputs: torch.Tensor) -> None:
    model(inputs)


def _both(model: Classifier, inputs: torch.Tensor) -> None:
    inputs = inputs.clone().requires_grad_()
    torch.autograd.grad(model(inputs).logsumexp(1).sum(), inputs)


if __name__ == "__main__":
    main()
