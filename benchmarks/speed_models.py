"""Speed of a model with its channels last, as `load_model` lays weights out on a CPU, over the same model without.

Forward passes, and forward with backward passes to the image, of the embedded models and of torchvision's with random
weights; both layouts take turns.

Run: python benchmarks/speed_models.py [--quick] [--threads 2] [--batch 8] [--json FILE]
"""

import copy
import time

import torch

from davylamp.adapters import Classifier
from davylamp.adapters.zoo import load_model
from davylamp.benchmarks.figures import Figure, benchmark_parser, finish, ratio_of
from davylamp.benchmarks.passes import build

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
    models = {f"efficientnet-lite{n}": load_model(f"demo:efficientnet-lite{n}") for n in (0, 2)}
    models |= {name: Classifier(build(name, "cpu")) for name in names}
    figures = []
    for name, model in models.items():
        figures += compare_layouts(name, model, batch, rounds)
    finish(figures, options.json)


def compare_layouts(name: str, model: Classifier, batch: int, rounds: int) -> list[Figure]:
    """How many times as fast one model is with its channels last: forward, and with the gradient of the images."""
    plain = copy.deepcopy(model).to(memory_format=torch.contiguous_format)
    last = copy.deepcopy(model).to(memory_format=torch.channels_last)
    inputs = torch.rand(batch, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    note = f"batch of {batch}, {torch.get_num_threads()} threads"
    figures = []
    for kind, once in (("forward", _forward), ("forward and backward", _both)):
        times: dict[str, list[float]] = {"plain": [], "last": []}
        for turn in range(rounds + 1):
            for side, own in (("plain", plain), ("last", last))[:: 1 if turn % 2 else -1]:
                start = time.perf_counter()
                once(own, inputs)
                if turn:  # the first round warms up
                    times[side].append(time.perf_counter() - start)
        figures.append(ratio_of(f"{name}, {kind}", times["plain"], times["last"], peer="channels first", note=note))
    return figures


@torch.no_grad()
def _forward(model: Classifier, inputs: torch.Tensor) -> None:
    model(inputs)


def _both(model: Classifier, inputs: torch.Tensor) -> None:
    inputs = inputs.clone().requires_grad_()
    torch.autograd.grad(model(inputs).logsumexp(1).sum(), inputs)


if __name__ == "__main__":
    main()
