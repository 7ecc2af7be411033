"""Measures the radius search: bisection in davylamp, and the attack's own list of 32 radii in Foolbox.

Both find the smallest of 32 radii (k/32 of the largest) at which PGD fools each image, so the precision is equal.
Foolbox is called by its own interface: one attack object, with `epsilons=[...]` of all 32, on plain PyTorch images. For
a fixed-budget attack, it has no early stop: every image is run at every radius. davylamp runs 6 of the 32 radii, with
all images in one call and a radius for each. It also counts, judges and measures. The ways alternate. The figure is the
median over the rounds of Foolbox's time divided by davylamp's (goal >= 3), with its interquartile range. The radii are
also compared. They may differ if PGD is not monotone in the radius, and then bisection's may be larger.

The ideal gain is 32/6 = 5.3, minus the cost of counting, judging and measuring. It is smaller for attacks that take one
radius for all images, if a call costs as much for one image as for many: bisection splits their images over up to 16
radii. "stopping at the first success" is the minimal cost of an ascending list with an early stop, which Foolbox does
not have: the runs up to each image's smallest radius.

    python -m davylamp.tools.speed.search [--quick] [--images 4] [--steps 10] [--rounds 3]
"""

import statistics
import time
import warnings
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from davylamp.adapters import Classifier, ThreatModel
from davylamp.adapters.data.datasets import load_data
from davylamp.adapters.models.zoo.load import load_model
from davylamp.engine import RadiusSearchResult, search_radius
from davylamp.tools.speed.figures import SpeedFigure, benchmark_parser, finish, ratio_of

HALVINGS = 5
NODES = 2**HALVINGS


def digits_case(count: int) -> tuple[Classifier, Tensor, Tensor]:
    """Return a small CNN trained on scikit-learn's digits, and test images that it classifies correctly."""
    data = load_digits()
    images = torch.tensor(data.images / 16, dtype=torch.float32)[:, None].expand(-1, 3, -1, -1) * 0.9 + 0.05
    images, labels = nn.functional.interpolate(images, scale_factor=2), torch.tensor(data.target)
    torch.manual_seed(0)
    convolutions = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2, padding=1)
    net = nn.Sequential(*convolutions, nn.ReLU(), nn.Flatten(), nn.Linear(256, 10))
    optimiser = torch.optim.Adam(net.parameters(), 1e-2)
    for _ in range(12):
        for batch in torch.randperm(1200).split(100):
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(images[batch]), labels[batch]).backward()
            optimiser.step()
    classifier = Classifier(net)
    right = (classifier.predict_logits(images[1200:]).argmax(1) == labels[1200:]).nonzero()[:count, 0] + 1200
    return classifier, images[right].contiguous(), labels[right]


def imagenet_case(count: int) -> tuple[Classifier, Tensor, Tensor]:
    """Return EfficientNet-Lite0, and embedded ImageNet images that it classifies correctly."""
    classifier = load_model("demo:efficientnet-lite0")
    data = load_data("demo:imagenet", resize=classifier.resize, crop=classifier.crop)
    right = (classifier.check(data.inputs, data.labels).argmax(1) == data.labels).nonzero()[:count, 0]
    return classifier, data.inputs[right], data.labels[right]


def foolbox_list(case: tuple[Classifier, Tensor, Tensor], upper: float, steps: int) -> Tensor:
    """Return each image's smallest successful radius from Foolbox's list of radii, shape (N,).

    Infinite if none succeeds.
    """
    from foolbox import PyTorchModel
    from foolbox.attacks import LinfProjectedGradientDescentAttack

    classifier, inputs, labels = case
    attack = LinfProjectedGradientDescentAttack(steps=steps, rel_stepsize=2.5 / steps, random_start=False)
    radii = [k * upper / NODES for k in range(1, NODES + 1)]
    model = PyTorchModel(classifier, bounds=(0, 1), device=inputs.device)
    _, _, success = attack(model, inputs, labels, epsilons=radii)
    least = torch.tensor([*radii, torch.inf], dtype=torch.double)
    return least[torch.where(success.any(0), success.long().argmax(0), NODES)]


def bisection(case: tuple[Classifier, Tensor, Tensor], upper: float, steps: int) -> RadiusSearchResult:
    """Find each image's smallest successful radius with davylamp's `search_radius`."""
    settings: dict[str, Any] = {"steps": steps, "step_size": "2.5 epsilon / steps", "random_start": False}
    settings["batch_size"] = len(case[1])  # Foolbox's list takes all images at once, too
    return search_radius("foolbox:pgd", *case, ThreatModel("linf", upper), rounds=HALVINGS, **settings)


def measure(name: str, case: tuple[Classifier, Tensor, Tensor], upper: float, steps: int, rounds: int) -> SpeedFigure:
    """Time both ways for one model and set of images, and print a line."""
    listed, bisected = foolbox_list(case, upper, steps), bisection(case, upper, steps)
    ways = {"list": lambda: foolbox_list(case, upper, steps), "bisection": lambda: bisection(case, upper, steps)}
    times: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(rounds):
        for way in ways if turn % 2 else reversed(ways):
            start = time.perf_counter()
            ways[way]()
            times[way].append(time.perf_counter() - start)
    peer, note = "Foolbox's own list of 32 epsilons", f"{len(listed)} images, PGD of {steps} steps"
    ratio = ratio_of(
        f"speed of best effort, {name}", times["list"], times["bisection"], peer=peer, note=note, at_least=3
    )
    seconds = {way: statistics.median(of_way) for way, of_way in times.items()}
    early = float((listed / upper * NODES).clamp(max=NODES).mean())
    same = int((listed == bisected.budget).sum())
    print(
        f"{name:24}{len(listed):>7}{seconds['list']:>10.2f}{seconds['bisection']:>11.2f}"
        f"{ratio.value:>8.2f}  {ratio.low:.2f} - {ratio.high:.2f}{same:>7}/{len(listed)}"
        f"{float(bisected.runs.double().mean()):>7.1f}{early:>14.1f}"
    )
    return ratio


def main() -> None:
    """Print one line per model."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--images", type=int, default=4, help="number of ImageNet images (16 and 128 for digits)")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    images, steps, rounds = (1, 1, 1) if options.quick else (options.images, options.steps, options.rounds)
    print(f"PGD, linf, {steps} steps, 32 radii, {torch.get_num_threads()} threads, {rounds} rounds")
    print(
        f"{'model':24}{'images':>7}{'list s':>10}{'bisect. s':>11}{'ratio':>8}  middle half   same"
        f"{'runs':>9}{'early stop':>14}"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        counts = (4,) if options.quick else (16, 128)
        figures = [measure("digits CNN", digits_case(count), 0.2, steps, rounds) for count in counts]
        figures.append(measure("efficientnet-lite0", imagenet_case(images), 0.5 / 255, steps, rounds))
    finish(figures, options.json)


if __name__ == "__main__":
    main()
