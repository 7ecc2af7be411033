"""Measures models on a GPU: the best batch size, layout and precision, and the overhead of an attack.

For each model, the batch size is measured first (see `batch_size`). Then bare passes (forward, and backward to the
image) are timed in turns: in each precision of `--precision` and in torch's default, with channels first and last. The
first model is trained, and is also used for two further measurements:

- PGD by `run_attack` in each precision, channels first, compared with as many bare passes in the same precision. The
  table also has the number of examples that fool the model in the attack's precision, and how many of these the judge
  confirms in float32.
- PGD of each library, called directly on the same prepared model, compared with `run_attack`.

The labels are the model's own predictions, so that every image is attacked. The other models have random weights, which
do not affect the time. The page ends with the measurements and predictions of `scale`.

Run: python -m davylamp.tools.speed.gpu [--quick] [--device cuda] [--models demo:efficientnet-lite0 resnet50]
    [--rounds 5] [--steps 40] [--out FILE] [--json FILE]
"""

import copy
import statistics
import warnings
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from davylamp.adapters import Classifier, ThreatModel, run_attack
from davylamp.adapters.data.datasets import load_data
from davylamp.adapters.models.zoo.load import load_model
from davylamp.adapters.parameters import PRECISIONS
from davylamp.adapters.torch_state import attack_precision, model_autocast
from davylamp.memory import keep_freed_memory
from davylamp.tools.speed.adapters import library_call
from davylamp.tools.speed.batch_size import choose_size, measure_batches
from davylamp.tools.speed.figures import SpeedFigure, benchmark_parser, finish, ratio_of
from davylamp.tools.speed.page import machine, scale_page, versions
from davylamp.tools.speed.passes import build, seconds
from davylamp.tools.speed.scale import table

MODELS = ("demo:efficientnet-lite0", "resnet50", "vit_b_16")
LIBRARIES = ("art", "foolbox", "torchattacks")
LARGEST = 256  # images of a batch
WAYS = (None, *PRECISIONS)
THREAT, STEP = ThreatModel("linf", 0.5 / 255), 0.1 / 255  # small, so that not everything is fooled
LAYOUTS = {"first": torch.contiguous_format, "last": torch.channels_last}


class GpuPoint(NamedTuple):
    """A model with a batch of images and its predictions."""

    name: str
    classifier: Classifier
    inputs: Tensor
    labels: Tensor
    speeds: dict[int, float]


def find_point(name: str, device: str, largest: int) -> GpuPoint:
    """Load a model, and as many images as the best measured batch size."""
    if ":" in name:
        classifier = load_model(name, device=device)
    else:
        classifier = Classifier(build(name, device), name=f"{name}, random weights").freeze()
    side = classifier.crop or 224
    speeds = dict(measure_batches(classifier, side, largest))
    images = shifted_images(choose_size(speeds), side).to(device)
    return GpuPoint(classifier.name, classifier, images, classifier.predict_logits(images).argmax(1), speeds)


def shifted_images(count: int, side: int) -> Tensor:
    """Return the demo's images, repeated as often as necessary, each time shifted by a different number of pixels."""
    images = load_data("demo:imagenet", resize=side * 8 // 7, crop=side).inputs
    turns = -(-count // len(images))
    return torch.cat([images.roll((3 * turn, 5 * turn), dims=(2, 3)) for turn in range(turns)])[:count]


def make_passes(classifier: Classifier, inputs: Tensor, precision: str | None) -> Callable[[], object]:
    """Return a function that makes a forward and backward pass of the batch."""
    images = inputs.clone().requires_grad_()

    def passes() -> None:
        with attack_precision(precision):
            with model_autocast(precision, classifier.device):
                logits = classifier(images)
            torch.autograd.grad(logits.logsumexp(1).sum(), images)

    return passes


def in_turns(calls: dict[str, Callable[[], object]], device: str, rounds: int) -> dict[str, list[float]]:
    """Time each call in turns, after one warm-up call each, and return the seconds."""
    for call in calls.values():
        call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds):
        for name in calls if turn % 2 else reversed(calls):
            times[name].append(seconds(calls[name], device))
    return times


def can_do(precision: str | None, device: str) -> bool:
    """Return whether the device supports a precision."""
    return precision != "tf32" or device.startswith("cuda")


def title_of(precision: str | None) -> str:
    """Return the name of a precision in a table."""
    return precision or "as torch is set"


def bare_table(point: GpuPoint, device: str, rounds: int) -> tuple[list[tuple[str, ...]], dict[str | None, float]]:
    """Measure passes per second in every precision and layout, and the seconds of a batch with channels first."""
    calls, count = {}, len(point.labels)
    for layout, form in LAYOUTS.items():
        classifier = copy.deepcopy(point.classifier).to(memory_format=form).freeze()
        inputs = point.inputs.contiguous(memory_format=form)
        calls |= {
            f"{title_of(each)}, {layout}": make_passes(classifier, inputs, each)
            for each in WAYS
            if can_do(each, device)
        }
    times = {name: statistics.median(taken) for name, taken in in_turns(calls, device, rounds).items()}
    slowest = times[f"{title_of('float32')}, first"]
    rows = [
        (name, f"{count / taken:.0f}", f"{taken / count * 1e3:.3f}", f"{slowest / taken:.2f}")
        for name, taken in times.items()
    ]
    return rows, {each: times[f"{title_of(each)}, first"] for each in WAYS if can_do(each, device)}


def attack_rows(
    point: GpuPoint, bare: dict[str | None, float], device: str, steps: int, rounds: int
) -> tuple[list[tuple[str, ...]], list[SpeedFigure]]:
    """Run PGD in each precision: its time relative to bare passes, and the examples that the judge confirms."""
    settings = {"steps": steps, "step_size": STEP, "random_start": False, "batch_size": len(point.labels)}

    def attack(precision: str | None):
        more = {} if precision is None else {"precision": precision}
        return run_attack("torchattacks:pgd", point.classifier, point.inputs, point.labels, THREAT, **settings, **more)

    calls = {title_of(each): (lambda each=each: attack(each)) for each in bare}
    calls |= {f"{title_of(each)}, bare": make_passes(point.classifier, point.inputs, each) for each in bare}
    times = in_turns(calls, device, rounds)
    rows, figures = [], []
    for each in bare:
        name = title_of(each)
        ratio = ratio_of(
            f"time of run_attack, {point.name}, {name}",
            times[name],
            [steps * taken for taken in times[f"{name}, bare"]],
            peer="its bare passes",
            note=f"torchattacks' PGD, {steps} steps, {len(point.labels)} images",
        )
        result = attack(each)
        with torch.no_grad(), attack_precision(each), model_autocast(each, point.classifier.device):
            seen = point.classifier(result.adv_inputs).argmax(1) != point.labels
        confirmed, taken = int((seen & result.success).sum()), statistics.median(times[name])
        rows.append((name, f"{taken:.3f}", f"{ratio.value:.3f}", f"{int(seen.sum())}", f"{confirmed}"))
        rows[-1] += (f"{int(result.success.sum())}",)
        figures.append(ratio)
    return rows, figures


def library_figures(point: GpuPoint, device: str, steps: int, rounds: int) -> list[SpeedFigure]:
    """Compare `run_attack` with each library, called directly on the same prepared model."""
    figures = []
    for library in LIBRARIES:

        def whole(library: str = library) -> object:
            return run_attack(
                f"{library}:pgd",
                point.classifier,
                point.inputs,
                point.labels,
                ThreatModel("linf", 4 / 255),
                steps=steps,
                step_size=1 / 255,
                random_start=False,
                batch_size=len(point.labels),
            )

        def raw(library: str = library) -> None:
            library_call(library, point.classifier, point.inputs, point.labels, steps)

        times = in_turns({"raw": raw, "run_attack": whole}, device, rounds)
        name = f"time with the whole of run_attack, {point.name}"
        settings = {"at_most": 1.03, "note": f"PGD, {steps} steps, {len(point.labels)} images"}
        figures.append(
            ratio_of(name, times["run_attack"], times["raw"], peer=f"{library}, called directly", **settings)
        )
    return figures


def write_point(
    point: GpuPoint, device: str, steps: int, rounds: int, *, attacked: bool
) -> tuple[list[str], list[SpeedFigure]]:
    """Return a model's part of the page, and its figures. If it is not attacked, only bare passes are measured."""
    passes, bare = bare_table(point, device, rounds)
    speeds = ", ".join(f"{size}: {speed:.0f}" for size, speed in point.speeds.items())
    lines = [
        f"## {point.name}",
        "",
        f"Passes per second by batch size, with torch's settings: {speeds}. Chosen: {len(point.labels)}.",
        "",
        table(("bare passes, channels", "a second", "ms an image", "times float32, first"), passes, markdown=True),
        "",
    ]
    if not attacked:
        return lines, []
    attacks, figures = attack_rows(point, bare, device, steps, rounds)
    figures += library_figures(point, device, steps, rounds)
    lines += [
        table(
            (
                "PGD's precision",
                "s",
                "over its bare passes",
                "fooled in its precision",
                "of these confirmed",
                "success",
            ),
            attacks,
            markdown=True,
        ),
        "",
        *[f"- {figure}" for figure in figures if figure.goal],
        "",
    ]
    return lines, figures


def write_page(parts: Iterable[str], device: str) -> str:
    """Return the whole page."""
    gpu = torch.cuda.get_device_name(device) if device.startswith("cuda") else "no GPU"
    head = [
        "# One point on a GPU",
        "",
        "Written by `python -m davylamp.tools.speed.gpu`; do not edit. What is measured stands in its docstring.",
        "",
        f"- {datetime.now(timezone.utc).date().isoformat()}; {gpu}; {machine()}",
        f"- {versions()}",
        "",
    ]
    return "\n".join([*head, *parts])


def main() -> None:
    """Measure everything, print the page, and write it if requested."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rounds, steps, largest = (1, 2, 2) if options.quick else (options.rounds, options.steps, LARGEST)
    keep_freed_memory()
    parts, figures = [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for place, name in enumerate(options.models[: 1 if options.quick else None]):
            with torch.cuda.device(options.device) if options.device.startswith("cuda") else nullcontext():
                point = find_point(name, options.device, largest)
                lines, more = write_point(point, options.device, steps, rounds, attacked=not place)
            print("\n".join(lines), flush=True)
            parts += lines
            figures += more
            if options.out and not options.quick:
                options.out.write_text(write_page(parts, options.device), encoding="utf-8")
    if options.out and not options.quick:
        parts += [
            "## Scale, predicted",
            "",
            "`python -m davylamp.tools.speed.scale`",
            "",
            scale_page(quick=False),
            "",
        ]
        options.out.write_text(write_page(parts, options.device), encoding="utf-8")
    finish(figures, options.json)


if __name__ == "__main__":
    main()
